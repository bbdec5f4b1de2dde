"""Numbers for frames in events."""

from __future__ import annotations

import itertools

_frame_ids = itertools.count(1)


def new_frame_id() -> int:
    """A number for a frame in events, used by no other frame of the process."""
    return next(_frame_ids)
