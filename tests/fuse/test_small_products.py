"""Small matrix products on CPUs are kernels of ours, forward and backward, and take along what is done behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from framejit.backends.fuse.llvm.products import convolution_tile

pytestmark = pytest.mark.skipif(
    not convolution_tile.channel_block(48), reason="products are a library's on this processor"
)

PRODUCTS = ("linear", "addmm", "mm", "matmul", "bmm", "mv", "addmv")


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with framejit.config.patch(cache_dir=str(tmp_path / "cache")):
        yield


def linears(fast: object) -> int:
    names = (kernel.name for graph in framejit.inspect(fast).graphs for kernel in graph.kernels)
    return sum(name.startswith("linear") for name in names)


def library_products(fast: object) -> list[str]:
    names = (name.partition(".")[0] for graph in framejit.inspect(fast).graphs for name in graph.externs)
    return [name for name in names if name in PRODUCTS]


def assert_right(f: Callable[..., Any], fast: Callable[..., Any], *given: torch.Tensor) -> None:
    """That a result lies as eager's does, is as exact, and holds what is no number where eager's does."""
    with torch.no_grad():
        got, expected = fast(*(x.clone() for x in given)), f(*(x.clone() for x in given))
        exact = f(*(x.double() for x in given))
    assert (got.shape, got.stride(), got.dtype) == (expected.shape, expected.stride(), expected.dtype)
    assert torch.equal(got.isnan(), expected.isnan()) and torch.equal(got.isinf(), expected.isinf())
    finite = exact.isfinite() & expected.isfinite()
    if finite.any():
        error, eagers = (float((each.double() - exact)[finite].abs().mean()) for each in (got, expected))
        assert error <= 2 * eagers + 1e-7 * float(exact[finite].abs().mean()), (error, eagers)


OURS: dict[str, tuple[Callable[..., torch.Tensor], list[tuple[int, ...]]]] = {
    "mm": (torch.mm, [(12, 32), (32, 24)]),
    "one column": (torch.mm, [(12, 32), (32, 1)]),
    "three columns": (torch.mm, [(12, 32), (32, 3)]),
    "odd sizes": (torch.mm, [(13, 31), (31, 29)]),
    "one product each": (torch.mm, [(13, 1), (1, 29)]),
    "one row": (torch.mm, [(1, 32), (32, 24)]),
    "one row of five columns": (F.linear, [(1, 32), (5, 32), (5,)]),
    "a vector": (torch.matmul, [(32,), (32, 24)]),
    "a vector to three columns": (F.linear, [(64,), (3, 64), (3,)]),
    "two rows": (torch.mm, [(2, 64), (64, 64)]),
    "many rows": (torch.mm, [(1000, 8), (8, 8)]),
    "long sums": (torch.mm, [(4, 1021), (1021, 16)]),
    "matmul of sequences": (torch.matmul, [(3, 5, 32), (32, 20)]),
    "matmul of four dimensions": (torch.matmul, [(2, 3, 5, 32), (32, 20)]),
    "linear": (F.linear, [(12, 32), (24, 32), (24,)]),
    "linear to ten": (F.linear, [(12, 32), (10, 32), (10,)]),
    "linear without bias": (F.linear, [(12, 32), (24, 32)]),
    "linear of sequences": (F.linear, [(2, 6, 32), (24, 32), (24,)]),
    "addmm": (torch.addmm, [(24,), (12, 32), (32, 24)]),
    "addmm to five": (torch.addmm, [(5,), (12, 32), (32, 5)]),
    "both turned around": (lambda a, b: a.t() @ b.t(), [(32, 12), (24, 32)]),
    "of parts": (lambda a, b: a[:, 2:34] @ b[1:33, ::2], [(12, 40), (40, 48)]),
    "of every other row": (lambda a, b: a[::2] @ b, [(12, 32), (32, 24)]),
    "of a repeated row": (lambda a, b: a[:1].expand(6, 32) @ b, [(12, 32), (32, 24)]),
    "of computed ones": (lambda a, b: (a.tanh() * 2) @ (b + 1).relu(), [(12, 32), (32, 24)]),
    "with itself": (lambda a: a @ a.t(), [(12, 32)]),
    "with what comes behind": (lambda a, b, c: F.gelu(a @ b) * c, [(12, 32), (32, 24), (12, 24)]),
    "of ten, with what comes behind": (lambda a, b, c: (a @ b).relu() + c, [(12, 32), (32, 10), (12, 10)]),
    "turned around at last": (lambda a, b: (a @ b).t().contiguous(), [(12, 32), (32, 10)]),
    "added up": (lambda a, b: (a @ b).sum(0), [(12, 32), (32, 10)]),
    "softmax": (lambda a, b: (a @ b).softmax(-1), [(12, 32), (32, 10)]),
}


@pytest.mark.parametrize("name", OURS)
def test_products(name):
    f, sizes = OURS[name]
    fast = framejit.optimize(f if name not in ("mm", "matmul") else lambda *given: f(*given), fullgraph=True)
    for _ in range(3):
        assert_right(f, fast, *(torch.randn(size) for size in sizes))
    assert linears(fast) and not library_products(fast)


OTHERS: dict[str, tuple[Callable[..., torch.Tensor], list[tuple[int, ...]]]] = {
    "one row and a large matrix": (torch.matmul, [(1, 128), (128, 96)]),
    "vectors": (torch.matmul, [(12, 32), (32,)]),
    "large": (torch.mm, [(64, 128), (128, 128)]),
    "a large matrix": (torch.mm, [(2, 256), (256, 128)]),
    "batches": (torch.bmm, [(3, 4, 8), (3, 8, 8)]),
    "a bias of rows": (torch.addmm, [(12, 24), (12, 32), (32, 24)]),
    "a bias of one": (torch.addmm, [(1,), (12, 32), (32, 24)]),
    "scaled": (lambda c, a, b: torch.addmm(c, a, b, beta=2, alpha=3), [(24,), (12, 32), (32, 24)]),
    "no rows": (torch.mm, [(0, 32), (32, 24)]),
    "no columns": (torch.mm, [(12, 32), (32, 0)]),
    "nothing to add up": (torch.mm, [(12, 0), (0, 24)]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_products(name):
    f, sizes = OTHERS[name]
    fast = framejit.optimize(lambda *given: f(*given) + 1, fullgraph=True)
    for _ in range(3):
        assert_right(lambda *given: f(*given) + 1, fast, *(torch.randn(size) for size in sizes))
    assert not linears(fast)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.complex64])
def test_other_dtypes(dtype):
    fast = framejit.optimize(lambda a, b: (a @ b) * 2, fullgraph=True)
    a, b = ((torch.randn(size) * 3).to(dtype) for size in ((12, 32), (32, 24)))
    for _ in range(2):
        torch.testing.assert_close(fast(a, b), (a @ b) * 2)
    assert not linears(fast)


@pytest.mark.parametrize("columns", [3, 8, 24])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e38])
def test_what_is_no_number(value, columns):
    def f(a, b):
        return (a @ b).relu()

    fast = framejit.optimize(f, fullgraph=True)
    for where in range(2):
        given = [torch.randn(12, 32), torch.randn(32, columns)]
        given[where].view(-1)[::37] = value
        assert_right(f, fast, *given)
    assert linears(fast)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(7, 33), nn.Tanh(), nn.Linear(33, 24), nn.LayerNorm(24), nn.GELU(), nn.Dropout(0.0), nn.Linear(24, 3)
    )


def test_gradients():
    mine, other = network(), network()
    fast = framejit.optimize(lambda x: mine(x).square().mean(), fullgraph=True)
    optimisers = [torch.optim.AdamW(each.parameters(), 0.01) for each in (mine, other)]
    for _ in range(4):
        x = torch.randn(20, 7)
        xs = [x.clone().requires_grad_() for _ in range(2)]
        losses = [fast(xs[0]), other(xs[1]).square().mean()]
        for loss, optimiser in zip(losses, optimisers):
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        torch.testing.assert_close(losses[0], losses[1])
        torch.testing.assert_close(xs[0].grad, xs[1].grad)
        torch.testing.assert_close([*mine.parameters()], [*other.parameters()], rtol=1e-4, atol=1e-5)
    assert linears(fast) == 3 + 6 and not library_products(fast)


def test_a_whole_step():
    mine, other = network(), network()

    def stepping(module):
        optimiser = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)

        def step(x):
            optimiser.zero_grad()
            loss = module(x).square().mean()
            loss.backward()
            optimiser.step()
            return loss.detach()

        return step

    fast, plain = framejit.optimize(stepping(mine)), stepping(other)
    for _ in range(4):
        x = torch.randn(20, 7)
        torch.testing.assert_close(fast(x), plain(x))
        torch.testing.assert_close([*mine.parameters()], [*other.parameters()], rtol=1e-4, atol=1e-5)


def test_gradients_of_gradients():
    def penalty(module, x):
        x = x.requires_grad_()
        (found,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        return found.square().sum()

    mine, other = network(), network()
    fast = framejit.optimize(lambda x: penalty(mine, x))
    for _ in range(2):
        x = torch.randn(20, 7)
        losses = [fast(x.clone()), penalty(other, x.clone())]
        for loss in losses:
            loss.backward()
        torch.testing.assert_close(losses[0], losses[1])
    for one, two in zip(mine.parameters(), other.parameters()):
        torch.testing.assert_close(one.grad, two.grad)


def test_operands_that_are_written():
    """A product reads them as they are at its place in the program."""

    def f(x, weight):
        first = x @ weight
        weight.mul_(2)
        second = x @ weight
        x += second[:, :16]
        return first, x @ weight

    fast = framejit.optimize(f, fullgraph=True)
    for _ in range(2):
        x, weight = torch.randn(4, 16), torch.randn(16, 16) / 8
        given, others = (x.clone(), weight.clone()), (x.clone(), weight.clone())
        torch.testing.assert_close(fast(*given), f(*others))
        torch.testing.assert_close(given, others)
    assert linears(fast) == 3


def test_results_that_are_written():
    def f(x, weight):
        y = x @ weight
        view = y[1:3]
        y[0] = 1
        view.mul_(2)
        return y, view, y.t()

    fast = framejit.optimize(f, fullgraph=True)
    for columns in (16, 10):
        x, weight = torch.randn(4, 16), torch.randn(16, columns)
        got, expected = fast(x, weight), f(x, weight)
        torch.testing.assert_close(got, expected)
        assert [each.stride() for each in got] == [each.stride() for each in expected]
        assert got[0].data_ptr() + 4 * columns == got[1].data_ptr()


class Open(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 24))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x @ self.weight).relu(), x.view(-1, 2, 16)[:, :1] @ self.weight[:, :3]


@pytest.mark.parametrize("dynamic", [True, None])
def test_numbers_of_rows_that_are_left_open(dynamic):
    module = Open().requires_grad_(False)
    fast = framejit.optimize(module, fullgraph=True, dynamic=dynamic)
    for rows in (4, 8, 32, 2, 6, 12, 100, 0):
        x = torch.randn(rows, 16)
        torch.testing.assert_close(fast(x), module(x))
    assert linears(fast) >= 2
    assert all(len(graph.kernels) <= 3 for graph in framejit.inspect(fast).graphs)


@pytest.mark.parametrize("dynamic", [True, None])
def test_gradients_with_numbers_of_rows_that_are_left_open(dynamic):
    mine, other = network(), network()
    fast = framejit.optimize(lambda x: mine(x).square().mean(), fullgraph=True, dynamic=dynamic)
    for rows in (20, 9, 33, 5, 2, 64, 300):
        xs = [torch.randn(rows, 7).requires_grad_()]
        xs.append(xs[0].detach().clone().requires_grad_())
        mine.zero_grad()
        other.zero_grad()
        losses = [fast(xs[0]), other(xs[1]).square().mean()]
        for loss in losses:
            loss.backward()
        torch.testing.assert_close(losses[0], losses[1])
        torch.testing.assert_close(xs[0].grad, xs[1].grad)
        mine_grads, other_grads = ([p.grad for p in module.parameters()] for module in (mine, other))
        torch.testing.assert_close(mine_grads, other_grads, rtol=1e-4, atol=1e-6)
    # a sum of an open number of products, for fewer columns than a vector has
    assert linears(fast) >= 8 and set(library_products(fast)) <= {"mm"}


def test_under_autocast():
    module, x = network(), torch.randn(20, 7)
    fast = framejit.optimize(lambda x: module(x), fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        expected = module(x)
        for _ in range(2):
            got = fast(x)
            assert got.dtype == expected.dtype
            torch.testing.assert_close(got, expected, rtol=0.05, atol=0.05)


def test_errors_are_eager_s():
    fast = framejit.optimize(lambda a, b: a @ b)
    with pytest.raises(RuntimeError) as eager:
        torch.randn(4, 16) @ torch.randn(15, 8)
    with pytest.raises(RuntimeError) as ours:
        fast(torch.randn(4, 16), torch.randn(15, 8))
    assert str(ours.value) == str(eager.value)


def test_threads_give_the_same():
    x, weight = torch.randn(512, 16), torch.randn(16, 32)
    before, results = torch.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            results.append(framejit.optimize(lambda a, b: (a @ b).tanh(), fullgraph=True)(x, weight))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
