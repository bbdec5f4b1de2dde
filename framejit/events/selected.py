"""The event for an `if` on data of which both branches are in a graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from framejit.events import emit
from framejit.events.place import Place


def tell_selected(frame_id: int, function: str, selected: Iterable[tuple[Place, int]]) -> None:
    """Tell of each `if` of a frame's graph: where it stands, and how many operations its branches have."""
    for place, operations in selected:
        emit("selected", frame_id=frame_id, function=function, operations=operations, **asdict(place))
