"""Tiles of matrix products with few rows: each program takes all rows, and a few columns, of which it reads the matrix
in long pieces.

What bounds such a product is reading the matrix once. So there are at least as many programs as keep each
multiprocessor's share of memory busy, each with as much on its way as its registers hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Final

from framejit.backends.fuse.loop_ir.expr import COMPUTE, Expr
from framejit.backends.fuse.loop_ir.index import Var
from framejit.backends.fuse.loop_ir.nodes import Kernel
from framejit.backends.fuse.loop_ir.products import sums_of_products
from framejit.backends.fuse.triton.tiles.accesses import accesses
from framejit.backends.fuse.triton.tiles.block_limits import GpuLimits
from framejit.backends.fuse.triton.tiles.block_sizes import power_above, power_below, within
from framejit.backends.fuse.triton.tiles.tile import Axis, Tile
from framejit.late_dataclass import dataclass

ROWS: Final = 16
"""The most rows that a program takes."""
FEW_ROWS: Final = 2
"""Up to so many rows threads multiply as quickly as tensor cores would."""
WIDE: Final = 4096
"""Columns from which on there are enough programs if each takes many."""
THREAD_BYTES: Final = 32
"""What a thread loads of a matrix at a time: two loads of the widest."""
HELD_BYTES: Final = 8192
"""A row of the matrix that is taken whole."""
HELD_ALONE: Final = 2 * HELD_BYTES
"""A row that is taken whole where a program has nothing else to hold. (A product of 5632 x 2048 within a decoder that
launches overlap in: 17 us less of 779 for 22 of them than in a loop, on an H200.)"""
HELD_PRODUCTS: Final = 1 << 14
"""Products of such a row that a program holds."""
COLUMNS_OF_CORES: Final = 16
"""Columns of a matrix that tensor cores take at least."""
LONG, LONG_STAGES = 4096, 8
"""Elements of a row of the matrix from which on tensor cores are given so many blocks ahead. (8 rows of 5632 x 2048
within a decoder on an H200: 955 us for 966.)"""
SHORT: Final = 256
"""Elements of a row of the matrix of which a program takes many."""
SHORT_ELEMENTS: Final = 1 << 13
"""Products that a program then takes at a time."""
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
    has_norm: bool
    """Whether a row is reduced before it is multiplied."""
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
    has_norm = any(inner.op == "reduce" for node in sums for inner in node.args[0].walk())
    return ProductLoops(both, rows, columns, reduction, matrices, matrix.itemsize, has_norm, is_narrow)


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
        stages=stages if looped else 1, parts=parts, early=not looped and not parts and loops.has_norm,
    )


def product_tiles(kernel: Kernel, loops: ProductLoops, limits: GpuLimits) -> Iterator[Tile]:
    """Tiles of a product, the one to take without trying first. What they are was chosen on an H200 among all of
    `benchmarks/products.py --tune`."""
    by_cores = _by_cores(loops)
    rows = math.prod(var.size for var in loops.rows)
    shapes = [*_by_lanes(loops, rows, limits)]
    if math.prod(var.size for var in loops.inner) <= SHORT:
        shapes = [*_of_short_sums(loops), *shapes]
    elif by_cores and rows > FEW_ROWS:
        shapes = [*_of_few_columns(loops, rows, limits), *by_cores, *shapes]
    elif by_cores:
        shapes += by_cores
    for shape in dict.fromkeys(shapes):
        yield product_tile(kernel, loops, *shape)


def product_shapes(loops: ProductLoops) -> Iterator[tuple[int, int, int, int, int]]:
    """(columns, inner elements, warps, stages, parts) of tiles worth measuring: those that keep registers busy and do
    not overflow them, and for tensor cores those that shared memory holds."""
    rows = power_above(math.prod(var.size for var in loops.rows))
    for columns, inner, warps, stages in product((1, 2, 4, 8), (256, 512, 1024, 2048, 4096), (2, 4, 8), (1, 3)):
        each = columns * inner * rows * loops.matrices // (32 * warps)
        if rows <= 8 and (8 if loops.matrices * rows == 1 else 16) <= each <= (64 if rows == 1 else 128):
            if stages == 1 or (columns, warps) in ((2, 4), (4, 4), (4, 8)):
                yield columns, inner, warps, stages, 0
    for columns, inner, warps, stages in product((16, 32, 64), (64, 128, 256, 512), (4, 8), (3, 5)):
        held = stages * inner * (columns * loops.matrices + max(LEAST_ROWS, rows)) * loops.itemsize
        if not loops.is_narrow or inner < 16 * warps or not 20 << 10 <= held <= 110 << 10:
            continue
        if rows > 1 or (columns, warps) == (16, 4):
            yield columns, inner, warps, stages, warps
            if columns == 64 or warps == 4 and stages == 5:
                yield columns, inner, warps, stages, 1


def _of_short_sums(loops: ProductLoops) -> Iterator[tuple[int, ...]]:
    """Shapes where sums are of few products, as of queries and keys."""
    rows = power_above(math.prod(var.size for var in loops.rows))
    length = power_above(math.prod(var.size for var in loops.inner))
    each = max(1, SHORT_ELEMENTS // (rows * length))
    if loops.is_narrow and rows > FEW_ROWS and length >= 16:
        yield 32, length, 4, 1, 1
        yield 64, length, 4, 1, 1
        yield 16, length, 4, 1, max(1, length // 16)
    yield each, length, 4
    yield max(1, each // 2), length, 4
    yield 2 * each, length, 4


def _of_few_columns(loops: ProductLoops, rows: int, limits: GpuLimits) -> Iterator[tuple[int, ...]]:
    """A shape for so few columns that each had better have a program, and all of its row at a time: with several of
    them most of a GPU would have nothing to do."""
    columns = math.prod(var.size for var in (*loops.both, *loops.columns))
    length = power_above(math.prod(var.size for var in loops.inner))
    is_held = length * loops.itemsize <= HELD_BYTES and power_above(rows) * length <= HELD_PRODUCTS
    if is_held and 4 * columns <= COLUMNS_OF_CORES * limits.multiprocessors:
        yield 1, length, 4


def _by_cores(loops: ProductLoops) -> list[tuple[int, ...]]:
    """Shapes for tensor cores: (columns, inner elements, warps, stages, parts)."""
    if not loops.is_narrow:
        return []
    columns = math.prod(var.size for var in loops.columns)
    stages = LONG_STAGES if math.prod(var.size for var in loops.inner) >= LONG else 5
    usual, wide, joint = (16, 256, 4, stages, 4), (64, 128, 4, 5, 4), (16, 128, 4, 3, 4)
    return [joint, usual] if loops.matrices > 1 else [wide, usual] if columns > WIDE else [usual, joint]


def _by_lanes(loops: ProductLoops, rows: int, limits: GpuLimits) -> Iterator[tuple[int, ...]]:
    """Shapes in which each thread multiplies what it loads: (columns, inner elements, warps)."""
    length = power_above(math.prod(var.size for var in loops.inner))
    results = math.prod(var.size for var in (*loops.both, *loops.columns))
    each = THREAD_BYTES // loops.itemsize
    if rows == 1:
        columns = 2 if loops.matrices > 1 and results >= 16 * limits.multiprocessors else 1
        if length * loops.itemsize <= HELD_BYTES:
            columns = max(columns, min(power_above(results), 64 * each // length))
            if loops.has_norm:  # which is done once for all columns of a program
                yield 4, length, max(1, min(8, 4 * length // (64 * each)))
            yield columns, length, max(1, min(16, columns * length // (32 * each)))
            yield columns, max(16, length // 2), 4
        else:
            if length * loops.itemsize <= HELD_ALONE and loops.matrices == 1 and not loops.has_norm:
                yield 1, length, max(1, length // (64 * each))
            inner = max(16, 128 * each)
            yield columns, inner, 2
            yield columns, inner // 2, 4
        return
    columns = max(1, min(4, power_below(max(1, results // (4 * limits.multiprocessors)))) // loops.matrices)
    inner = max(16, 64 * each // max(1, power_above(rows) // 2))
    yield columns, inner, 4
    yield 1, max(16, inner // 2), 4
