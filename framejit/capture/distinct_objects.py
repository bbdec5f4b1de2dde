"""Objects that a capture told apart: groups of sources, of which no two may ever lead to one object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framejit import _native as native
from framejit.guards.guard import Guard
from framejit.values.base import Value

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture

Line = tuple[str, int] | None


class DistinctObjects:
    """Whatever was told apart in one table, or from one object, makes one group, with one guard that is linear in its
    size.

    A guard for each pair would assume less, and grow with the square: a set of a thousand parameters has half a million
    pairs.
    """

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        # id of a value -> the value, and the id of one nearer to its group's first
        self._parents: dict[int, tuple[Value, int]] = {}
        self._lines: dict[int, Line] = {}  # of a group's first: where it was begun
        self.told = 0  # how often two were told apart

    def tell_apart(self, a: Value, b: Value) -> None:
        self.told += 1
        first, other = self._first(a), self._first(b)
        if first != other:
            self._parents[other] = (self._parents[other][0], first)
            self._lines.setdefault(first, self._capture.user_line())

    def _first(self, value: Value) -> int:
        here = id(value)
        self._parents.setdefault(here, (value, here))
        while self._parents[here][1] != here:
            known, parent = self._parents[here]
            self._parents[here] = known, self._parents[parent][1]  # the next walk is shorter
            here = parent
        return here

    def guards(self) -> list[Guard]:
        groups: dict[int, dict[Source, None]] = {}
        for value, _ in list(self._parents.values()):
            if value.source is not None:
                groups.setdefault(self._first(value), {})[value.source] = None
        return [
            Guard(sources[0], native.C_DISTINCT, None, tuple(sources[1:]), self._lines.get(first))
            for first, sources in ((first, list(found)) for first, found in groups.items())
            if len(sources) > 1
        ]
