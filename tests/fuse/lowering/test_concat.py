"""Concatenation: pieces that are stored by loops of their own, or chosen by the place where they are read, compared
with eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from framejit.backends.fuse.loop_ir.expr import load
from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.loop_ir.nodes import Buffer, ComputeNode, Store
from framejit.backends.fuse.loop_ir.rules import verify
from framejit.errors import InternalError
from tests.fuse.lowering import lowering_checks
from tests.fuse.lowering.lowering_checks import lowered
from tests.fuse.lowering.plan_checks import check, planned

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int8, torch.uint8,
    torch.bool,
)


def made(sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(sizes).to(dtype)
    return torch.rand(sizes) > 0.5 if dtype == torch.bool else torch.randint(0, 100, sizes).to(dtype)


def parts_of(f: Callable[..., Any], *args: Any) -> list[tuple[str, ...]]:
    """For each buffer that is stored in parts, these."""
    return [buffer.parts for buffer in lowered(f, *args).buffers.values() if buffer.parts]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_pieces_of_every_dtype(dtype: torch.dtype, dim: int) -> None:
    sizes = [[40, 48, 64], [40, 48, 64], [40, 48, 64]]
    for length, each in zip((16, 32, 33), sizes):
        each[dim] = length
    a, b, c = (made(tuple(each), dtype) for each in sizes)

    def f(a, b, c):
        return torch.cat([a + a, b, c * 3], dim), torch.stack([a, a.flip(0), a + 1], dim)

    check(f, a, b, c, externs=0)
    if a.numel() > 1 << 15 and a.itemsize > 1:
        assert len(parts_of(f, a, b, c)) == 1 + (dim != -1)


def test_pieces_of_other_dtypes_are_converted() -> None:
    a, b, c = torch.randn(64, 64), torch.randint(0, 9, (64, 64)), torch.rand(64, 64) > 0.5
    check(lambda a, b, c: torch.cat([a * 2, b + 1, c, a.bfloat16()]), a, b, c, externs=0)
    check(lambda a, b: torch.cat([a.half(), a.bfloat16(), b.half() * 2]), a, b, externs=0)


def test_each_piece_is_computed_over_its_own_part() -> None:
    a, b, c = torch.randn(100, 64), torch.randn(100, 128), torch.randn(100, 32)

    def f(a, b, c):
        return torch.cat([F.gelu(a), b.sin(), c.tanh()], 1)

    (parts,) = parts_of(f, a, b, c)
    assert len(parts) == 3
    (graph,) = check(f, a, b, c, externs=0)
    assert len(graph.kernels) == 3 and not any("masked" in kernel.source for kernel in graph.kernels)


def test_equal_pieces_are_stored_by_one_kernel() -> None:
    a, b, c = (torch.randn(64, 32) for _ in range(3))

    def f(a, b, c):
        return torch.cat([F.gelu(a), b.sin(), c + 1], 1)

    assert parts_of(f, a, b, c)
    (graph,) = check(f, a, b, c, externs=0)
    assert len(graph.kernels) == 1 and "masked" not in graph.kernels[0].source
    (graph,) = check(lambda a, b, c: torch.stack([a.exp(), b, c.exp()]), a, b, c, externs=0)
    assert len(graph.kernels) == 1


def test_what_is_made_of_costly_pieces_is_made_piece_by_piece() -> None:
    a, b, bias = torch.randn(100, 64), torch.randn(100, 128), torch.randn(100, 192)

    def f(a, b, bias):
        return (torch.cat([F.gelu(a), b.sin() * 2 + 1], 1) + bias).relu()

    assert len(parts_of(f, a, b, bias)) == 1
    check(f, a, b, bias, externs=0)
    check(lambda a, b, bias: torch.cat([F.gelu(a), b.sin() * 2 + 1], 1) + bias[0], a, b, bias, externs=0)
    check(lambda a, b, bias: torch.cat([F.gelu(a), b.sin() * 2 + 1], 1).t() + bias.t(), a, b, bias, externs=0)


def rotate_half(q, cos, sin):
    one, other = q.chunk(2, -1)
    return q * cos + torch.cat((-other, one), -1) * sin


def test_what_is_consumed_element_by_element_is_not_stored() -> None:
    q, cos, sin = torch.randn(2, 4, 16, 64), torch.randn(16, 64), torch.randn(16, 64)
    assert not parts_of(rotate_half, q, cos, sin)
    (graph,) = check(rotate_half, q, cos, sin, externs=0)
    assert len(graph.kernels) == 1
    (graph,) = check(lambda a, b: torch.cat([a, b], 1).sum(1), torch.randn(50, 64), torch.randn(50, 30), externs=0)
    assert len(graph.kernels) == 1


def test_short_runs_are_chosen_by_place() -> None:
    x = torch.randn(100, 64)
    assert not parts_of(lambda x: torch.stack([x.sin(), x.cos()], -1), x)
    check(lambda x: (torch.stack([x.sin(), x.cos()], -1), torch.cat([x[:, :1], x[:, 3:]], 1)), x, externs=0)


def test_results_of_aten_are_copied() -> None:
    x, w = torch.randn(32, 32), torch.randn(32, 32)
    (graph,) = check(lambda x, w: torch.cat([x @ w, x.sin(), torch.linalg.inv(w) * 2], 1), x, w, atol=1e-3, rtol=1e-3)
    assert len(graph.kernels) <= 2


def test_reductions_in_pieces() -> None:
    def f(x):
        return torch.cat([x.softmax(-1), F.layer_norm(x, (48,)), x.cumsum(-1)], -1), x.sum(-1)

    check(f, torch.randn(40, 48), externs=0)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.cat([x[:0], x, x[:0].sin()]),
        lambda x: torch.cat([x[:0], x[:0]]),
        lambda x: torch.cat([x[:, :0], x[:, :0].exp()], 1),
        lambda x: torch.cat([torch.empty(0), x, torch.empty(0)], 1),
        lambda x: torch.cat([x]),
        lambda x: torch.cat([x, x[:20]], -2),
        lambda x: torch.stack([x[0, 0], x[0, 1].sin()]),
        lambda x: torch.stack([x.sum(), x.mean(), x.max()]),
        lambda x: torch.stack([x[:0], x[:0]], 1),
        lambda x: torch.cat([x.t(), x.t().exp()], 1),
        lambda x: torch.cat([x[:, :1].expand(-1, 40), x[::2].repeat(2, 1)], 1),
        lambda x: torch.cat([x.view(10, 4, 64).permute(0, 2, 1), x.view(10, 4, 64).permute(0, 2, 1).sin()], 1),
        lambda x: torch.cat([x.view(1, 10, 4, 64).to(memory_format=torch.channels_last)] * 2, 1),
        lambda x: torch.cat([torch.cat([x.sin(), x], 1), x.exp(), torch.cat([x, x.cos()], 1)], 1),
        lambda x: torch.cat([torch.cat([x.sin(), x], 0), torch.cat([x, x.cos()], 0)], 1),
    ],
)
def test_shapes_and_strides(f: Callable[..., Any]) -> None:
    check(f, torch.randn(40, 64))


def test_nan_infinities_and_zeros() -> None:
    x = torch.tensor([0.0, -0.0, math.nan, math.inf, -math.inf] * 32)
    check(
        lambda x: (torch.cat([x * 0, x]).signbit(), torch.cat([x, -x, x / x]), torch.cat([x.sin(), x]).isnan()),
        x,
        externs=0,
    )


def test_inputs_are_written_afterwards() -> None:
    def f(a, b):
        joined = torch.cat([a * 2, b])
        a.add_(1)
        b.zero_()
        return joined, a * 1, torch.cat([a, b])

    check(f, torch.randn(40, 64), torch.randn(24, 64), externs=1)


def test_the_result_is_written_afterwards() -> None:
    def f(a, b):
        joined = torch.cat([a.sin(), b.exp()])
        first = joined[:3].clone()
        joined[10:50] = 7
        joined[1] += 1
        whole = torch.cat([a.sin(), b.exp()], 0)
        whole.mul_(2).relu_()
        return joined, first, joined.sum(0), whole

    check(f, torch.randn(40, 64), torch.randn(24, 64), externs=1)  # it counts writes


def test_into_out_and_slices() -> None:
    def f(a, b, out):
        torch.cat([a.sin(), b], out=out)
        a[:24].copy_(torch.cat([b[:12] * 2, b[12:].sin()]))
        return out[30:50] + 1, a

    check(f, torch.randn(40, 64), torch.randn(24, 64), torch.empty(64, 64))


def test_pieces_and_views_of_the_whole_are_returned_too() -> None:
    def f(a, b):
        first = F.gelu(a)
        joined = torch.cat([first, b.sin()])
        return first, joined, joined[:40], joined[40:].sum(), joined.t(), joined[:40] * 2, first.sum()

    # views are made by a call each, so that autograd knows them as views
    check(f, torch.randn(40, 64), torch.randn(40, 64), externs=2)


def test_what_reads_the_whole_waits_for_all_parts() -> None:
    def f(a, b):
        joined = torch.cat([a.sin(), b.exp()], 1)
        return joined.flip(1), joined.sum(0), joined @ joined.t(), torch.cat([joined, joined.cos()])

    check(f, torch.randn(40, 64), torch.randn(40, 64), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_as_exact_as_eager(dtype: torch.dtype) -> None:
    a, b = (torch.randn(64, 64).to(dtype) for _ in range(2))

    def f(a, b):
        return torch.cat([F.gelu(a) * 1.1, b.sin() + a], 1)

    exact = f(a.double(), b.double())
    compiled, _ = planned(f)
    assert (compiled(a, b).double() - exact).abs().max() <= (f(a, b).double() - exact).abs().max()


def test_lowered_loops_say_what_eager_does() -> None:
    lowering_checks.check(
        lambda a, b: (torch.cat([a.sin(), b], 0), torch.cat([a, a.exp()], 1).mul_(2)),
        torch.randn(40, 64),
        torch.randn(24, 64),
    )


def _graph(*parts: tuple[int, int], steps: tuple[int, int] = (6, 1)) -> tuple[list[ComputeNode], dict[str, Buffer]]:
    """Parts of a buffer of 4 x 6: for each its first column and how many it has, stored by loops with the steps
    given."""
    device = torch.device("cpu")
    buffers = {
        "x": Buffer("x", (4, 6), (6, 1), torch.float32, device, input=0),
        "o": Buffer("o", (4, 6), (6, 1), torch.float32, device, parts=tuple(f"o.{n}" for n in range(len(parts)))),
    }
    nodes = []
    for number, (start, length) in enumerate(parts):
        i, j = Var(f"i{number}", 4), Var(f"j{number}", length)
        name = f"o.{number}"
        buffers[name] = Buffer(name, (4, length), (6, 1), torch.float32, device, memory="o", offset=start, whole="o")
        index = Index.of(i) * steps[0] + Index.of(j) * steps[1] + start
        nodes.append(ComputeNode((i, j), (), [Store(name, index, load("x", index, torch.float32))], device))
    return nodes, buffers


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_some_rows_of_a_norm_or_softmax_beside_others(batch: int, kept: bool) -> None:
    """What a row was reduced to is wanted where a condition on the row holds."""
    first, x, weight = torch.randn(batch, 1, 32), torch.randn(batch, 5, 32), torch.randn(32)

    def normed(first, x, weight):
        y = F.layer_norm(x + 1, (32,), weight)
        z = torch.cat((first, y[:, 1:]), 1) * 2
        return (y.sin(), z) if kept else z

    def weights(first, x, weight):
        y = (x * 3).softmax(-1)
        z = F.pad(y[:, 2:], (0, 0, 2, 0)), torch.cat((first.expand(-1, 2, -1), y[:, 2:]), 1)
        return (y, *z) if kept else z

    def again(first, x, weight):
        y = (x * 3).softmax(-1)
        z = F.layer_norm(torch.cat((first, y[:, 1:]), 1), (32,), weight)
        return torch.cat((y[:, :1], z[:, 1:]), 1)

    for f in (normed, weights, again):
        check(f, first, x, weight, externs=0)


def test_the_rules_of_parts() -> None:
    verify(*_graph((0, 2), (2, 4)), after="test")
    for wrong in (((0, 2), (3, 3)), ((0, 3), (2, 4)), ((2, 4), (0, 2)), ((0, 2), (2, 3)), ((1, 2), (3, 3))):
        with pytest.raises(InternalError, match="parts of"):
            verify(*_graph(*wrong), after="test")
    with pytest.raises(InternalError, match="each of its elements once"):
        verify(*_graph((0, 2), (2, 4), steps=(6, 0)), after="test")
    nodes, buffers = _graph((0, 2), (2, 4))
    with pytest.raises(InternalError, match="written twice"):
        verify([*nodes, nodes[0]], buffers, after="test")
    i = Var("i", 24)
    store = Store("o", Index.of(i), load("x", Index.of(i), torch.float32))
    with pytest.raises(InternalError, match="as a whole"):
        verify([ComputeNode((i,), (), [store], torch.device("cpu"))], buffers, after="test")
    buffers["y"] = Buffer("y", (24,), (1,), torch.float32, torch.device("cpu"))
    reader = ComputeNode(
        (i,), (), [Store("y", Index.of(i), load("o", Index.of(i), torch.float32))], torch.device("cpu")
    )
    verify([*nodes, reader], buffers, after="test")
    with pytest.raises(InternalError, match="before anything wrote it"):
        verify([nodes[0], reader, nodes[1]], buffers, after="test")
    with pytest.raises(InternalError, match="before anything wrote it"):
        verify(
            [
                nodes[0],
                ComputeNode((*nodes[1].parallel, i), (), [*nodes[1].stores, *reader.stores], torch.device("cpu")),
            ],
            buffers,
            after="test",
        )
