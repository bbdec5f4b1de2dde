"""How the turns of a kernel's loops are dealt out: the shape of the blocks, what one program does, how many programs
and threads there are."""
from __future__ import annotations

import math
from functools import cached_property
from typing import Final

from framejit.backends.fuse.loop_ir.index import Index, Quotient, Remainder, Var
from framejit.backends.fuse.loop_ir.nodes import Kernel
from framejit.backends.fuse.schedule.loop_order import all_indices
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize, greatest, surely_divides
from framejit.late_dataclass import dataclass

INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Axis:
    """Some of the loops counted as one, outermost first, in blocks of a power of two."""

    letter: str
    """What its index is called in the source."""
    vars: tuple[Var, ...]
    block: int
    reduction: bool = False

    @property
    def size(self) -> int:
        return math.prod(var.size for var in self.vars)

    @property
    def steps(self) -> int:
        """How many blocks it takes."""
        if isinstance(self.size, SymbolicSize):  # 0 where no program would have anything to do
            return (self.size + (self.block - 1)) // self.block
        return max(1, -(-self.size // self.block))

    @property
    def ragged(self) -> bool:
        """Whether the last block may reach over the end."""
        return not surely_divides(self.block, self.size) or (
            self.size.expression.bounds[0] <= 0 if isinstance(self.size, SymbolicSize) else self.size == 0
        )


MULTIPROCESSORS: Final = 128
"""Of the GPUs whose launches overlap most have as many, or some more."""


def spares_multiprocessors(programs: int) -> bool:
    """Whether a launch has so few programs that each has a multiprocessor to itself: blocks of the kernel behind it may
    be there early, and load what they need not wait for, without taking what its own blocks work with. (A token of a
    decoder of 22 layers on an H200: 779 us, 763 where three small kernels in each do so. With 8 sequences, which take
    144 to 256 programs: 970 us, 1,008.)"""
    return type(programs) is int and programs <= MULTIPROCESSORS


@dataclass(frozen=True)
class Tile:
    """The block that one program of a Triton kernel computes at once; its dimensions are the axes (those with a block
    of 1 are numbers, not dimensions)."""

    kernel: Kernel
    """The kernel, its loops perhaps split."""
    axes: tuple[Axis, ...]
    """Parallel axes first. Of the parallel ones the last walks through programs fastest."""
    warps: int
    looped: bool = False
    """Whether the first reduction axis is gone through block by block; otherwise all of it is in the block."""
    online: bool = False
    """Whether sums of softmaxes are gathered along with the maxima."""
    hints: bool = False
    """Whether loads say which lines to keep in the cache."""
    streamed: bool = False
    """Whether loads and stores say that lines are not used again."""
    resident: int = 0
    """How many programs there are, each of which goes through blocks one after the other; 0 for a program for each
    block."""
    stages: int = 1
    """How many blocks of a resident program, or of a loop over a reduction axis, are on their way at a time."""
    apart: bool = False
    """Whether, of one parallel axis, whole blocks have code of their own in which nothing is masked: under masks of
    single elements loads are single, too."""

    parts: int = 0
    """Where tensor cores sum up the products: into how many parts, a product each, the inner axis's blocks are cut. The
    dimensions of blocks are rows, columns and inner elements then."""

    early: bool = False
    """Whether what is loaded for each element of a block is on its way before anything is reduced."""

    @property
    def parallel(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if not axis.reduction)

    @property
    def reduction(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis.reduction)

    @property
    def dims(self) -> tuple[Axis, ...]:
        """The axes that are dimensions of blocks."""
        return tuple(axis for axis in self.axes if axis.block > 1)

    @property
    def blocks(self) -> int:
        """How many blocks the parallel axes take."""
        return math.prod(axis.steps for axis in self.parallel)

    @property
    def programs(self) -> int:
        return min(self.blocks, self.resident or self.blocks)

    @cached_property
    def axis_of(self) -> dict[Var, Axis]:
        return {var: axis for axis in self.axes for var in axis.vars}

    @cached_property
    def wide(self) -> bool:
        """Whether indices need 64 bits, also where a block reaches over the end."""
        reaches = [
            self.blocks,
            *(axis.steps * axis.block for axis in self.axes),
            *map(self._reach, dict.fromkeys(all_indices(self.kernel.stores))),
        ]
        return bool(greatest(reaches) > INT32_MAX)

    def _reach(self, index: Index) -> int:
        reach = abs(index.const)
        for atom, coefficient in index.terms.items():
            if isinstance(atom, Var):
                axis = self.axis_of.get(atom)
                most = (
                    atom.size if axis is None or len(axis.vars) > 1 and axis.vars[0] != atom else atom.size + axis.block
                )
            elif isinstance(atom, Quotient):
                most = greatest((self._reach(atom.index), atom.bounds[1] + 1, atom.divisor))
            elif isinstance(atom, Remainder):
                reach = greatest((reach, self._reach(atom.index)))
                most = atom.divisor
            else:
                most = atom.size
            reach += abs(coefficient) * most
        return reach

    def __str__(self) -> str:
        shape = " x ".join(f"{axis.letter}{axis.block}" for axis in self.axes)
        flags = "".join(
            f" {name}" for name in ("looped", "online", "hints", "streamed", "apart", "early") if getattr(self, name)
        )
        resident = f" {self.resident} resident, {self.stages} stages" if self.resident else ""
        ahead = f" {self.stages} stages" if self.stages > 1 and not self.resident else ""
        ahead += f" {self.parts} parts" if self.parts else ""
        return f"{shape or 'scalar'}, {self.warps} warps{flags}{resident}{ahead}"
