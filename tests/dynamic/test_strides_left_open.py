"""Inputs of changing sizes whose strides do not follow from these: what is cut out of a larger tensor is compiled once
for all sizes where its strides go with the sizes, and is right where they do not."""

import pytest
import torch

import framejit

from comparison import assert_same
from support import CountingBackend

CUTS = {
    "but the last": lambda x: x[:, :-1],
    "but the first": lambda x: x[:, 1:],
    "rows of a batch": lambda x: x[:, :-1, None].expand(-1, -1, 3),
    "in the middle": lambda x: x.unsqueeze(-1).repeat(1, 1, 4)[:, 2:-2],
    "last of three": lambda x: x.unsqueeze(1).repeat(1, 3, 1)[:, :, :-1],
    "transposed": lambda x: x[:, :-1].t(),
    "batch of one": lambda x: x[:1, :-1],
}


def program(x):
    y = (x * 2 + 1).softmax(-1)
    return y, x.stride(0) * 2, x.is_contiguous(), (y + x).sum(0), x.reshape(-1) + 1


@pytest.mark.parametrize("backend", ["fuse", "eager"])
@pytest.mark.parametrize("cut", CUTS)
def test_one_entry_for_all_lengths(cut, backend):
    fast = framejit.optimize(program, backend=backend)
    for length in range(7, 16):
        x = CUTS[cut](torch.randn(4, length))
        assert_same(program(x), fast(x), rtol=1e-5, atol=1e-6)
    assert len(fast.entries) <= 2 + (cut == "rows of a batch")  # strides of 0 and 1


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"dynamic": True}])
def test_training_on_all_but_one_token(options):
    """Tokens and the next ones, as language models are trained."""
    torch.manual_seed(0)
    model, other = (torch.nn.Sequential(torch.nn.Embedding(11, 8), torch.nn.Linear(8, 11)) for _ in range(2))
    other.load_state_dict(model.state_dict())

    def step(model, x, y):
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.reshape(-1))
        loss.backward()
        return loss.detach()

    backend = CountingBackend()
    fast = framejit.optimize(step, backend=backend, **options)
    for length in (6, 9, 7, 12, 8, 20):
        tokens = torch.randint(0, 11, (3, length))
        assert_close(fast(model, tokens[:, :-1], tokens[:, 1:]), step(other, tokens[:, :-1], tokens[:, 1:]))
        for ours, theirs in zip(model.parameters(), other.parameters()):
            assert_close(ours.grad, theirs.grad)
    assert len(fast.entries) == 2


def test_other_strides_are_noticed():
    """Rows as far apart as they were, farther, nearer, side by side, over each other, and the other way round."""
    fast = framejit.optimize(program)
    for length in (7, 9, 11):
        fast(torch.randn(4, length)[:, :-1])
    kinds = [
        torch.randn(4, 12)[:, :-1], torch.randn(4, 12)[:, :-4], torch.randn(4, 9), torch.randn(4, 24)[:, ::2],
        torch.randn(24)[None].expand(4, -1), torch.randn(15, 4).t()[:, :-1], torch.randn(60).as_strided((4, 9), (7, 1)),
        torch.randn(60).as_strided((4, 9), (10, 1)), torch.randn(4, 30)[:, :9], torch.randn(1, 12)[:, :-1],
        torch.randn(4, 2)[:, :-1], torch.randn(4, 12, dtype=torch.float64)[:, :-1],
    ]
    for _ in range(2):
        for x in kinds:
            assert_same(program(x), fast(x), rtol=1e-5, atol=1e-6)


def test_a_fixed_buffer_stays_one():
    """Where only sizes change, strides are the buffer's."""
    buffer, fast = torch.randn(4, 32), framejit.optimize(program)
    for length in range(3, 12):
        x = buffer[:, :length]
        assert_same(program(x), fast(x), rtol=1e-5, atol=1e-6)
    assert len(fast.entries) == 2


WINDOWS = {
    "of one size": lambda x, n: x[:, :6],
    "at the end": lambda x, n: x[:, -6:],
    "of any size": lambda x, n: x[:, : 3 + n % 4],
    "a column": lambda x, n: x[:, 2],
    "every other": lambda x, n: x[:, ::2],
    "padded to eight": lambda x, n: torch.nn.functional.pad(x, (0, -x.shape[1] % 8))[:, : x.shape[1]],
    "of blocks": lambda x, n: x[:, :, None].repeat(1, 1, 5)[:, :4, :3],
    "transposed": lambda x, n: x[:, :6].t(),
}


@pytest.mark.parametrize("backend", ["fuse", "eager"])
@pytest.mark.parametrize("cut", WINDOWS)
def test_windows_of_tensors_of_any_size(cut, backend):
    """Strides that no size tells, nor a distance from it."""
    fast = framejit.optimize(lambda x: program(x)[:3] + program(x)[4:], backend=backend)
    for n, length in enumerate((9, 11, 14, 10, 21, 16, 30, 12, 19, 23, 40)):
        x = WINDOWS[cut](torch.randn(4, length), n)
        expected = program(x)
        assert_same(expected[:3] + expected[4:], fast(x), rtol=1e-5, atol=1e-6)
    assert len(fast.entries) <= 4 + (cut == "padded to eight")  # side by side, too


def test_windows_in_training():
    model, other = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    other.load_state_dict(model.state_dict())

    def step(model, x):
        loss = model(x).square().mean() + x.sum()
        loss.backward()
        return loss.detach()

    fast = framejit.optimize(step)
    for columns in (7, 9, 12, 6, 20, 33):
        whole = torch.randn(4, columns, requires_grad=True)
        twin = whole.detach().clone().requires_grad_()
        assert_close(fast(model, whole[:, :5]), step(other, twin[:, :5]))
        assert_close(whole.grad, twin.grad)
        for ours, theirs in zip(model.parameters(), other.parameters()):
            assert_close(ours.grad, theirs.grad)


def test_writes_into_what_was_cut_out():
    def write(x):
        x[:, 1:] *= 2
        x.add_(x.flip(1))
        return x.sum()

    fast = framejit.optimize(write)
    for length in range(6, 14):
        ours = torch.randn(3, length)
        theirs = ours.clone()
        assert_same(fast(ours[:, :-1]), write(theirs[:, :-1]), rtol=1e-5, atol=1e-6)
        assert_same(ours, theirs, rtol=1e-5, atol=1e-6)
    assert len(fast.entries) == 2


def test_overlapping_inputs():
    """Both are cut out of one tensor, as tokens and the next ones; one is written, and the other sees it."""

    def shift(x, y):
        x.mul_(2)
        return y * 3, x.sum()

    fast = framejit.optimize(shift)
    for length in range(6, 14):
        ours = torch.randn(3, length)
        theirs = ours.clone()
        assert_same(
            shift(theirs[:, :-1], theirs[:, 1:]), fast(ours[:, :-1], ours[:, 1:]), rtol=1e-5, atol=1e-6
        )
        assert_same(theirs, ours, rtol=1e-5, atol=1e-6)
