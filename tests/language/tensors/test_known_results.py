"""Numbers read from tensors and arrays that captured code makes of constants alone are known while capturing."""

import numpy as np
import pytest
import torch

import framejit

from comparison import assert_same
from support import ANY, check

X = torch.arange(24.0).reshape(2, 3, 4)


def test_lists_of_axes():
    def fn(x):
        axes = torch.arange(1, x.dim()).tolist()
        return x.sum(axes), axes, torch.tensor([[1, 2], [3, 4]]).tolist(), torch.tensor([]).tolist()

    check(fn, X, changed=[(X[0],)])


def test_numbers_that_decide():
    def fn(x):
        rates = [rate.item() for rate in torch.linspace(0, 0.3, 4)]
        parts = [x * rate if rate > 0.15 else x - rate for rate in rates]
        most = max(torch.LongTensor([3, 1, 2]))
        if (torch.tensor([1, 2]) * 2).sum() == 6 and not torch.zeros(1):
            parts.append(x[:, : most - 1])
        return parts, rates, int(torch.tensor(x.shape).prod()), float(torch.ones(3).mean())

    check(fn, X)


def test_sizes_and_bounds():
    def fn(x):
        lengths = torch.tensor([2, 1])
        parts = [x[n, : lengths[n]] for n in range(2)]
        return parts, x.reshape(int(lengths.cumsum(0)[-1]), -1), x[..., lengths[1] :: lengths[0]]

    check(fn, X)


def sum_over(x, axes):
    for axis in sorted(np.unique(axes).astype(int), reverse=True):
        x = x.sum(int(axis))
    return x


def test_arrays():
    def fn(x):
        sizes = np.array([2, 3]) * 2
        return sum_over(x, (1, 0, 1)), x.new_zeros(sizes[0], int(sizes[1])), sizes.tolist(), sizes

    check(fn, X)


def test_what_was_written_into():
    """The numbers are those of the moment."""

    def fn(x):
        counts = torch.arange(3)
        first = counts.tolist()
        view, other = counts[1:], torch.arange(3)
        view += x[0, 0, :2].long() * 0 + 5
        sizes = np.array([1, 2])
        sizes[0] = 7
        other[0] = 2
        return x + 1, first, counts.tolist(), sizes.tolist(), other.tolist(), bool(counts[1] == 6), int(sizes[0])

    check(fn, X, graphs=ANY, breaks=None)


def test_memory_of_another():
    def fn(x):
        counts = torch.arange(3)
        counts.data = x[0, 0, :3].long()
        return x + 1, counts.tolist(), int(counts[1])

    check(fn, X, graphs=ANY, breaks=None, changed=[(X + 1,)])


def test_what_depends_on_an_input_is_none():
    def fn(x):
        count = (torch.arange(3) + x[0, 0, :3].long()).sum()
        return x + 1, "many" if count > 6 else "few", int(count)

    check(fn, X, graphs=ANY, breaks=None, changed=[(X + 3,), (X - 9,)])


def test_random_and_unset_numbers_are_none():
    def fn(x):
        drawn = torch.rand(3) * torch.ones(3)
        return x + 1, drawn.tolist(), bool(drawn[0] > 0.5), torch.randint(9, (2,)).sum().item()

    check(fn, X, graphs=ANY, breaks=None)


def test_another_default():
    def fn(x, dtype):
        numbers = torch.linspace(0, 1, 4)
        torch.set_default_dtype(dtype)
        more = torch.linspace(0, 1, 4)
        numbers, more = numbers[1].item(), more[1].item()
        torch.set_default_dtype(torch.float32)
        return x + numbers, numbers, more

    check(fn, X, torch.float64, graphs=ANY, breaks=None)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_no_int(number):
    check(lambda x: (x + 1, int(torch.full((2,), number)[0])), X, raises=(OverflowError, ValueError))


def test_too_many_numbers():
    check(lambda x: (x + 1, torch.arange(3).item()), X, raises=RuntimeError)
    check(lambda x: (x + 1, bool(torch.arange(3))), X, raises=RuntimeError)


def test_loops_over_numbers():
    def fn(x):
        n = torch.tensor(0) + 0
        while n < 5:
            x, n = x * 2, n + 1
        return x, n

    check(fn, X, graphs=ANY)


def test_numbers_that_come_together_often():
    """Each step doubles the ways to the first one."""

    def fn(x):
        numbers = torch.arange(3)
        for _ in range(15):
            numbers = (numbers + 1) // 2 + numbers // 3
        return x + 1, numbers.tolist()

    check(fn, X)


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, rate):
        total = 0
        for number in range(20):
            total += number
        x = self.linear(x) + total
        return x * rate if rate.item() > 0.15 else x - 1


class Stack(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(Scaled() for _ in range(5))

    def forward(self, x):
        for layer, rate in zip(self.layers, torch.linspace(0, 0.3, 5)):
            x = layer(x, rate)
        return x


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_layers_that_are_given_other_numbers(backend):
    net = Stack().eval()
    optimized = framejit.optimize(net, backend=backend)
    with torch.no_grad():
        for scale in (1, 2):
            assert_same(optimized(X * scale), net(X * scale), atol=1e-3, rtol=1e-4)
