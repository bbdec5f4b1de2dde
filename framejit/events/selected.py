"""The event for an `if` on data of which both branches are in a graph, and for a loop on data that is in one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from framejit.events import emit
from framejit.events.place import Place


def tell_selected(frame_id: int, function: str, selected: Iterable[tuple[Place, int, str]]) -> None:
    """Tell of each `if` and each loop of a frame's graph: where it stands, and how many operations its branches have,
    or a turn of it."""
    for place, operations, form in selected:
        emit("selected", frame_id=frame_id, function=function, operations=operations, form=form, **asdict(place))
