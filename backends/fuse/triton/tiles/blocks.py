"""Which tiles a kernel may have: sizes of blocks, numbers of warps, reductions in one block or in a loop.

How many programs there are, how much of a row one holds and how many threads it has follow from the GPU's limits. The
shapes are rules for GPUs that hide the latency of memory behind some 32 KiB of loads in flight a multiprocessor, with
16 bytes a load and thread.
"""
from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

from framejit.backends.fuse.loop_ir.expr import is_ordered
from framejit.backends.fuse.loop_ir.index import Index, Var, fresh_var
from framejit.backends.fuse.loop_ir.nodes import AttentionKernel, Kernel
from framejit.backends.fuse.schedule.loop_order import substitute
from framejit.backends.fuse.schedule.written_out import written_out
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize, hint, roughly_less
from framejit.backends.fuse.triton.analysis import Analysis
from framejit.backends.fuse.triton.tiles.accesses import Access, accesses
from framejit.backends.fuse.triton.tiles.attention_blocks import AttentionTile, attention_tiles
from framejit.backends.fuse.triton.tiles.block_limits import WITHOUT_A_GPU, GpuLimits
from framejit.backends.fuse.triton.tiles.block_sizes import (
    FEW_ROWS,
    ROWS,
    SMALL_BLOCK,
    is_run_of,
    power_above,
    power_below,
    row_block,
    within,
)
from framejit.backends.fuse.triton.tiles.multiples import assume_multiples, is_multiple
from framejit.backends.fuse.triton.tiles.product_blocks import (
    product_loops,
    product_shapes,
    product_tile,
    product_tiles,
)
from framejit.backends.fuse.triton.tiles.side_by_side import SideBySide, together
from framejit.backends.fuse.triton.tiles.tile import Axis, Tile
from framejit.late_dataclass import dataclass

VECTOR_BYTES: Final = 16
"""Bytes of the widest load that a thread makes."""
SECTOR_BYTES: Final = 32
"""What memory is read in."""
LARGE: Final = 1 << 18
"""Elements from which on it is bandwidth that counts."""
ODD_ROW: Final = 8192
"""Elements of rows from which on one block a row's end, which is not full, costs little."""
SHORT_ROW: Final = 1024
"""Elements of rows up to which it is not worth asking how many threads should take a row."""

ONLINE_SHAPES: Final = ((4, 4), (8, 2), (8, 4), (16, 2), (4, 8), (16, 4))
"""Numbers of warps, and of runs of 8 elements that each thread takes at a time."""
ONLINE_STORING_SHAPES: Final = ((16, 4), (16, 2), (8, 4))
"""`ONLINE_SHAPES` where the row is read once more to be stored: in few and large blocks, so that it is still in the
cache then."""
WEIGHTED_ELEMENTS: Final = 1 << 13
"""Elements of weighted columns that a program takes at a time."""
HURRIED_SHAPES: Final = ((32, 2), (32, 1), (16, 2))
"""`ONLINE_SHAPES` where each row has a multiprocessor to itself."""


AnyTile = Tile | SideBySide | AttentionTile


def candidates(kernel: Kernel, limits: GpuLimits = WITHOUT_A_GPU) -> Iterator[AnyTile]:
    """Tiles worth trying, the one to take without trying first. Each computes the same."""
    if isinstance(kernel, AttentionKernel):
        return attention_tiles(kernel)
    if kernel.members:
        return together([own_candidates(member, limits) for member in kernel.members])
    return own_candidates(kernel, limits)


def worth_measuring(kernel: Kernel, limits: GpuLimits) -> Iterator[AnyTile]:
    """`candidates`, and of a matrix product many more."""
    yield from candidates(kernel, limits)
    loops = None if kernel.members or not kernel.reduction else product_loops(kernel)
    if loops is not None:
        yield from (product_tile(kernel, loops, *shape) for shape in product_shapes(loops))


def own_candidates(kernel: Kernel, limits: GpuLimits) -> Iterator[Tile]:
    """`candidates` of a kernel that has a launch of its own, or a part of one.

    Of sizes that are not known it is asked, and so assumed, which of a few classes they are in: those for which another
    tile would be much quicker.
    """
    assume_multiples(kernel)
    parallel = tuple(var for var in kernel.parallel if var.size != 1)
    if not kernel.reduction:
        yield from _Pointwise(kernel, parallel, limits).tiles()
        return
    if (loops := product_loops(kernel)) is not None:
        yield from product_tiles(kernel, loops, limits)
        return
    moved: defaultdict[bool, int] = defaultdict(int)
    for access in accesses(kernel):
        if access.fast is not None:
            moved[access.fast in parallel] += access.bytes
    of_columns = moved[True] > moved[False]
    if of_columns and (plain := written_out(kernel)) is not None:
        yield from _Pointwise(plain, parallel, limits).tiles()
    yield from (_Columns if of_columns else _Rows)(kernel, parallel, limits).tiles()


def split(kernel: Kernel, loops: tuple[Var, ...], lanes: int) -> tuple[Kernel, tuple[Var, ...], Var]:
    """The kernel with the last of some loops cut into runs of `lanes` turns; the loops, the last one now over the runs;
    the loop within a run.

    What does not change within a run is then loaded and computed once for it.
    """
    row = loops[-1]
    run, lane = fresh_var(row.name + "_", row.size // lanes), fresh_var(row.name + "_", lanes)
    place = Index.of(run) * lanes + lane

    def cut(variables: tuple[Var, ...]) -> tuple[Var, ...]:
        return tuple(part for var in variables for part in ((run, lane) if var == row else (var,)))

    kernel = replace(
        kernel, parallel=cut(kernel.parallel), reduction=cut(kernel.reduction),
        stores=substitute(kernel.stores, {row: place}),
    )
    return kernel, (*loops[:-1], run), lane


def _lanes(places: Iterable[Access]) -> int:
    """The elements of a load of the narrowest of them."""
    return max(1, VECTOR_BYTES // min((access.itemsize for access in places), default=4))


@dataclass(frozen=True)
class _Shapes:
    """Tiles of one kernel. `parallel` are its parallel loops of more than one turn."""

    kernel: Kernel
    parallel: tuple[Var, ...]
    limits: GpuLimits

    @cached_property
    def results(self) -> int:
        """Turns of the parallel loops."""
        return math.prod(var.size for var in self.parallel)

    @cached_property
    def analysis(self) -> Analysis:
        return Analysis(self.kernel)

    @cached_property
    def online(self) -> Analysis:
        """What it is if sums of softmaxes are gathered along with the maxima."""
        return Analysis(self.kernel, online=True)

    @cached_property
    def elements_each(self) -> int:
        """How many elements a thread may take at a time where a program has as many threads as there can be."""
        places = [access for access in accesses(self.kernel) if access.index.vars() & set(self.kernel.reduction)]
        sums = sum(node.op == "reduce" for node in self.analysis.order)
        return power_below(
            self.limits.working_registers // max(1, sums + sum(max(1, access.itemsize // 4) for access in places))
        )


class _Pointwise(_Shapes):
    """Without reductions."""

    def tiles(self) -> Iterator[Tile]:
        if not self.parallel:
            yield Tile(self.kernel, (), 1)
            return
        crossing = self._crossing()
        if crossing is not None:
            yield from self._transposing(crossing)
            return
        if self._has_odd_rows:
            *rest, row = self.parallel
            for elements, warps in ((2048, 8), (1024, 4), (4096, 8)):
                yield Tile(self.kernel, (Axis("y", tuple(rest), 1), Axis("x", (row,), elements)), warps)
        yield from self._flat()

    @property
    def _has_odd_rows(self) -> bool:
        """Whether it goes through long rows that no wide load fits, and loads several numbers for each row: taken as
        one, the loops would load these for each element, at a place that a division gives."""
        *rest, row = self.parallel
        if not rest or isinstance(row.size, SymbolicSize) or row.size < ODD_ROW:
            return False
        places = accesses(self.kernel)
        of_rows = [access for access in places if not access.index.vars() & {row} and access.index.vars()]
        return len(of_rows) > 1 and not is_run_of(_lanes(places), row.size)

    def _flat(self) -> Iterator[Tile]:
        """All loops as one."""
        kernel, parallel = self.kernel, self.parallel
        enough = self.limits.enough_programs
        places = accesses(kernel)
        large = [access for access in places if access.bytes * 8 > max(place.bytes for place in places)]
        lanes = _lanes(large)
        row = parallel[-1]
        if is_run_of(lanes, row.size) and any(not access.index.stride(row) for access in places):
            kernel, parallel, lane = split(kernel, parallel, lanes)
            axes: tuple[Axis, ...] = (Axis("v", (lane,), lanes), Axis("x", parallel, 1))
        else:
            axes = (Axis("x", parallel, 1),)
        inside = math.prod(axis.block for axis in axes)
        total = math.prod(axis.size for axis in axes)
        loads = len(large) - len(kernel.stores)
        shapes: tuple[tuple[int, int], ...]
        shapes = (
            ((1024, 4), (2048, 4), (2048, 8), (512, 4), (1024, 2), (4096, 8))
            if loads > 1
            else ((2048, 4), (1024, 4), (4096, 8), (2048, 8))
        )
        if len(axes) > 1:
            shapes = ((2048, 8), *(shape for shape in shapes if shape != (2048, 8)))
        apart = len(axes) == 1 and not is_multiple(lanes, total) and (isinstance(total, SymbolicSize) or total >= LARGE)
        for elements, warps in shapes:
            if isinstance(total, SymbolicSize):
                block = SMALL_BLOCK if roughly_less(total, enough * elements) else elements
            else:
                block = min(elements, power_above(total), max(128, power_below(total // enough)))
            warps = max(1, min(warps, block // 64))
            x = replace(axes[-1], block=max(1, block // inside))
            yield Tile(kernel, (x, *axes[:-1]), warps, apart=apart)
            if block < elements:
                return

    def _crossing(self) -> Var | None:
        """A loop, other than the last, along which much of the memory is walked through element by element."""
        moved: defaultdict[Var, int] = defaultdict(int)
        for access in accesses(self.kernel):
            if access.fast is not None:
                moved[access.fast] += access.bytes
        row = self.parallel[-1]
        others = [var for var in self.parallel[:-1] if moved[var] * 8 > moved[row] and var.size >= 8 and row.size >= 8]
        return max(others, key=lambda var: moved[var], default=None)

    def _transposing(self, crossing: Var) -> Iterator[Tile]:
        row = self.parallel[-1]
        rest = tuple(var for var in self.parallel if var not in (row, crossing))
        enough = self.limits.enough_programs
        narrow = max(access.itemsize for access in accesses(self.kernel)) <= 2
        shapes: tuple[tuple[int, int, int], ...] = (
            (64, 64, 4), (64, 64, 8), (32, 64, 4), (64, 128, 8), (128, 64, 8), (32, 32, 4), (128, 128, 8),
        )
        if roughly_less(self.results, enough * 64 * 64):
            shapes = ((32, 32, 4), *shapes)
        elif narrow and hint(self.results) >= enough * 128 * 128:
            shapes = shapes[-1:] + shapes[:-1]
        for tall, long, warps in dict.fromkeys(shapes):
            y, x = within(tall, crossing.size), within(long, row.size)
            z = power_below(2048 // (x * y)) if rest and x * y <= 1024 else 1
            z = within(z, math.prod(var.size for var in rest))
            axes = Axis("z", rest, z), Axis("y", (crossing,), y), Axis("x", (row,), x)
            yield Tile(self.kernel, axes, max(1, min(warps, x * y * z // 128)))


class _Rows(_Shapes):
    """Reductions over rows that lie in one piece."""

    def tiles(self) -> Iterator[Tile]:
        rows, limits = self.results, self.limits
        surely_few = not isinstance(rows, SymbolicSize) and rows < limits.multiprocessors
        whole = row_block(
            self.kernel.reduction_size, FEW_ROWS if surely_few else ROWS, max(limits.longest_row, limits.longest_block)
        )
        perhaps_few = isinstance(rows, SymbolicSize) and whole > SHORT_ROW
        if surely_few or (perhaps_few and roughly_less(rows, limits.multiprocessors)):
            yield from self._hurried(whole)
            return
        held = max(1, self.analysis.reloaded)
        # what takes a single pass gains nothing from holding a row; with several, a row is read once if it is held
        if self.analysis.passes == 1 or self.online.passes == 1:
            hold = whole <= limits.longest_block
        else:
            hold = held * whole <= limits.longest_row
        if hold:
            yield from self._whole(whole, held)
        if not hold or whole >= limits.longest_block:
            yield from self._walked(ONLINE_STORING_SHAPES if self._stores_again else ONLINE_SHAPES)

    @property
    def _stores_again(self) -> bool:
        """Whether a row is read once more to be stored."""
        return any(store.in_reduction for store in self.kernel.stores)

    def _reduction_axes(self) -> tuple[Kernel, tuple[Axis, ...]]:
        """The reduction loops as one axis, or as two where something loaded for an element stays the same over runs of
        elements."""
        kernel = self.kernel
        reduction = tuple(var for var in kernel.reduction if var.size != 1)
        if len(reduction) > 1 and not self._counts:
            row, lanes = reduction[-1], 8
            if is_run_of(lanes, row.size) and any(
                access.index.vars() & set(reduction) and not access.index.stride(row) for access in accesses(kernel)
            ):
                kernel, reduction, lane = split(kernel, reduction, lanes)
                return kernel, (Axis("r", reduction, 1, True), Axis("v", (lane,), lanes, True))
        return kernel, (Axis("r", reduction, 1, True),)

    @property
    def _counts(self) -> bool:
        """Whether something depends on the order of the turns, which are those of one axis then."""
        return any(map(is_ordered, self.analysis.order))

    def _hurried(self, whole: int) -> Iterator[Tile]:
        """For rows so few that each has a multiprocessor to itself: as many threads and as much on its way at a time as
        there can be."""
        lanes = _lanes(access for access in accesses(self.kernel) if access.fast in self.kernel.reduction)
        block = min(whole, self.limits.most_threads * self.elements_each, self.limits.longest_row)
        if block < whole and self.online.online:
            yield from self._walked(HURRIED_SHAPES)
            return
        kernel, reduction = self._reduction_axes()
        own = max(1, block // math.prod(axis.block for axis in reduction))
        reduction = (replace(reduction[0], block=own), *reduction[1:])
        looped = reduction[0].size > reduction[0].block
        usual = min(32, max(1, block // (32 * lanes)))
        for warps in dict.fromkeys((usual, max(1, usual // 2), min(32, usual * 2))):
            yield Tile(
                kernel, (Axis("x", self.parallel, 1), *reduction), warps, looped=looped,
                online=looped and self.analysis.passes > 1,
            )

    def _whole(self, whole: int, held: int) -> Iterator[Tile]:
        """Rows in one block each, short ones several together."""
        rows, enough = self.results, self.limits.enough_programs
        kernel, reduction = self._reduction_axes()
        reduction = (
            replace(
                reduction[0], block=within(whole // math.prod(axis.block for axis in reduction), reduction[0].size)
            ),
            *reduction[1:],
        )
        together = max(1, 1024 // whole)
        if isinstance(rows, SymbolicSize):
            together = 1 if together > 1 and roughly_less(rows, enough * together) else together
        else:
            together = min(together, power_above(rows), max(1, power_below(rows // enough)))
        elements = together * whole
        usual = max(1, min(16, power_above(held) * elements // (1024 if elements >= 4096 else 512)))
        for warps in dict.fromkeys((usual, max(1, usual // 2), min(32, usual * 2))):
            if elements // (32 * warps) <= 64:
                yield Tile(kernel, (Axis("x", self.parallel, together), *reduction), warps)
        if whole < 1024 and 4 * together <= hint(rows):
            warps = max(1, min(16, 4 * elements // 512))
            yield Tile(kernel, (Axis("x", self.parallel, 4 * together), *reduction), warps)

    def _walked(self, online_shapes: Sequence[tuple[int, int]]) -> Iterator[Tile]:
        """Rows block by block."""
        length, again = self.kernel.reduction_size, self._stores_again
        if self.online.online and is_multiple(8, length) and len(self.kernel.reduction) == 1 and not self._counts:
            parts, runs, lane = split(self.kernel, self.kernel.reduction, 8)
            for warps, turns in online_shapes:
                block = within(32 * warps * turns, runs[-1].size)
                axes: tuple[Axis, ...] = (
                    Axis("x", self.parallel, 1), Axis("r", runs, block, True), Axis("v", (lane,), 8, True),
                )
                yield Tile(parts, axes, warps, looped=True, online=True, hints=again)
            return
        kernel, reduction = self._reduction_axes()
        lanes = math.prod(axis.block for axis in reduction)
        few = hint(self.results) < 4 * self.limits.multiprocessors
        shapes: tuple[tuple[int, int], ...]
        shapes = (
            ((8192, 16), (4096, 16), (4096, 8))
            if few
            else ((4096, 8), (2048, 4), (2048, 8), (8192, 8), (4096, 4), (8192, 16))
        )
        if again and not few:
            shapes = ((16384, 32), (16384, 16), *shapes)
        for elements, warps in shapes:
            block = max(1, within(elements, length) // lanes)
            axes = Axis("x", self.parallel, 1), replace(reduction[0], block=block), *reduction[1:]
            hints = again and elements >= self.limits.longest_row
            yield Tile(kernel, axes, warps, looped=True, online=bool(self.analysis.passes > 1), hints=hints)


class _Columns(_Shapes):
    """Reductions over columns: neighbours in memory belong to different reductions."""

    def tiles(self) -> Iterator[Tile]:
        length = self.kernel.reduction_size
        reduction = tuple(var for var in self.kernel.reduction if var.size != 1)
        fast, rest = self.parallel[-1], self.parallel[:-1]
        shapes: Sequence[tuple[int, int, int]] = (
            (64, 32, 4), (32, 64, 4), (64, 64, 8), (128, 32, 8), (32, 128, 8), (128, 16, 4),
        )
        if self._row_is_shared(fast):
            shapes = self._weighted(fast)
        elif roughly_less(self.results, 64 * self.limits.multiprocessors) and not roughly_less(length, 256):
            shapes = self._narrow(fast)
        # a block of columns must not straddle rows of memory, so that it stays one run
        axes = (Axis("y", rest, 1), Axis("x", (fast,), 1)) if rest else (Axis("x", (fast,), 1),)
        for wide, deep, warps in shapes:
            columns = within(wide, fast.size)
            block = within(deep * (wide // columns), length)
            looped = isinstance(length, SymbolicSize) or block < length
            x = replace(axes[-1], block=columns)
            warps = max(1, min(warps, columns * block // 128))
            yield Tile(
                self.kernel, (*axes[:-1], x, Axis("r", reduction, block, True)), warps, looped=looped, online=looped,
                early=not looped and self._row_is_shared(fast),
            )

    def _row_is_shared(self, fast: Var) -> bool:
        """Whether a row is reduced that is the same for all columns, as for a softmax that weighs them."""
        return any(node.op == "reduce" and fast not in self.analysis.free[node] for node in self.analysis.order)

    def _weighted(self, fast: Var) -> Sequence[tuple[int, int, int]]:
        """All columns together, since each program reduces the row anew, but for as many programs as there are
        multiprocessors; the row in one block if registers hold that."""
        results, multiprocessors = hint(self.results), self.limits.multiprocessors
        columns = hint(fast.size)
        wide = min(power_above(columns), max(16, power_below(max(1, results // multiprocessors))))
        sizes = ((WEIGHTED_ELEMENTS, 8), (WEIGHTED_ELEMENTS, 4), (WEIGHTED_ELEMENTS * 2, 16))
        return [(wide, max(16, elements // wide), warps) for elements, warps in sizes]

    def _narrow(self, fast: Var) -> Sequence[tuple[int, int, int]]:
        """Few blocks: so narrow ones that all multiprocessors have one, but not so narrow that less of a sector of
        memory is read than there is in it."""
        results, multiprocessors = hint(self.results), self.limits.multiprocessors
        least = SECTOR_BYTES // max(
            1, min((access.itemsize for access in accesses(self.kernel) if access.fast == fast), default=4)
        )
        wide = min(64, max(least, power_below(results // multiprocessors)))
        each = min(16, self.elements_each)
        half, full, quarter = (
            (wide, 512 * each // wide, 16), (wide, 1024 * each // wide, 32), (wide, 256 * each // wide, 16),
        )
        return (full, half, quarter) if results < wide * multiprocessors else (half, full, quarter)
