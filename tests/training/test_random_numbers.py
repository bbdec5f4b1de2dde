"""Random numbers that kernels make: nothing is kept of them but a key, and seeds, states of generators, checkpoints and
gradients of gradients are as the program expects. On a CPU, which here says of itself that its kernels make them; the
operations that graphs have for them give the numbers (`tests/fuse/random_numbers`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import framejit
from framejit.backends.fuse.random_numbers.drawn_again import DrawnAgain
from framejit.backends.fuse.random_numbers.operations import draw_key
from framejit.backends.fuse.targets.lookup import standing_in
from tests.making_cpu import MakingCpu

from support import seed
from twins import leaf, same

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def making() -> Iterator[None]:
    with standing_in("cpu", MakingCpu), framejit.config.patch(same_random_numbers=False):
        yield


def optimized(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return framejit.optimize(fn, backend="fuse", **options)


def seeded(number: int, fn: Callable[..., Any], *args: Any) -> Any:
    seed(number)
    return fn(*args)


@contextlib.contextmanager
def as_kernels(number: int) -> Iterator[None]:
    """In the block, eager draws what a graph draws after this seed."""
    seed(number)
    with DrawnAgain() as again:
        yield
    assert again.draws


def kept_bytes(out: torch.Tensor, *known: torch.Tensor) -> int:
    """The bytes of what a node keeps, besides tensors that are known."""
    places = {tensor.untyped_storage().data_ptr() for tensor in known}
    memories = {memory.data_ptr(): memory for memory in (t.untyped_storage() for t in out.grad_fn.saved_tensors)}
    return sum(memory.nbytes() for place, memory in memories.items() if place not in places)


def dropped(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.4)


def network(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = F.dropout(torch.tanh(x @ w), 0.3)
    drawn = torch.rand_like(h) * h + torch.randn_like(h) * x @ w
    return F.dropout(h * h, 0.5, training=True).sum() + drawn.sum()


def test_forward_and_backward_are_those_of_the_same_numbers() -> None:
    x, w = leaf(20, 8), leaf(8, 8)
    compiled = optimized(network)
    for number in (1, 1, 2, 2):
        got = seeded(number, compiled, x, w)
        gradients = torch.autograd.grad(got, (x, w))
        with as_kernels(number):
            expected = network(x, w)
        same([expected.detach(), *torch.autograd.grad(expected, (x, w))], [got.detach(), *gradients])
    (report, _) = framejit.inspect(compiled).graphs
    assert not report.reason


def test_the_gradient_is_zero_exactly_where_the_result_is() -> None:
    x = (torch.rand(200, 30) + 1).requires_grad_()
    compiled = optimized(dropped)
    for number in range(3):
        out = seeded(number, compiled, x)
        (gradient,) = torch.autograd.grad(out.sum(), x)
        assert torch.equal(gradient == 0, out == 0)
        torch.testing.assert_close(out[out != 0], (x / 0.6)[out != 0])
        assert 0.35 < float((out == 0).double().mean()) < 0.45


def test_nothing_is_kept_but_a_key() -> None:
    x = torch.randn(64, 32, requires_grad=True)
    compiled = optimized(lambda x: F.dropout(x, 0.4).sum())
    for _ in range(3):
        out = compiled(x)
    assert kept_bytes(out, x) == 8
    drawing = optimized(lambda x: F.dropout(x, 0.4).sum(), options={"same_random_numbers": True})
    for _ in range(3):
        out = drawing(x)
    assert kept_bytes(out, x) >= x.numel()


def test_the_program_sees_numbers_as_it_seeds_them() -> None:
    x = torch.randn(40, 9)
    compiled = optimized(lambda x: torch.rand_like(x))
    first, second = seeded(1, compiled, x), compiled(x)
    assert not torch.equal(first, second)
    assert torch.equal(seeded(1, compiled, x), first) and torch.equal(compiled(x), second)
    for _ in range(10):  # nor is eager ever measured against it
        assert torch.equal(seeded(1, compiled, x), first)
    state = torch.get_rng_state()
    third = compiled(x)
    torch.set_rng_state(state)
    assert torch.equal(compiled(x), third)
    torch.set_rng_state(state)
    with torch.random.fork_rng():
        compiled(x), torch.rand(3)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(compiled(x), third)


def test_a_graph_draws_as_often_whatever_the_sizes_are() -> None:
    compiled = optimized(lambda x: F.dropout(x, 0.5) + torch.randn_like(x), dynamic=True)
    behind = []
    for rows in (3, 50, 700):
        made = seeded(0, compiled, torch.ones(rows, 4))
        assert made.shape == (rows, 4)
        behind.append(torch.rand(2))
    seed(0)
    draw_key(CPU)
    for found in behind:
        assert torch.equal(found, behind[0])
    assert torch.equal(torch.rand(2), behind[0])


@pytest.mark.parametrize("needs_gradients", [True, False])
def test_sizes_that_come_for_the_first_time_have_the_same_numbers(needs_gradients: bool) -> None:
    """Of sizes that no variant fits, the first call is ATen's."""

    def f(x: torch.Tensor) -> torch.Tensor:
        # recorded as a whole without gradients, and drawn by ATen; with them compiled for each size on its own
        y = F.dropout(x, 0.5) if needs_gradients else torch.feature_dropout(F.dropout(x, 0.5), 0.5, True)
        return y + torch.rand_like(x)

    compiled = optimized(f, dynamic=True)
    compiled(torch.ones(6, 4, 5, requires_grad=needs_gradients))
    for rows in (7, 1, 1, 1, 9):
        x = torch.ones(rows, 4, 5, requires_grad=needs_gradients)
        first, *others = [seeded(3, compiled, x) for _ in range(4)]
        assert all(torch.equal(first, other) for other in others)


def test_draws_of_one_graph_are_independent() -> None:
    compiled = optimized(lambda x: (F.dropout(x, 0.5), F.dropout(x, 0.5), torch.rand_like(x), torch.rand_like(x)))
    one, other, a, b = compiled(torch.ones(50_000))
    assert 0.23 < float(((one == 0) & (other == 0)).double().mean()) < 0.27
    assert abs(float(((a - 0.5) * (b - 0.5)).mean())) * 12 < 0.02


@pytest.mark.parametrize("p", [0.0, 1.0])
@pytest.mark.parametrize("training", [True, False])
def test_dropping_nothing_or_all_is_as_in_eager(p: float, training: bool) -> None:
    x = torch.randn(5, 6, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x * 2, p, training)

    compiled = optimized(f)
    for _ in range(3):
        expected, got = f(x), compiled(x)
        same(expected, got)
        same(torch.autograd.grad(expected.sum(), x), torch.autograd.grad(got.sum(), x))


def test_a_generator_of_the_programs_draws_what_it_draws_in_eager() -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(5, 6)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + torch.empty_like(x).uniform_(generator=generator)

    state = generator.get_state()
    expected = f(x)
    generator.set_state(state)
    torch.testing.assert_close(optimized(f)(x), expected)


def written(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    numbers = torch.empty_like(x).uniform_(-1.0, 3.0)
    mask = torch.empty_like(x).bernoulli_(0.25)
    return x * numbers, x * mask, x + torch.empty_like(x).normal_(2.0, 0.5), torch.bernoulli(x.detach(), 0.5)


@pytest.mark.parametrize("needs_gradients", [True, False])
def test_numbers_that_are_written_in_place(needs_gradients: bool) -> None:
    x = torch.randn(300, 20, dtype=torch.float64, requires_grad=needs_gradients)
    compiled = optimized(written)
    for number in (0, 0, 1):
        got = seeded(number, compiled, x)
        with as_kernels(number):
            expected = written(x)
        same([each.detach() for each in expected], [each.detach() for each in got])
    (report, *_) = framejit.inspect(compiled).graphs
    assert not report.reason


def test_numbers_that_are_written_into_an_input() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.uniform_(2.0, 3.0)
        return x * 2

    x, other = torch.zeros(40), torch.zeros(40)
    got = seeded(0, optimized(f), x)
    with as_kernels(0):
        expected = f(other)
    assert torch.equal(x, other) and torch.equal(got, expected) and x._version == other._version


def gradients_of_gradients(fn: Callable[..., Any], x: torch.Tensor) -> list[torch.Tensor]:
    out = fn(x)
    (first,) = torch.autograd.grad(out, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return [out.detach(), first.detach(), second]


def cubed(x: torch.Tensor) -> torch.Tensor:
    return (F.dropout(x, 0.4) ** 3 * torch.rand_like(x)).sum() + (torch.randn_like(x) * x.sin()).sum()


def cubed_again(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(cubed, x * 2, use_reentrant=False) + (F.dropout(x, 0.5) ** 3).sum()


@pytest.mark.parametrize("fn", [cubed, cubed_again], ids=lambda fn: fn.__name__)
def test_gradients_of_gradients_are_those_of_the_same_numbers(fn: Callable[..., Any]) -> None:
    x = leaf(50)
    compiled = optimized(fn)
    got = seeded(0, gradients_of_gradients, compiled, x)
    with as_kernels(0):
        expected = gradients_of_gradients(cubed_plainly if fn is cubed_again else fn, x)
    same(expected, got)
    for number in (0, 1):  # from now on the graph runs as ATen
        got = seeded(number, gradients_of_gradients, compiled, x)
        if fn is cubed:
            with as_kernels(number):
                same(gradients_of_gradients(fn, x), got)
        else:  # its checkpoint draws by ATen, in the forward and again in the backward
            same(seeded(number, gradients_of_gradients, fn, x), got)


def cubed_plainly(x: torch.Tensor) -> torch.Tensor:
    return cubed(x * 2) + (F.dropout(x, 0.5) ** 3).sum()


def test_a_retained_graph_has_one_mask() -> None:
    x = torch.ones(500, requires_grad=True)
    compiled = optimized(lambda x: F.dropout(x, 0.4).square())
    compiled(x)
    out = compiled(x)
    first, second = (torch.autograd.grad(out.sum(), x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second) and torch.equal(first == 0, out == 0)


def test_two_forwards_before_their_backwards() -> None:
    x = torch.ones(500, requires_grad=True)
    compiled = optimized(dropped)
    compiled(x)
    outs = [compiled(x) for _ in range(2)]
    assert not torch.equal(*outs)
    for out in reversed(outs):
        assert torch.equal(torch.autograd.grad(out.sum(), x)[0] == 0, out == 0)


class Block(nn.Module):
    """A part that is checkpointed."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.dropout(self.outer(F.dropout(torch.relu(self.inner(x)), 0.3)), 0.1)


def test_a_checkpoint_computes_its_masks_again() -> None:
    blocks = nn.ModuleList([Block() for _ in range(3)]).double()
    x = leaf(10, 16)

    def run(x: torch.Tensor, again: bool) -> torch.Tensor:
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        return x.square().sum()

    compiled = optimized(run)
    for number in (0, 0, 1):
        out = seeded(number, compiled, x, True)
        got = [out.detach(), *torch.autograd.grad(out, [x, *blocks.parameters()])]
        with as_kernels(number):
            expected = run(x, False)
            same([expected.detach(), *torch.autograd.grad(expected, [x, *blocks.parameters()])], got)
    out = compiled(x, True)
    masks = [tensor for tensor in out.grad_fn.saved_tensors if tensor.dtype == torch.bool]
    assert not masks
    (report, *_) = framejit.inspect(compiled).graphs
    assert not report.reason


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_what_is_computed_again_takes_the_key(share: float) -> None:
    """Parts of the forward, if no more than a share of its bytes may be kept."""
    net = nn.Sequential(*(Block() for _ in range(4))).double()
    x = leaf(30, 16)
    compiled = optimized(lambda x: net(x).square().sum(), options={"activation_memory": share})
    for number in (0, 0, 1):
        out = seeded(number, compiled, x)
        got = [out.detach(), *torch.autograd.grad(out, [x, *net.parameters()])]
        with as_kernels(number):
            expected = net(x).square().sum()
            same([expected.detach(), *torch.autograd.grad(expected, [x, *net.parameters()])], got)
    (report, *_) = framejit.inspect(compiled).graphs
    assert not report.reason


def test_a_layer_of_a_transformer() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True).double()
    x = leaf(3, 7, 16)
    compiled = optimized(lambda x: layer(x).square().sum())
    for number in (0, 0, 1):
        out = seeded(number, compiled, x)
        got = [out.detach(), *torch.autograd.grad(out, [x, *layer.parameters()])]
        with as_kernels(number):
            expected = layer(x).square().sum()
            same([expected.detach(), *torch.autograd.grad(expected, [x, *layer.parameters()])], got)
    out = compiled(x)
    assert torch.bool not in {tensor.dtype for tensor in out.grad_fn.saved_tensors}
    (report, *_) = framejit.inspect(compiled).graphs
    assert not report.reason


def test_layers_alike_have_numbers_of_their_own() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + F.dropout(self.inner(x), 0.5)

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(9))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    model, x = Deep(), torch.randn(8, 16)
    compiled = optimized(model)
    with torch.no_grad():
        for number in (1, 2):
            got = seeded(number, compiled, x)
            with as_kernels(number):
                expected = model(x)
            torch.testing.assert_close(got, expected)


def test_a_setting_has_them_be_eagers() -> None:
    with framejit.config.patch(same_random_numbers=True):
        x = torch.randn(40, 9, requires_grad=True)
        for fn in (optimized(dropped), torch.compile(dropped, backend="framejit")):
            got, expected = seeded(3, fn, x), seeded(3, dropped, x)
            torch.testing.assert_close(got, expected)
        kernels = optimized(dropped, options={"same_random_numbers": False})
        assert not torch.equal(seeded(3, kernels, x), expected)


def test_same_random_numbers_are_eagers() -> None:
    x = leaf(20, 8)
    compiled = optimized(cubed, options={"same_random_numbers": True})
    for number in (0, 1, 1):
        expected = seeded(number, cubed, x)
        got = seeded(number, compiled, x)
        same(expected.detach(), got.detach())
    still = optimized(torch.rand_like, options={"same_random_numbers": True})
    assert torch.equal(seeded(2, still, x.detach()), seeded(2, torch.rand_like, x.detach()))


def test_calls_that_are_verified_draw_as_eager() -> None:
    compiled = optimized(lambda x: F.dropout(x, 0.5), verify=True)
    x = torch.randn(30)
    assert torch.equal(seeded(2, compiled, x), seeded(2, lambda x: F.dropout(x, 0.5), x))


def test_equal_seeds_give_equal_bits_in_deterministic_mode() -> None:
    x = torch.randn(64, 33, requires_grad=True)
    compiled = optimized(network)
    w = torch.randn(33, 33, requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        found = []
        for _ in range(3):
            out = seeded(4, compiled, x, w)
            found.append([out.detach(), *torch.autograd.grad(out, (x, w))])
    finally:
        torch.use_deterministic_algorithms(False)
    for again in found[2:]:
        assert all(map(torch.equal, found[1], again))


def test_a_graph_without_gradients_that_needs_none() -> None:
    x = torch.randn(4, 300)
    compiled = optimized(lambda x: F.dropout(x.softmax(-1), 0.25) @ x.t())
    for number in (0, 0, 1):
        got = seeded(number, compiled, x)
        with as_kernels(number):
            expected = F.dropout(x.softmax(-1), 0.25) @ x.t()
        same(expected, got)
