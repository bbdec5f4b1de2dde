"""Which tiles a kernel may have: sizes of blocks, numbers of warps, reductions in one block or in a loop.

The numbers are for GPUs that hide the latency of memory behind some 32 KiB of loads in flight a multiprocessor, with 16 bytes a load and thread.
"""
from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from framejit.backends.fuse.loop_ir.expr import is_ordered
from framejit.backends.fuse.loop_ir.index import Index, Var, fresh_var
from framejit.backends.fuse.loop_ir.nodes import Kernel
from framejit.backends.fuse.schedule.loops import substitute
from framejit.backends.fuse.sizes.open_size import OpenSize, hint
from framejit.backends.fuse.triton.levels import Levels
from framejit.backends.fuse.triton.multiples import assume_multiples, is_dense, is_multiple
from framejit.backends.fuse.triton.open_blocks import FEW_ROWS, ROWS, SMALL_BLOCK, is_run_of, power_above, power_below, row_block, within
from framejit.backends.fuse.triton.tile import Axis, Tile

VECTOR_BYTES: Final = 16
MULTIPROCESSORS: Final = 132
ENOUGH_PROGRAMS: Final = 2 * MULTIPROCESSORS
LONGEST_ROW: Final = 16384
"""So many values of a row, all told, are held in registers by one program: of larger ones a multiprocessor takes one at a time, and its memory
is idle while that computes. (The maximum and sum of exponentials of rows of 32000, held, came to 0.57 of copying's speed on an H200; in a loop, to 0.96.)"""

LARGE: Final = 1 << 18
"""Elements from which on it is bandwidth that counts."""

SECTOR_BYTES: Final = 32
MOST_THREADS: Final = 1024
WORKING_REGISTERS: Final = 56
"""Registers of a thread's 64, where a program has that many threads, that what it loads and what it adds up may take."""

LONGEST_BLOCK: Final = 8192
"""Up to here a row that is read only once is taken as one block, not in a loop."""


@dataclass(frozen=True)
class Access:
    """A load or a store, with the bytes that it moves in all, for the sizes now."""

    index: Index
    itemsize: int
    bytes: int

    @property
    def fast(self) -> Var | None:
        """The loop along which it goes through memory one element at a time."""
        return next((var for var in self.index.terms if isinstance(var, Var) and is_dense(self.index, var)), None)


def accesses(kernel: Kernel) -> list[Access]:
    """Every place that the kernel reads or writes."""
    places = [(store.buffer, store.index) for store in kernel.stores]
    places += [(name, index) for name, indices in kernel.reads.items() for index in indices]
    found = []
    for name, index in places:
        itemsize = kernel.buffers[name].dtype.itemsize
        found.append(Access(index, itemsize, itemsize * math.prod(hint(var.size) for var in index.vars())))
    return found


def candidates(kernel: Kernel) -> Iterator[Tile]:
    """Tiles worth trying, the one to take without trying first. Each computes the same.

    Of sizes that are not known it is asked, and so assumed, which of a few classes they are in: those for which another tile would be much quicker.
    """
    assume_multiples(kernel)
    outer = tuple(var for var in kernel.outer if var.size != 1)
    if not kernel.inner:
        yield from _pointwise(kernel, outer)
        return
    moved: defaultdict[bool, int] = defaultdict(int)
    for access in accesses(kernel):
        if access.fast is not None:
            moved[access.fast in outer] += access.bytes
    yield from _columns(kernel, outer) if moved[True] > moved[False] else _rows(kernel, outer)


# without reductions


def _pointwise(kernel: Kernel, outer: tuple[Var, ...]) -> Iterator[Tile]:
    if not outer:
        yield Tile(kernel, (), 1)
        return
    crossing = _crossing(kernel, outer)
    if crossing is not None:
        yield from _transposing(kernel, outer, crossing)
        return
    places = accesses(kernel)
    large = [access for access in places if access.bytes * 8 > max(place.bytes for place in places)]
    lanes = max(1, VECTOR_BYTES // min((access.itemsize for access in large), default=4))
    row = outer[-1]
    if is_run_of(lanes, row.size) and any(not access.index.stride(row) for access in places):
        kernel, outer, lane = split(kernel, outer, lanes)
        axes: tuple[Axis, ...] = (Axis("v", (lane,), lanes), Axis("x", outer, 1))
    else:
        axes = (Axis("x", outer, 1),)
    inside = math.prod(axis.block for axis in axes)
    total = math.prod(axis.size for axis in axes)
    loads = len(large) - len(kernel.stores)
    shapes: tuple[tuple[int, int], ...]
    shapes = ((1024, 4), (2048, 4), (2048, 8), (512, 4), (1024, 2), (4096, 8)) if loads > 1 else ((2048, 4), (1024, 4), (4096, 8), (2048, 8))
    if len(axes) > 1:
        shapes = ((2048, 8), *(shape for shape in shapes if shape != (2048, 8)))
    apart = len(axes) == 1 and not is_multiple(lanes, total) and (isinstance(total, OpenSize) or total >= LARGE)
    for elements, warps in shapes:
        if isinstance(total, OpenSize):
            block = elements if total >= ENOUGH_PROGRAMS * elements else SMALL_BLOCK
        else:
            block = min(elements, power_above(total), max(128, power_below(total // ENOUGH_PROGRAMS)))
        warps = max(1, min(warps, block // 64))
        x = replace(axes[-1], block=max(1, block // inside))
        yield Tile(kernel, (x, *axes[:-1]), warps, apart=apart)
        if block < elements:
            return


def split(kernel: Kernel, loops: tuple[Var, ...], lanes: int) -> tuple[Kernel, tuple[Var, ...], Var]:
    """The kernel with the last of some loops cut into runs of `lanes` turns; the loops, the last one now over the runs; the loop within a run.

    What does not change within a run is then loaded and computed once for it.
    """
    row = loops[-1]
    run, lane = fresh_var(row.name + "_", row.size // lanes), fresh_var(row.name + "_", lanes)
    place = Index.of(run) * lanes + lane

    def cut(variables: tuple[Var, ...]) -> tuple[Var, ...]:
        return tuple(part for var in variables for part in ((run, lane) if var == row else (var,)))

    kernel = replace(kernel, outer=cut(kernel.outer), inner=cut(kernel.inner), stores=substitute(kernel.stores, {row: place}))
    return kernel, (*loops[:-1], run), lane


def _crossing(kernel: Kernel, outer: tuple[Var, ...]) -> Var | None:
    """A loop, other than the last, along which much of the memory is walked through element by element."""
    moved: defaultdict[Var, int] = defaultdict(int)
    for access in accesses(kernel):
        if access.fast is not None:
            moved[access.fast] += access.bytes
    row = outer[-1]
    others = [var for var in outer[:-1] if moved[var] * 8 > moved[row] and var.size >= 8 and row.size >= 8]
    return max(others, key=lambda var: moved[var], default=None)


def _transposing(kernel: Kernel, outer: tuple[Var, ...], crossing: Var) -> Iterator[Tile]:
    row = outer[-1]
    rest = tuple(var for var in outer if var not in (row, crossing))
    size = math.prod(var.size for var in outer)
    narrow = max(access.itemsize for access in accesses(kernel)) <= 2
    shapes: tuple[tuple[int, int, int], ...] = ((64, 64, 4), (64, 64, 8), (32, 64, 4), (64, 128, 8), (128, 64, 8), (32, 32, 4), (128, 128, 8))
    if size < ENOUGH_PROGRAMS * 64 * 64:
        shapes = ((32, 32, 4), *shapes)
    elif narrow and hint(size) >= ENOUGH_PROGRAMS * 128 * 128:
        shapes = shapes[-1:] + shapes[:-1]
    for tall, long, warps in dict.fromkeys(shapes):
        y, x = within(tall, crossing.size), within(long, row.size)
        z = power_below(2048 // (x * y)) if rest and x * y <= 1024 else 1
        z = within(z, math.prod(var.size for var in rest))
        yield Tile(kernel, (Axis("z", rest, z), Axis("y", (crossing,), y), Axis("x", (row,), x)), max(1, min(warps, x * y * z // 128)))


# reductions over rows that lie in one piece


def _rows(kernel: Kernel, outer: tuple[Var, ...]) -> Iterator[Tile]:
    levels = Levels(kernel)
    rows = math.prod(var.size for var in outer)
    surely_few = not isinstance(rows, OpenSize) and rows < MULTIPROCESSORS
    whole = row_block(kernel.inner_size, FEW_ROWS if surely_few else ROWS, max(LONGEST_ROW, LONGEST_BLOCK))
    held = max(1, levels.reloaded)
    # how many threads take a short row makes no difference that would be worth asking
    if surely_few or not (isinstance(rows, OpenSize) and whole <= 1024) and rows < MULTIPROCESSORS:
        yield from _hurried_rows(kernel, outer, levels, whole)
        return
    # what takes a single pass gains nothing from holding a row; with several, a row is read once if it is held
    if levels.passes == 1 or Levels(kernel, online=True).passes == 1:
        hold = whole <= LONGEST_BLOCK
    else:
        hold = held * whole <= LONGEST_ROW
    if hold:
        yield from _whole_rows(kernel, outer, whole, held)
    if not hold or whole >= LONGEST_BLOCK:
        yield from _walked_rows(kernel, outer, levels)


def _inner_axes(kernel: Kernel) -> tuple[Kernel, tuple[Axis, ...]]:
    """The inner loops as one axis, or as two where something loaded for an element stays the same over runs of elements."""
    inner = tuple(var for var in kernel.inner if var.size != 1)
    if len(inner) > 1 and not _counts(kernel):
        row, lanes = inner[-1], 8
        if is_run_of(lanes, row.size) and any(access.index.vars() & set(inner) and not access.index.stride(row) for access in accesses(kernel)):
            kernel, inner, lane = split(kernel, inner, lanes)
            return kernel, (Axis("r", inner, 1, True), Axis("v", (lane,), lanes, True))
    return kernel, (Axis("r", inner, 1, True),)


def _counts(kernel: Kernel) -> bool:
    """Whether something depends on the order of the turns, which are those of one axis then."""
    return any(map(is_ordered, Levels(kernel).order))


def _hurried_rows(kernel: Kernel, outer: tuple[Var, ...], levels: Levels, whole: int) -> Iterator[Tile]:
    """For rows so few that each has a multiprocessor to itself: as many threads and as much on its way at a time as there can be."""
    lanes = max(1, VECTOR_BYTES // min((access.itemsize for access in accesses(kernel) if access.fast in kernel.inner), default=4))
    block = min(whole, MOST_THREADS * _each(kernel), LONGEST_ROW)
    if block < whole and Levels(kernel, online=True).online:
        yield from _walked_rows(kernel, outer, levels, ((32, 2), (32, 1), (16, 2)))
        return
    kernel, inner = _inner_axes(kernel)
    inner = (replace(inner[0], block=max(1, block // math.prod(axis.block for axis in inner))), *inner[1:])
    looped = inner[0].size > inner[0].block
    usual = min(32, max(1, block // (32 * lanes)))
    for warps in dict.fromkeys((usual, max(1, usual // 2), min(32, usual * 2))):
        yield Tile(kernel, (Axis("x", outer, 1), *inner), warps, looped=looped, online=looped and levels.passes > 1)


def _each(kernel: Kernel) -> int:
    """How many elements a thread may take at a time where a program has as many threads as there can be."""
    places = [access for access in accesses(kernel) if access.index.vars() & set(kernel.inner)]
    sums = sum(node.op == "reduce" for node in Levels(kernel).order)
    return power_below(WORKING_REGISTERS // max(1, sums + sum(max(1, access.itemsize // 4) for access in places)))


def _whole_rows(kernel: Kernel, outer: tuple[Var, ...], whole: int, held: int) -> Iterator[Tile]:
    kernel, inner = _inner_axes(kernel)
    inner = (replace(inner[0], block=within(whole // math.prod(axis.block for axis in inner), inner[0].size)), *inner[1:])
    rows = math.prod(var.size for var in outer)
    together = max(1, 1024 // whole)
    if isinstance(rows, OpenSize):
        together = together if together == 1 or rows >= ENOUGH_PROGRAMS * together else 1
    else:
        together = min(together, power_above(rows), max(1, power_below(rows // ENOUGH_PROGRAMS)))
    elements = together * whole
    usual = max(1, min(16, power_above(held) * elements // (1024 if elements >= 4096 else 512)))
    for warps in dict.fromkeys((usual, max(1, usual // 2), min(32, usual * 2))):
        if elements // (32 * warps) <= 64:
            yield Tile(kernel, (Axis("x", outer, together), *inner), warps)
    if whole < 1024 and 4 * together <= hint(rows):
        yield Tile(kernel, (Axis("x", outer, 4 * together), *inner), max(1, min(16, 4 * elements // 512)))


ONLINE_SHAPES: Final = ((4, 4), (8, 2), (8, 4), (16, 2), (4, 8), (16, 4))
"""Numbers of warps, and of runs of 8 elements that each thread takes at a time."""

ONLINE_STORING_SHAPES: Final = ((16, 4), (16, 2), (8, 4))
"""The same where the row is read once more to be stored: in few and large blocks, so that it is still in the cache then."""


def _walked_rows(kernel: Kernel, outer: tuple[Var, ...], levels: Levels, shapes: Sequence[tuple[int, int]] | None = None) -> Iterator[Tile]:
    length = kernel.inner_size
    again = any(store.inner for store in kernel.stores)
    shapes = shapes or (ONLINE_STORING_SHAPES if again else ONLINE_SHAPES)
    if Levels(kernel, online=True).online and is_multiple(8, length) and len(kernel.inner) == 1 and not _counts(kernel):
        parts, runs, lane = split(kernel, kernel.inner, 8)
        for warps, turns in shapes:
            block = within(32 * warps * turns, runs[-1].size)
            axes: tuple[Axis, ...] = (Axis("x", outer, 1), Axis("r", runs, block, True), Axis("v", (lane,), 8, True))
            yield Tile(parts, axes, warps, looped=True, online=True, hints=again)
        return
    kernel, inner = _inner_axes(kernel)
    lanes = math.prod(axis.block for axis in inner)
    few = hint(math.prod(var.size for var in outer)) < 4 * MULTIPROCESSORS
    choices: tuple[tuple[int, int], ...]
    choices = ((8192, 16), (4096, 16), (4096, 8)) if few else ((4096, 8), (2048, 4), (2048, 8), (8192, 8), (4096, 4), (8192, 16))
    if again and not few:
        choices = ((16384, 32), (16384, 16), *choices)
    for elements, warps in choices:
        block = max(1, within(elements, length) // lanes)
        axes = Axis("x", outer, 1), replace(inner[0], block=block), *inner[1:]
        yield Tile(kernel, axes, warps, looped=True, online=bool(levels.passes > 1), hints=again and elements >= LONGEST_ROW)


# reductions over columns: neighbours in memory belong to different reductions


def _columns(kernel: Kernel, outer: tuple[Var, ...]) -> Iterator[Tile]:
    length = kernel.inner_size
    inner = tuple(var for var in kernel.inner if var.size != 1)
    fast = outer[-1]
    rest = outer[:-1]
    shapes: tuple[tuple[int, int, int], ...] = ((64, 32, 4), (32, 64, 4), (64, 64, 8), (128, 32, 8), (32, 128, 8), (128, 16, 4))
    results = math.prod(var.size for var in outer)
    if results < 64 * MULTIPROCESSORS and length >= 256:
        # few blocks: so narrow ones that all multiprocessors have one, but not so narrow that less of a sector of memory is read than there is in it
        least = SECTOR_BYTES // max(1, min((access.itemsize for access in accesses(kernel) if access.fast == fast), default=4))
        wide = min(64, max(least, power_below(hint(results) // MULTIPROCESSORS)))
        each = min(16, _each(kernel))
        shapes = ((wide, 512 * each // wide, 16), (wide, 1024 * each // wide, 32), (wide, 256 * each // wide, 16))
        if hint(results) < wide * MULTIPROCESSORS:
            shapes = (shapes[1], shapes[0], *shapes[2:])
    # a block of columns must not straddle rows of memory, so that it stays one run
    axes = (Axis("y", rest, 1), Axis("x", (fast,), 1)) if rest else (Axis("x", (fast,), 1),)
    for wide, deep, warps in shapes:
        columns = within(wide, fast.size)
        block = within(deep * (wide // columns), length)
        looped = isinstance(length, OpenSize) or block < length
        x = replace(axes[-1], block=columns)
        warps = max(1, min(warps, columns * block // 128))
        yield Tile(kernel, (*axes[:-1], x, Axis("r", inner, block, True)), warps, looped=looped, online=looped)
