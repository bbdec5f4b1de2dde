"""When frames were captured and their graphs compiled."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any

from framejit.events import Event
from framejit.late_dataclass import dataclass


@dataclass
class Span:
    """A frame's capture, and the time of it that backends took; nanoseconds."""

    function: str
    start: int
    end: int
    state: str = ""
    compiles: list[tuple[int, int]] = field(default_factory=list)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Span:
        """The span in a report."""
        compiles = [(_ns(start), _ns(end)) for start, end in data["compiles_us"]]
        return Span(data["function"], _ns(data["start_us"]), _ns(data["end_us"]), data["state"], compiles)

    def to_dict(self, origin: int) -> dict[str, Any]:
        """The span as plain data, in microseconds since `origin`."""
        compiles = [[_us(start - origin), _us(end - origin)] for start, end in self.compiles]
        return {
            "function": self.function, "start_us": _us(self.start - origin), "end_us": _us(self.end - origin),
            "state": self.state, "compiles_us": compiles,
        }


def spans(events: Iterable[Event]) -> list[Span]:
    """The captures, in the order of their beginnings."""
    found: list[Span] = []
    current: dict[int, Span] = {}
    for event in events:
        if event.kind == "capture_started":
            current[event.frame_id] = Span(event.function, event.time_ns, event.time_ns)
            found.append(current[event.frame_id])
        elif event.kind == "backend" and event.frame_id in current:
            current[event.frame_id].compiles.append((event.time_ns - int(event.seconds * 1e9), event.time_ns))
        elif event.kind == "frame_done" and event.frame_id in current:
            span = current.pop(event.frame_id)
            span.end, span.state = event.time_ns, event.state
    return [span for span in found if span.state]


def to_dicts(captures: list[Span]) -> list[dict[str, Any]]:
    """The spans as plain data; time counts from the beginning of the first."""
    origin = min((span.start for span in captures), default=0)
    return [span.to_dict(origin) for span in captures]


def _us(ns: int) -> float:
    return round(ns / 1000, 3)


def _ns(us: float) -> int:
    return round(us * 1000)
