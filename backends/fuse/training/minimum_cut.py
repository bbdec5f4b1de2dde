"""Minimum cuts of networks.

The maximum flow is found level by level (E. Dinic, "Algorithm for solution of a problem of maximum flow in a network
with power estimation", Soviet Mathematics Doklady 11, 1970).
"""
from __future__ import annotations

import math
from collections.abc import Hashable


class Network:
    """A directed network. What is added first is gone through first, so that equal networks have equal cuts."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._leaving: list[list[int]] = []
        """By the number of a node the edges that leave it: each edge is followed by its reverse."""
        self._ends: list[int] = []
        self._left: list[float] = []
        """What each edge still lets through."""

    def add_edge(self, start: Hashable, end: Hashable, width: float = math.inf) -> None:
        """An edge, beside those that are there between the two."""
        for one, other, left in ((start, end, width), (end, start, 0.0)):
            self._leaving[self._number(one)].append(len(self._ends))
            self._ends.append(self._number(other))
            self._left.append(left)

    def before_sink(self, source: Hashable, sink: Hashable) -> set[Hashable]:
        """The sink's side of a minimum cut: of several, of the one with the fewest nodes on that side. Raises
        ValueError where a way without a bound leads from the source to the sink. May be called once."""
        self._flow(self._number(source), self._number(sink))
        reached = {self._number(sink)}
        waiting = [*reached]
        while waiting:
            here = waiting.pop()
            for edge in self._leaving[here]:
                there = self._ends[edge]
                if there not in reached and self._left[edge ^ 1] > 0:
                    reached.add(there)
                    waiting.append(there)
        return {node for node, number in self._numbers.items() if number in reached}

    def _number(self, node: Hashable) -> int:
        number = self._numbers.setdefault(node, len(self._leaving))
        if number == len(self._leaving):
            self._leaving.append([])
        return number

    def _flow(self, source: int, sink: int) -> None:
        while (levels := self._levels(source, sink)) is not None:
            self._fill(source, sink, levels)

    def _levels(self, source: int, sink: int) -> list[int] | None:
        """For each node how many edges it takes from the source, -1 for those that are not reached before the sink;
        None if that is not reached."""
        levels = [-1] * len(self._leaving)
        levels[source] = 0
        waiting = [source]
        for here in waiting:
            for edge in self._leaving[here]:
                there = self._ends[edge]
                if levels[there] < 0 and self._left[edge] > 0:
                    levels[there] = levels[here] + 1
                    if there == sink:
                        return levels
                    waiting.append(there)
        return None

    def _fill(self, source: int, sink: int, levels: list[int]) -> None:
        """Send through all ways from level to level what they let through."""
        following = [iter(edges) for edges in self._leaving]
        way: list[int] = []
        here = source
        while True:
            if here == sink:
                here = self._send(way)
            for edge in following[here]:
                if self._left[edge] > 0 and levels[self._ends[edge]] == levels[here] + 1:
                    way.append(edge)
                    here = self._ends[edge]
                    break
            else:
                if not way:
                    return
                here = self._ends[way.pop() ^ 1]

    def _send(self, way: list[int]) -> int:
        """Send through a way what it lets through, and go back on it to where it is full: that node."""
        most = min(self._left[edge] for edge in way)
        if most == math.inf:
            raise ValueError("a way without a bound leads from the source to the sink")
        for edge in way:
            self._left[edge] -= most
            self._left[edge ^ 1] += most
        full = next(number for number, edge in enumerate(way) if not self._left[edge])
        here = self._ends[way[full] ^ 1]
        del way[full:]
        return here
