"""Containers that hold themselves: which ones are built empty and filled once everything exists."""

from __future__ import annotations

from collections.abc import Iterator

from framejit.values.base import Value
from framejit.values.lazy import LazyValue
from framejit.values.objects.functions.function_values import CellValue
from framejit.values.objects.user_object import ObjectValue


def needed_first(value: Value) -> Iterator[Value]:
    """The values that must exist before this one is built. Objects and cells need none: they are filled afterwards."""
    if value.source is not None or isinstance(value, CellValue):
        return iter(())
    if isinstance(value, ObjectValue):
        return iter(()) if value.base is None or value.base.mutable else iter((value.base,))
    return value.children()


class Cycles:
    """Walks values once, depth first; where a walk comes back to a value that it is inside of, that value begins a
    cycle."""

    def __init__(self) -> None:
        self._seen: dict[int, Value] = {}
        self._heads: set[int] = set()

    def begin_at(self, value: Value) -> bool:
        if id(value) not in self._seen:
            self._walk(value)
        return id(value) in self._heads

    def _walk(self, root: Value) -> None:
        inside: set[int] = set()
        todo: list[tuple[Value, Iterator[Value]]] = []

        def enter(value: Value) -> None:
            while isinstance(value, LazyValue) and value.realized is not None:
                value = value.realized
            if id(value) in inside:
                self._heads.add(id(value))
            elif id(value) not in self._seen:
                self._seen[id(value)] = value
                inside.add(id(value))
                todo.append((value, needed_first(value)))

        enter(root)
        while todo:
            value, rest = todo[-1]
            child = next(rest, None)
            if child is None:
                todo.pop()
                inside.discard(id(value))
            else:
                enter(child)
