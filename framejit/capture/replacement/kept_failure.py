"""What becomes of a call whose graph raises, where the entry is from another process: as for any, but nothing is known
of the operation at fault. So the entry goes, and the next call is captured here, which learns what there is to learn.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

from framejit import _native as native
from framejit.bytecode.flattened import flattened
from framejit.capture.breaks.resume_points import ResumePoints
from framejit.capture.capture import StateChange
from framejit.capture.replacement.graph_failure import GraphFailure, Kept, owned_entry
from framejit.events import emit


class KeptFailure(GraphFailure):
    """`part` is what stands in the entry's slot; `give_up` has the record dropped."""

    def __init__(
        self, owner: weakref.ref[Any], fn: FunctionType, points: ResumePoints, part: object,
        initial_state: list[StateChange], has_effects: bool, give_up: Callable[[], None],
    ) -> None:
        function: Any = fn
        self._code, self._globals, self._builtins = flattened(fn.__code__), fn.__globals__, function.__builtins__
        self._resumed = fn if hasattr(fn, "_framejit_resume") else None
        self._points = points
        self._owner, self._part, self._give_up = owner, part, give_up
        self._initial_state, self._has_effects = initial_state, has_effects

    def __call__(self, error: BaseException, kept: Any, cells: tuple[CellType, ...], *args: Any) -> Any:
        """`kept` is what the entry's keeper gave, or None."""
        return super().__call__(error, Kept(*kept) if isinstance(kept, tuple) else kept, cells, *args)

    def _entry(self) -> native.Entry | None:
        return owned_entry(self._owner(), self._part)

    def _learn(self, text: str, was_warning: bool, cells: tuple[CellType, ...], args: tuple[Any, ...]) -> None:
        owner, entry = self._owner(), self._entry()
        self._give_up()
        if owner is None or entry is None:
            return
        owner.remove_entry(entry)
        options = owner.options
        emit(
            "graph_raised", frame_id=0, function=options.name, file=options.file or "", line=options.line or 0,
            error=text, outcome="the call was run again as plain Python, and the next one is captured anew",
        )
