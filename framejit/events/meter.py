"""Measures what graph breaks cost, for `explain`: how often each ran, and the time between the graphs it parts.

Code that is compiled while the meter runs calls it; code compiled otherwise has no trace of it, so that a plain call
pays nothing.
"""
from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter_ns

from framejit.events.event import Event
from framejit.events.hub import subscribe
from framejit.late_dataclass import dataclass

Spot = tuple[str, int, int | None, int | None]  # file, line, first and last column
Owner = tuple[str, str, int]  # function, file, first line


@dataclass
class Cost:
    """How often something ran, and how many nanoseconds that took altogether."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.ns += ns


class _Clocks(threading.local):
    left = 0  # when this thread last left a graph
    spot: Spot | None = None  # the break that ran since and is not over
    since = 0


class Meter:
    """Counts and clocks breaks and graphs."""

    def __init__(self) -> None:
        self.running = 0
        """How many want to know; code compiled while it is not 0 is measured."""
        self.breaks: dict[Spot, Cost] = {}
        self.graphs: dict[Owner, Cost] = {}
        self._clocks = _Clocks()
        self._lock = threading.Lock()
        self._unsubscribe: Callable[[], None] = _nothing

    def start(self) -> None:
        with self._lock:
            if not self.running:
                self.breaks, self.graphs = {}, {}
                self._unsubscribe = subscribe(self._hear)
            self.running += 1

    def stop(self) -> None:
        with self._lock:
            self.running -= 1
            if not self.running:
                self._unsubscribe()

    # ---- called by compiled code --------------------------------------------------------------------

    def entered(self) -> None:
        """A compiled entry begins: what ran between the graphs is over."""
        clocks, now = self._clocks, perf_counter_ns()
        if clocks.spot is not None:
            self._break(clocks.spot).ns += now - clocks.since
            clocks.spot = None
        clocks.left = now

    def ran_graph(self, owner: Owner) -> None:
        """The graph of the entry is done."""
        clocks, now = self._clocks, perf_counter_ns()
        self.graphs.setdefault(owner, Cost()).add(now - clocks.left)
        clocks.left = now

    def ran_break(self, spot: Spot) -> None:
        """A broken instruction was carried out in plain Python."""
        clocks, now = self._clocks, perf_counter_ns()
        self._break(spot).add(now - clocks.left)
        clocks.spot, clocks.since = spot, now

    # ---- the time compiling takes is no cost of a break ------------------------------------------------

    def _hear(self, event: Event) -> None:
        clocks = self._clocks
        if event.kind == "capture_started" and clocks.spot is not None:
            self._break(clocks.spot).ns += perf_counter_ns() - clocks.since
            clocks.spot = None

    def _break(self, spot: Spot) -> Cost:
        return self.breaks.setdefault(spot, Cost())


def _nothing() -> None:
    return None


meter = Meter()
