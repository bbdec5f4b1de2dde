"""Tiles of matrix products with few rows: each program takes all rows, and a few columns, of which it reads the matrix
in long pieces.

What bounds such a product is reading the matrix once. So there are at least as many programs as keep each
multiprocessor's share of memory busy, each with as much on its way as its registers hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from framejit.backends.fuse.loop_ir.expr import COMPUTE, Expr
from framejit.backends.fuse.loop_ir.index import Var
from framejit.backends.fuse.loop_ir.nodes import Kernel
from framejit.backends.fuse.loop_ir.products import sums_of_products
from framejit.backends.fuse.triton.accesses import accesses
from framejit.backends.fuse.triton.block_limits import GpuLimits
from framejit.backends.fuse.triton.block_sizes import power_above, power_below, within
from framejit.backends.fuse.triton.tile import Axis, Tile

ROWS: Final = 16
"""The most rows that a program takes."""
LEAST_ROWS: Final = 8
"""What tensor cores multiply at least; fewer are filled up with zeros."""


@dataclass(frozen=True)
class ProductLoops:
    """The loops of a product by what they move."""

    both: tuple[Var, ...]
    """Batches: the matrix and the rows."""
    rows: tuple[Var, ...]
    columns: tuple[Var, ...]
    """The matrix only."""
    inner: tuple[Var, ...]
    matrices: int
    """How many matrices are read."""
    itemsize: int
    """Bytes of an element of the largest of them."""
    is_narrow: bool
    """Whether tensor cores can multiply what is multiplied."""


def product_loops(kernel: Kernel) -> ProductLoops | None:
    """The loops of a kernel, if all its reductions are sums over products of an element of a matrix, whose rows lie in
    one piece, and one of few rows that all columns share."""
    sums = sums_of_products(kernel)
    if not sums:
        return None
    parallel = tuple(var for var in kernel.parallel if var.size != 1)
    reduction = tuple(var for var in kernel.reduction if var.size != 1)
    within_sums = [access for access in accesses(kernel) if access.index.vars() & set(reduction)]
    matrix = max(within_sums, key=lambda access: access.bytes, default=None)
    if matrix is None or matrix.fast is None or matrix.fast not in reduction:
        return None
    of_matrix = matrix.index.vars()
    moved_by = {var: [access for access in within_sums if var in access.index.vars()] for var in parallel}
    columns = tuple(
        var for var in parallel
        if var in of_matrix and any(var not in access.index.vars() for access in within_sums)
    )
    rows = tuple(var for var in parallel if var not in of_matrix)
    both = tuple(var for var in parallel if var not in rows and var not in columns)
    if not columns or math.prod(var.size for var in rows) > ROWS or not all(moved_by.values()):
        return None
    matrices = sum(access.index.vars().issuperset(columns) for access in within_sums)
    is_narrow = all(_narrow(node.args[0].args) for node in sums)
    return ProductLoops(both, rows, columns, reduction, matrices, matrix.itemsize, is_narrow)


def _narrow(factors: tuple[Expr, ...]) -> bool:
    """Whether one of two factors has been cast from half precision, and the other from the same or from none."""
    dtypes = {factor.args[0].dtype for factor in factors if factor.op == "cast" and factor.args[0].dtype in COMPUTE}
    return len(dtypes) == 1


def product_tile(
    kernel: Kernel, loops: ProductLoops, columns: int, inner: int, warps: int, stages: int = 1, parts: int = 0
) -> Tile:
    """A tile of so many columns and elements of each at a time; with `parts`, for tensor cores."""
    length = math.prod(var.size for var in loops.inner)
    rows = power_above(math.prod(var.size for var in loops.rows))
    axes = [
        Axis("z", loops.both, 1),
        Axis("y", loops.rows, max(LEAST_ROWS, rows) if parts else rows),
        Axis("x", loops.columns, columns if parts else within(columns, math.prod(var.size for var in loops.columns))),
        Axis("r", loops.inner, inner if parts else within(inner, length), True),
    ]
    looped = axes[-1].block < length
    return Tile(
        kernel, tuple(axis for axis in axes if axis.vars or axis.block > 1), warps, looped=looped, hints=not parts,
        stages=stages if looped else 1, parts=parts,
    )


def product_tiles(kernel: Kernel, loops: ProductLoops, limits: GpuLimits) -> Iterator[Tile]:
    """Tiles of a product, the one to take without trying first."""
    length = math.prod(var.size for var in loops.inner)
    rows = math.prod(var.size for var in loops.rows)
    results = math.prod(var.size for var in (*loops.both, *loops.columns))
    by_cores = [
        product_tile(kernel, loops, *shape, parts=4) for shape in ((16, 256, 4, 4), (32, 128, 4, 4)) if loops.is_narrow
    ]
    if rows > 1:
        yield from by_cores
    lanes = 16 // loops.itemsize
    enough = 4 * limits.multiprocessors
    columns = max(1, min(4, power_below(max(1, results // enough)) // loops.matrices))
    for elements, warps in ((8 * 128, 4), (8 * 256, 4), (8 * 256, 8)):
        inner = max(16, elements * lanes // 8 // max(1, power_above(rows) // 2))
        yield product_tile(kernel, loops, columns, power_below(inner), warps)
    if length > 16:
        yield product_tile(kernel, loops, 1, power_below(length), 4)
    if rows == 1:
        yield from by_cores
