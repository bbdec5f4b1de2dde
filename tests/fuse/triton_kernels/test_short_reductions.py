"""Short reductions over columns are written out: their kernels have no loop, and programs with many elements."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")
from framejit.backends.fuse.loop_ir.expr import Expr, op, reduce, scan  # noqa: E402
from framejit.backends.fuse.loop_ir.index import Var  # noqa: E402
from framejit.backends.fuse.loop_ir.nodes import Kernel  # noqa: E402
from framejit.backends.fuse.schedule.written_out import MOST_NODES, MOST_TURNS, written_out  # noqa: E402
from framejit.backends.fuse.triton.tiles.blocks import candidates  # noqa: E402
from framejit.backends.fuse.triton.tiles.tile import Tile  # noqa: E402
from tests.fuse.triton_kernels.triton_cases import Build  # noqa: E402

MANY = 32768


def kernel(value: Callable[[Expr], Expr], length: int, in_reduction: bool = False) -> Kernel:
    """A value made of columns of this length, 64 of which lie side by side."""
    i, k, j = Var("i", MANY), Var("k", length), Var("j", 64)
    b = Build((i, j), (k,))
    made = value(b.read("x", torch.empty(MANY, length, 64, device="meta"), i, k, j))
    indices = (i, k, j) if in_reduction else (i, j)
    expected = torch.empty([index.size for index in indices], dtype=made.dtype, device="meta")
    b.write("o", expected, made, *indices, in_reduction=in_reduction)
    return b.case("columns").kernel


def summed(x: Expr) -> Expr:
    return reduce("sum", x)


def long_sum(x: Expr) -> Expr:
    for _ in range(MOST_NODES // MOST_TURNS):
        x = op("sin", x)
    return reduce("sum", x)


@pytest.mark.parametrize("length", [1, 4, MOST_TURNS])
def test_programs_have_many_elements(length: int) -> None:
    tile = next(candidates(kernel(summed, length)))
    assert isinstance(tile, Tile) and not tile.kernel.reduction and not tile.reduction
    assert math.prod(axis.block for axis in tile.axes) >= 1024


@pytest.mark.parametrize(
    ("value", "length", "in_reduction"),
    [
        (summed, MOST_TURNS + 1, False),
        (long_sum, MOST_TURNS, False),
        (lambda x: reduce("argmax", x), 4, False),
        (lambda x: scan("sum", x), 4, True),
        (lambda x: op("sub", x, reduce("max", x)), 4, True),
    ],
    ids=["long", "much to compute", "places", "scans", "stores in turns"],
)
def test_others_stay_loops(value: Callable[[Expr], Expr], length: int, in_reduction: bool) -> None:
    assert written_out(kernel(value, length, in_reduction)) is None
