"""Scans: running sums, products, extremes and log-sums, fused with what goes before and after, compared with eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit
from framejit.backends.fuse.loop_ir.expr import const, load, op, reduce, scan
from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.loop_ir.nodes import Buffer, ComputeNode, Store
from framejit.backends.fuse.loop_ir.rules import verify
from framejit.errors import InternalError
from tests.fuse.lowering import lowering_checks
from tests.fuse.lowering.plan_checks import check, planned

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SHAPES = (
    ((33, 70), -1), ((33, 70), 0), ((5, 7, 40), 1), ((129,), 0), ((3, 50, 2), 1), ((2, 3), -1), ((4, 1, 5), 1),
    ((17, 64), 1), ((1, 300), -1),
)


def made(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor whose running sums are exact in every dtype, and have ties."""
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    low = 0 if dtype == torch.uint8 else -3
    return torch.randint(low, 4, shape).to(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
@pytest.mark.parametrize("shape, dim", SHAPES)
def test_sums_and_extremes_are_eagers(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    def f(x):
        return x.cumsum(dim), x.cummax(dim), x.cummin(dim)

    (graph,) = check(f, made(shape, dtype), externs=0, atol=0.0, rtol=0.0)
    assert len(graph.kernels) == 1 or shape[dim] == 1


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("shape, dim", SHAPES[:5])
def test_products_are_eagers(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    x = made(shape, dtype)
    check(lambda x: x.cumprod(dim), torch.where(x == 0, 1, x), externs=0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape, dim", SHAPES[:4])
def test_log_sums_are_eagers(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    few = math.prod(shape) < 4 * shape[dim]  # ATen's is as quick then
    check(lambda x: x.logcumsumexp(dim), (torch.randn(shape) * 9).to(dtype), externs=int(few))


SPECIAL = torch.tensor([
    [1.0, math.nan, 2.0, math.inf], [math.inf, -math.inf, 1.0, 2.0], [-math.inf, -math.inf, 0.0, -0.0],
    [-0.0, 0.0, -0.0, math.nan],
])


def signs_of_numbers(x: torch.Tensor) -> torch.Tensor:
    """Of the product of two nans x86 keeps the first one's sign, and compilers order the operands as they like."""
    return x.signbit() & ~x.isnan()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_infinities_and_zeros(dtype: torch.dtype, dim: int, wide: bool) -> None:
    def f(x):
        (high, where), (low, there) = x.cummax(dim), x.cummin(dim)
        return (
            x.cumsum(dim), x.cumprod(dim), x.logcumsumexp(dim), high, where, low, there, high.signbit(),
            low.signbit(), signs_of_numbers(x.cumprod(dim)),
        )

    x = SPECIAL.to(dtype)
    check(f, x.repeat(3, 11) if wide else x, externs=0)


def test_ties_and_nans_are_at_their_last_place() -> None:
    x = torch.tensor([2.0, 2.0, 1.0, 2.0, math.nan, 5.0, math.nan] * 9)
    values, places = framejit.optimize(lambda x: x.cummax(0))(x)
    assert places[:7].tolist() == [0, 1, 1, 3, 4, 4, 6] and values.isnan()[4:].all()
    check(lambda x: (x.cummax(0), x.cummin(0)), x, externs=0)
    check(lambda x: x.cummax(1), torch.full((4, 40), -math.inf), externs=0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_integers_wrap_around(dtype: torch.dtype) -> None:
    x = torch.full((3, 50), torch.iinfo(dtype).max, dtype=dtype)
    check(
        lambda x: (x.cumsum(1), x.cumprod(1), x.cumsum(1, dtype=dtype), x.cumprod(0, dtype=torch.int16)), x, externs=0
    )


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("target", [torch.float64, torch.float32, torch.float16, torch.int64, torch.int16])
def test_the_dtype_asked_for(source: torch.dtype, target: torch.dtype) -> None:
    x = torch.randn(6, 33).mul(2.7).to(source)
    check(lambda x: (x.cumsum(1, dtype=target), x.cumprod(0, dtype=target)), x, externs=0)


@pytest.mark.parametrize(
    "shape, dim", [((), 0), ((), -1), ((0,), 0), ((3, 0), 0), ((3, 0), 1), ((0, 4), -2), ((1,), 0), ((2, 1), -1)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
def test_nothing_and_single_elements(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    x = torch.ones(shape).to(dtype)
    check(lambda x: (x.cumsum(dim), x.cummax(dim), x.cummin(dim)), x, externs=0)
    if dtype.is_floating_point:
        check(lambda x: (x.cumprod(dim), x.logcumsumexp(dim)), x, externs=0)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[::2, 1::3],
        lambda x: x[:, :1].expand(-1, 40),
        lambda x: x[0].expand(5, -1),
        lambda x: x.flip(1),
        lambda x: x.unfold(1, 5, 2),
        lambda x: x.t().unsqueeze(1),
    ],
)
def test_views(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    check(lambda x: [view(x).cumsum(dim) for dim in range(-2, 2)], torch.randint(-4, 5, (30, 41)).float(), externs=0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [0, 1])
def test_as_exact_as_eager(dtype: torch.dtype, dim: int) -> None:
    x = torch.randn(300, 301, dtype=torch.float64).to(dtype)
    for name in ("cumsum", "logcumsumexp"):
        compiled, _ = planned(lambda x, name=name: getattr(x, name)(dim))
        exact = getattr(x.double(), name)(dim)
        mine, theirs = (result.double() for result in (compiled(x), getattr(x, name)(dim)))
        assert (mine - exact).abs().max() <= (theirs - exact).abs().max() * 1.01 + (
            1e-14 if dtype == torch.float64 else 0.0
        ), name
        assert name != "cumsum" or dtype != torch.float64 or torch.equal(mine, theirs)


def position_ids(mask):
    return (mask.cumsum(-1) - 1) * mask


def nucleus(logits):
    p = logits.softmax(-1)
    return torch.where(p.cumsum(-1) - p > 0.9, 0.0, p)


def nucleus_of_sorted(logits):
    return (logits.cumsum(-1) > 0.9).sum(-1)


def normalised(x):
    total = (x.square() + 1).cumsum(1)
    return total / total.amax(1, keepdim=True)


def twice(x):
    return (x * 2).cumsum(1).abs().cumsum(1) + 1


def through_columns(x):
    return (x + 1).cumsum(0).sin() * x


def extremes(x):
    values, places = (x * 2).cummax(-1)
    return values + 1, places * 2


@pytest.mark.parametrize("f", [position_ids, nucleus, nucleus_of_sorted, normalised, twice, through_columns, extremes])
@pytest.mark.parametrize("sizes", [(16, 100), (3, 4, 128)])
def test_all_of_it_is_one_kernel(f: Callable[..., Any], sizes: tuple[int, ...]) -> None:
    x = torch.randint(0, 2, sizes) if f is position_ids else torch.randn(sizes)
    (graph,) = check(f, x, externs=0)
    assert len(graph.kernels) == 1, [kernel.name for kernel in graph.kernels]


def test_inspect_tells_that_the_scan_is_fused() -> None:
    compiled = framejit.optimize(position_ids)
    mask = torch.randint(0, 2, (64, 512))
    assert torch.equal(compiled(mask), position_ids(mask))
    (graph,) = framejit.inspect(compiled).graphs
    assert len(graph.kernels) == 1 and not graph.externs and "cumsum" in graph.kernels[0].name


def test_a_scan_is_not_done_in_the_order_of_another_reduction() -> None:
    """Both go over all of `x`, and memory's order is not that of the flattened elements."""

    def f(x):
        flat = x.t().reshape(-1)
        return x.sum(), flat.cumsum(0), x.t().argmax(), flat.cummax(0)

    check(f, torch.randint(0, 50, (12, 20)).float())


def test_what_reads_other_turns_is_a_kernel_of_its_own() -> None:
    def f(x):
        total = x.cumsum(1)
        return total / total[:, -1:], total[:, 1:] - total[:, :-1], total.flip(1), total.cumsum(0)

    check(f, torch.rand(40, 40) + 1, externs=0)


def test_under_a_mask_all_elements_are_scanned() -> None:
    def f(x, y):
        return (
            torch.where(y > 0, x.cumsum(1), -1.0),
            torch.nn.functional.pad(x.cumsum(1), (2, 3)),
            torch.cat([x.cumsum(1), y.cumprod(1)], 1).relu(),
        )

    check(f, torch.randn(9, 33), torch.randn(9, 33), externs=0)


def test_as_indices() -> None:
    def f(x, mask):
        return x[mask.cumsum(0) - 1], x[mask.cummax(0).indices] * 2

    check(f, torch.randn(50, 3), torch.ones(50, dtype=torch.int64))


def test_in_place_and_into_out() -> None:
    def f(x, y, out):
        x.cumsum_(1)
        y[:, 1:].mul_(2).cumprod_(0)
        torch.cumsum(x, 0, out=out)
        return x + 1, y, out

    check(f, torch.randint(-3, 4, (20, 33)).float(), torch.randint(1, 3, (8, 6)).float(), torch.empty(20, 33))


def test_mutation_afterwards() -> None:
    def f(x):
        total = (x + 1).cumsum(0)
        x.zero_()
        total[0] = 7
        return total, total.cumsum(0)

    check(f, torch.randn(10, 5), externs=2)


def test_lowered_loops_say_what_eager_does() -> None:
    for dim in (0, 1, 2):
        lowering_checks.check(
            lambda x, dim=dim: (x.cumsum(dim), x.cummax(dim), x.logcumsumexp(dim)),
            torch.randn(4, 9, 6, dtype=torch.float64),
        )


def test_a_single_long_row_on_a_gpu_is_atens() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from framejit.backends.fuse.lowering.builder import Builder
    from framejit.backends.fuse.lowering.lowered_tensor import Tensor
    from framejit.backends.fuse.lowering.operators.scans import _cummax, _cumsum, _logcumsumexp

    for sizes, fused in (
        ((1 << 20,), (False, False, True)), ((1 << 14,), (True, False, True)), ((1, 1 << 12), (True,) * 3),
        ((2, 1 << 17), (True,) * 3),
    ):
        with FakeTensorMode():
            fake, places = torch.empty(sizes, device="cuda"), torch.empty(sizes, device="cuda", dtype=torch.int64)
        for lowering, results, is_fused in zip((_cumsum, _logcumsumexp, _cummax), (fake, fake, (fake, places)), fused):
            b = Builder()
            x = Tensor.of(b.held(b.buffer(sizes, fake.stride(), fake.dtype, fake.device, input=0)))
            assert (lowering(b, results, x, -1) is not NotImplemented) == is_fused


def _node(value: Any, in_reduction: bool = True, loops: int = 1) -> tuple[list[ComputeNode], dict[str, Buffer]]:
    i, j = Var("i", 4), Var("j", 6)
    device = torch.device("cpu")
    buffers = {
        "x": Buffer("x", (4, 6), (6, 1), torch.float32, device, input=0),
        "o": Buffer("o", (4, 6), (6, 1), value.dtype, device),
    }
    parallel, innermost = ((i,), (j,)) if loops else ((i, j), ())
    index = Index.of(i) * 6 + (j if in_reduction else 0)
    return [ComputeNode(parallel, innermost, [Store("o", index, value, in_reduction and bool(loops))], device)], buffers


def test_the_rules_of_scans() -> None:
    x = load("x", Index.of(Var("i", 4)) * 6 + Var("j", 6), torch.float32)
    verify(*_node(scan("sum", x)), after="test")
    verify(*_node(reduce("max", scan("sum", x)), in_reduction=False), after="test")
    with pytest.raises(InternalError, match="does not have"):
        verify(*_node(scan("sum", x), in_reduction=False), after="test")
    with pytest.raises(InternalError, match="none is a reduction"):
        verify(*_node(scan("sum", x), loops=0), after="test")
    with pytest.raises(InternalError, match="no such scan"):
        verify(*_node(scan("max", op("lt", x, const(0.0, torch.float32)))), after="test")
    with pytest.raises(InternalError, match="no such scan"):
        verify(*_node(scan("logsumexp", const(1, torch.int64))), after="test")
    with pytest.raises(ValueError, match="no scan"):
        scan("any", x)
