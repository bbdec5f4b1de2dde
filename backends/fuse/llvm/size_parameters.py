"""Sizes that a kernel is given as arguments, because they are not known when it is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize
from framejit.symbols.expression import Expression


class SizeArguments:
    """The sizes that a kernel's text has come to need, in the order of its argument `ints`, and the instructions that
    read them."""

    def __init__(self) -> None:
        self.sizes: dict[Expression, SymbolicSize] = {}
        self._registers: dict[tuple[Expression, str, int], str] = {}
        self.lines: list[str] = []

    def register(self, size: SymbolicSize, type: str, lanes: int) -> str:
        """The register that holds a size from the kernel's beginning on, in every lane of its type."""
        key = size.expression, type, lanes
        name = self._registers.get(key)
        if name is None:
            name = self._registers[key] = f"%n{len(self._registers)}"
            self._write(size, type, lanes, name)
        return name

    def _write(self, size: SymbolicSize, type: str, lanes: int, name: str) -> None:
        if lanes > 1:
            scalar, full = self.register(size, type, 1), f"<{lanes} x {type}>"
            self.lines.append(f"{name}.one = insertelement {full} poison, {type} {scalar}, i64 0")
            self.lines.append(
                f"{name} = shufflevector {full} {name}.one, {full} poison, <{lanes} x i32> zeroinitializer"
            )
        elif type != "i64":
            self.lines.append(f"{name} = trunc i64 {self.register(size, 'i64', 1)} to {type}")
        else:
            position = len(self.sizes)
            self.sizes[size.expression] = size
            self.lines.append(f"{name}.at = getelementptr i64, ptr %ints, i64 {position}")
            self.lines.append(f"{name} = load i64, ptr {name}.at")


_current: ContextVar[SizeArguments | None] = ContextVar("size arguments", default=None)


@contextmanager
def size_arguments() -> Iterator[SizeArguments]:
    """Collect the sizes that the text written in the block needs."""
    token = _current.set(SizeArguments())
    try:
        arguments = _current.get()
        assert arguments is not None
        yield arguments
    finally:
        _current.reset(token)


def register_of(size: SymbolicSize, type: str, lanes: int) -> str:
    """See SizeArguments.register; of the kernel that is being written."""
    arguments = _current.get()
    assert arguments is not None, "a size is written outside of a kernel"
    return arguments.register(size, type, lanes)
