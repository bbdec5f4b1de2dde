"""The tiles of kernels that share a launch, and the code that gives each its programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from framejit.backends.fuse.triton.tiles.tile import Tile
from framejit.late_dataclass import dataclass


@dataclass(frozen=True)
class SideBySide:
    """A tile for each of the kernels of a launch."""

    tiles: tuple[Tile, ...]

    @property
    def programs(self) -> int:
        return sum(tile.programs for tile in self.tiles)

    @property
    def warps(self) -> int:
        return max(tile.warps for tile in self.tiles)

    @property
    def wide(self) -> bool:
        return any(tile.wide for tile in self.tiles)

    def __str__(self) -> str:
        return " beside ".join(map(str, self.tiles))


def together(candidates: Sequence[Iterator[Tile]]) -> Iterator[SideBySide]:
    """Tiles of a launch, from those of each of its kernels: the first of all, then the second of all."""
    last: tuple[Tile, ...] = ()
    for tiles in zip_longest(*candidates):
        last = tuple(tile or known for tile, known in zip(tiles, last or tiles))
        warps = max(tile.warps for tile in last)
        yield SideBySide(tuple(replace(tile, warps=warps) for tile in last))


def dispatch(function: str, arguments: Sequence[Sequence[str]], tile: SideBySide) -> str:
    """The body of a function that calls the part of each kernel, `function` and its number, in its programs."""
    lines, start = ["    program = tl.program_id(0)"], 0
    for number, (own, part) in enumerate(zip(arguments, tile.tiles)):
        is_last = number == len(tile.tiles) - 1
        end = start + part.programs
        lines.append("    else:" if is_last else f"    {'el' if number else ''}if program < {end}:")
        program = "program" if not start else f"program - {start}"
        lines.append(f"        {function}_{number}({', '.join((program, *own))})")
        start = end
    return "\n".join(lines)
