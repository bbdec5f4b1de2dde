"""What a worker has to say of the frame that it was to compile."""

from __future__ import annotations

import marshal
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

from framejit.capture.frame_ids import new_frame_id
from framejit.config import config
from framejit.events import emit, hub, warn
from framejit.late_dataclass import dataclass

Capture = Callable[[Any, FunctionType, tuple[Any, ...]], Any]
"""Captures and compiles a frame of an owner, and gives the entry, or None where it stays Python's."""
KEPT, LEFT, NOT_KEPT = "kept", "left to Python", "not kept"
_REMEMBERED: Final = 4096
_TOLD_AGAIN: Final = {
    KEPT: frozenset(("recompile", "warning", "kernel_failed")),
    LEFT: frozenset(("recompile", "warning", "kernel_failed", "frame_done")),
    NOT_KEPT: frozenset[str](),
}
"""Which events of a worker are told by the program: what is told of an entry that is found is not among them, nor what
the capture will tell that follows."""


@dataclass(frozen=True)
class Reply:
    """What came of it: the entry is `KEPT` on the disk; or the function is `LEFT` to Python from now on; or it is
    `NOT_KEPT`, for the `reason` given."""

    outcome: str
    reason: str
    events: list[tuple[str, dict[str, Any]]]

    @staticmethod
    def read(data: bytes) -> Reply:
        return Reply(*marshal.loads(data))

    def written(self) -> bytes:
        return marshal.dumps((self.outcome, self.reason, self.events))

    def tell(self) -> None:
        """Tell here what the worker has told nobody."""
        for kind, fields in self.events:
            if kind == "warning":
                warn(fields["message"], fields["place"])
            else:
                emit(kind, **{**fields, "frame_id": new_frame_id()} if "frame_id" in fields else fields)


def capture_in_worker(capture: Capture, owner: Any, fn: FunctionType, flat_args: tuple[Any, ...]) -> bytes:
    """Capture and compile a frame in a process of its own, and say what came of it."""
    hub.keep_to_itself()
    config.ring_size = _REMEMBERED
    hub.forget()
    try:
        entry = capture(owner, fn, flat_args)
        if entry is not None:
            from framejit.capture.replacement.graph_failure import rehearse_entry  # is imported by then

            rehearse_entry(entry, fn, flat_args)
    except Exception as e:  # the call that is compiled next raises it, if it is to be raised
        return Reply(NOT_KEPT, f"{type(e).__name__}: {e}", []).written()
    heard = hub.events()
    kept = [event.reason for event in heard if event.kind == "capture_kept"]
    done = [event.reason for event in heard if event.kind == "frame_done"]
    if "" in kept:
        outcome, reason = KEPT, ""
    elif owner.skip:
        outcome, reason = LEFT, done[-1] if done else ""
    else:
        outcome, reason = NOT_KEPT, (kept or done or ["its graph is to run first"])[-1]
    told = [(event.kind, event.fields) for event in heard if event.kind in _TOLD_AGAIN[outcome]]
    return Reply(outcome, reason, told).written()
