"""Sizes of blocks, for sizes that are known and for those that are not.

Blocks are part of a kernel's code. For a size that is not known they are those of a class of sizes: what is in another
class gets another variant.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize, hint
from framejit.backends.fuse.triton.tiles.multiples import is_multiple

SMALL_BLOCK: Final = 256
"""Elements of a block for tensors so small that the launch takes longest of all."""

ROWS: Final = (64, 256, 1024, 2048, 4096, 8192, 16384)
"""What rows whose length is not known are held in: finer where what lies beyond a row's end costs time."""

FEW_ROWS: Final = (256, 2048, 16384)
"""What rows whose length is not known are held in where there are so few that each has a multiprocessor to itself."""


def power_above(number: int) -> int:
    """The least power of two that is not below."""
    return 1 << max(0, number - 1).bit_length()


def power_below(number: int) -> int:
    """The greatest power of two that is not above, at least 1."""
    return 1 << max(0, number.bit_length() - 1)


def within(block: int, size: Any) -> int:
    """A block of so many elements (a power of two), or of fewer where a size that is known needs no more."""
    return block if isinstance(size, SymbolicSize) else min(block, power_above(size))


def row_block(size: Any, blocks: Sequence[int], longest: int) -> int:
    """The block that holds a row of a size; of one that is not known one of `blocks`, and that it fits in no less is
    assumed. Above `longest` all are alike."""
    if not isinstance(size, SymbolicSize):
        return power_above(size)
    classes = [block for block in blocks if block <= longest] or [longest]
    block = next((block for block in classes if hint(size) <= block), None)
    below = [other for other in classes if block is None or other < block]
    # hints say how these come out; that they are asked makes them conditions
    if (block is not None and not size <= block) or (below and not size > below[-1]):
        raise AssertionError(f"a row of {hint(size)} elements is in no class")
    return block or 2 * classes[-1]


def is_run_of(lanes: int, size: Any) -> bool:
    """Whether a loop consists of more than one whole run of so many turns (a power of two), as far as is known."""
    return is_multiple(lanes, size) if isinstance(size, SymbolicSize) else size > lanes and size % lanes == 0
