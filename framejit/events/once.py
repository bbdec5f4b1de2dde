"""Warnings to the user: each once, with the place it is about, as an event and through Python's `warnings`."""
from __future__ import annotations

import warnings

from framejit.errors import FramejitWarning

_told: set[tuple[str, object]] = set()


def warn(message: str, place: tuple[str, int] | None = None) -> None:
    """Warn once about `message` at `place`, a (file, line) of the user's code."""
    from framejit.events.hub import emit

    if (message, place) in _told:
        return
    _told.add((message, place))
    emit("warning", message=message, place=place)
    file, line = place or ("framejit", 0)
    warnings.warn_explicit(f"framejit: {message}", FramejitWarning, file, line)


def forget() -> None:
    """Warnings that were given may be given again."""
    _told.clear()
