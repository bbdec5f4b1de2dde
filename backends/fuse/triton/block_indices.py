"""Axes as blocks of indices, and the places in memory computed from them."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index, Indirect, Quotient, Var
from framejit.backends.fuse.sizes.symbolic_size import surely_equal
from framejit.backends.fuse.triton.lines import Lines
from framejit.backends.fuse.triton.tiles.multiples import is_multiple
from framejit.backends.fuse.triton.tiles.tile import Axis, Tile


class Indices:
    """Writes the indices of a tile. `computed` gives the name of an index that is computed under a mask."""

    def __init__(self, tile: Tile, lines: Lines, computed: Callable[[Indirect, tuple[Expr, ...]], str]) -> None:
        self.tile, self.lines, self.computed = tile, lines, computed
        self._names = {axis: axis.letter for axis in tile.axes}

    def sizes(self) -> None:
        """The lines that name the sizes of blocks."""
        for axis in self.tile.axes:
            if axis.block > 1:
                self.lines.add(f"{axis.letter.upper()}BLOCK: tl.constexpr = {axis.block}")

    def parallel(self, number: str) -> None:
        """The lines that find out where in the parallel axes the block of a number is."""
        split = [axis for axis in self.tile.parallel if not surely_equal(axis.steps, 1)]
        program = f"{number}{'.to(tl.int64)' if self.tile.wide else ''}"
        if len(split) > 1 and program != "program":
            self.lines.add(f"program = {program}")
            program = "program"
        for axis in self.tile.parallel:
            block = "0"
            if axis in split:
                inside = math.prod(later.steps for later in split[split.index(axis) + 1 :])
                block = program
                if not surely_equal(inside, 1):
                    block += f" // {inside}"
                if axis is not split[0]:
                    block += f" % {axis.steps}"
                if axis.block > 1 and block != program:
                    block = f"({block})"
            self._axis(axis, block if axis.block == 1 or block == "0" else f"{block} * {axis.letter.upper()}BLOCK")

    def reduction(self) -> None:
        """The lines for the reduction axes: whole, or the block that the loop has come to."""
        for position, axis in enumerate(self.tile.reduction):
            looped = position == 0 and self.tile.looped
            # asked of every size, so that it is assumed of those that are not known
            if not looped and axis.size > axis.block:
                raise AssertionError(f"{self.tile} is to hold {axis.size} elements in a block of {axis.block}")
            self._axis(axis, f"{axis.letter}_start" if looped else "0")

    @contextmanager
    def next_block(self) -> Iterator[str]:
        """Add the lines for the block that the loop comes to next, which may be none, and mean that by its reduction
        axis in what is written in the context. Gives the condition that elements of it are there."""
        axis = self.tile.reduction[0]
        name = f"{axis.letter}_next"
        self.lines.add(f"{name} = {axis.letter} + {axis.letter.upper() + 'BLOCK' if axis.block > 1 else 1}")
        self._names[axis] = name
        yield f"{name} < {axis.size}"
        self._names[axis] = axis.letter

    def _axis(self, axis: Axis, start: str) -> None:
        text = start
        if axis.block > 1:
            dims = self.tile.dims
            spread = f"[{', '.join(':' if dim is axis else 'None' for dim in dims)}]" if len(dims) > 1 else ""
            text = f"tl.arange(0, {axis.letter.upper()}BLOCK){spread}"
            # the number of a program has 64 bits then, the turn of a loop need not
            if self.tile.wide and (start == "0" or axis.reduction):
                text += ".to(tl.int64)"
            if start != "0":
                text = f"{start} + {text}"
        self.lines.add(f"{axis.letter} = {text}")
        if axis.ragged:
            self.lines.add(f"{axis.letter}_inside = {axis.letter} < {axis.size}")

    def mask(self, axis: Axis) -> str:
        """The name for what of a ragged axis's block is not beyond the end."""
        return f"{axis.letter}_inside"

    def shape(self, dims: Iterable[Axis], rank: int | None = None) -> str:
        """The shape of a block that extends over these dimensions and has one element along the others."""
        wanted = set(dims)
        if not wanted:
            return "[]" if not self.tile.dims else f"[{', '.join('1' for _ in self.tile.dims[:rank])}]"
        return (
            f"[{', '.join(f'{axis.letter.upper()}BLOCK' if axis in wanted else '1' for axis in self.tile.dims[:rank])}]"
        )

    def flat_reduction(self) -> str:
        """The turn of the reduction loops, counted in row-major order, as int64."""
        (axis,) = self.tile.reduction
        return f"({axis.letter} + tl.zeros({self.shape({axis} if axis.block > 1 else ())}, tl.int32)).to(tl.int64)"

    def text(self, index: Index, mask: tuple[Expr, ...]) -> str:
        """An index as an expression of the axes."""
        strides = {atom: coefficient for atom, coefficient in index.terms.items() if isinstance(atom, Var)}
        parts: list[str] = []
        for axis in self.tile.axes:
            for first, last in _runs(axis, strides):
                parts.append(_times(self._piece(axis, first, last), strides[axis.vars[last]]))
        for atom, coefficient in index.terms.items():
            if isinstance(atom, Var):
                continue
            if isinstance(atom, Indirect):
                inside = self.computed(atom, mask)
                piece = inside if self.tile.wide else f"{inside}.to(tl.int32)"
            else:
                piece = f"({self.text(atom.index, mask)}) {'//' if isinstance(atom, Quotient) else '%'} {atom.divisor}"
            parts.append(_times(piece, coefficient))
        if not surely_equal(index.const, 0) or not parts:
            parts.append(str(index.const))
        return " + ".join(parts)

    def counts(self, index: Index, number: int) -> bool:
        """Whether so many neighbours along the last dimension of blocks, from a multiple of that number on, have an
        index that counts on from one to the next, from a multiple, too."""
        dims = self.tile.dims
        if not dims or dims[-1].block % number or not is_multiple(number, index.const):
            return False
        if not all(isinstance(atom, Var) for atom in index.terms):
            return False
        strides = {atom: coefficient for atom, coefficient in index.terms.items() if isinstance(atom, Var)}
        counting = False
        for axis in self.tile.axes:
            for first, last in _runs(axis, strides):
                run = axis.vars[first : last + 1]
                if axis is dims[-1] and last == len(axis.vars) - 1 and surely_equal(strides[run[-1]], 1):
                    counting = first == 0 or is_multiple(number, math.prod(var.size for var in run))
                elif not is_multiple(number, strides[run[-1]]):
                    return False
        return counting

    def _piece(self, axis: Axis, first: int, last: int) -> str:
        """What some loops of an axis have come to, counted as one."""
        name = self._names[axis]
        below = math.prod(var.size for var in axis.vars[last + 1 :])
        piece = name if surely_equal(below, 1) else f"{name} // {below}"
        if first > 0:
            piece += f" % {math.prod(var.size for var in axis.vars[first : last + 1])}"
        return piece


def _runs(axis: Axis, strides: dict[Var, int]) -> Iterator[tuple[int, int]]:
    """The loops of an axis that add to an index, by their positions: runs of those that step on evenly are taken as
    one, from the first to the last."""
    loops = axis.vars
    position = 0
    while position < len(loops):
        stride = strides.get(loops[position], 0)
        last = position
        moves = not surely_equal(stride, 0)
        while (
            moves
            and last + 1 < len(loops)
            and surely_equal(strides.get(loops[last], 0), strides.get(loops[last + 1], 0) * loops[last + 1].size)
        ):
            last += 1
        if moves:
            yield position, last
        position = last + 1


def _times(piece: str, factor: int) -> str:
    whole = piece if piece.isidentifier() or piece.endswith(".to(tl.int32)") else f"({piece})"
    return whole if surely_equal(factor, 1) else f"{factor} * {whole}"
