"""Numbers that a kernel is given as scalar arguments: sizes that are not known when it is compiled, and what tells one
of a graph's draws of random numbers from another, so that layers alike have one kernel."""
from __future__ import annotations

from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize
from framejit.backends.fuse.triton.tiles.multiples import ALIGNED, is_multiple
from framejit.symbols.expression import Expression


class ScalarArguments:
    """The numbers that a kernel's text has come to need, in the order of the arguments n0, n1, ...: one for each
    distinct expression over sizes, and for each draw.

    `wide`: whether sizes take 64 bits; otherwise `Tile.wide` has made sure that 32 do.
    """

    def __init__(self, wide: bool) -> None:
        self.kind = "i64" if wide else "i32"
        self.values: list[SymbolicSize | int] = []
        self.signature: list[tuple[str, str, bool]] = []
        """Name and Triton type of each argument, and whether it is a multiple of `ALIGNED`."""
        self._sizes: dict[Expression, str] = {}
        self._draws: dict[int, str] = {}

    def size(self, size: SymbolicSize) -> str:
        """The name of the argument that has a size."""
        expression = size.conditions.simplified(size.expression)
        if expression not in self._sizes:
            self._sizes[expression] = self._add(size, self.kind, is_multiple(ALIGNED, size))
        return self._sizes[expression]

    def draw(self, number: int) -> str:
        """The name of the argument that has the number of a draw."""
        if number not in self._draws:
            self._draws[number] = self._add(number, "i32", False)
        return self._draws[number]

    def _add(self, value: SymbolicSize | int, kind: str, is_aligned: bool) -> str:
        name = f"n{len(self.values)}"
        self.values.append(value)
        self.signature.append((name, kind, is_aligned))
        return name

    @property
    def remarks(self) -> list[str]:
        """For people, what each argument is."""
        return [f"{name} is {value!r}" for (name, _, _), value in zip(self.signature, self.values)]
