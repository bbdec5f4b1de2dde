"""Sizes that a kernel is given as scalar arguments, because they are not known when it is compiled."""
from __future__ import annotations

from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize
from framejit.backends.fuse.triton.tiles.multiples import ALIGNED, is_multiple
from framejit.symbols.expression import Expression


class SizeArguments:
    """The sizes that a kernel's text has come to need, in the order of the arguments n0, n1, ...: one for each distinct
    expression.

    `wide`: whether they take 64 bits; otherwise `Tile.wide` has made sure that 32 do.
    """

    def __init__(self, wide: bool) -> None:
        self.kind = "i64" if wide else "i32"
        self.names: dict[Expression, str] = {}
        self.sizes: list[SymbolicSize] = []

    def text(self, size: SymbolicSize) -> str:
        """The name of the kernel's argument that has a size."""
        expression = size.conditions.simplified(size.expression)
        name = self.names.get(expression)
        if name is None:
            name = self.names[expression] = f"n{len(self.names)}"
            self.sizes.append(size)
        return name

    @property
    def signature(self) -> tuple[tuple[str, str, bool], ...]:
        """Name and Triton type of each argument, and whether it is a multiple of `ALIGNED`."""
        return tuple(
            (name, self.kind, is_multiple(ALIGNED, size)) for name, size in zip(self.names.values(), self.sizes)
        )

    @property
    def remarks(self) -> list[str]:
        """For people, what each argument is."""
        return [f"{name} is {size!r}" for name, size in zip(self.names.values(), self.sizes)]
