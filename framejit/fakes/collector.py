"""The garbage collector rests while a frame is captured.

A capture makes many objects that live until its end, and each full collection they set off walks everything the program
has loaded: with a large library imported that takes longer than the capture. Cycles are few, and `Capture.close` takes
the large ones apart.
"""
from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_resting = 0
_was_enabled = False


def _change(by: int) -> None:
    """Threads rest it together: the first one stops it, the last one lets it go on if it was running."""
    global _resting, _was_enabled
    with _lock:
        if _resting == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _resting += by
        if _resting == 0 and _was_enabled:
            gc.enable()


def is_resting() -> bool:
    """Whether any thread captures a frame, or reads what was captured."""
    return _resting > 0


@contextmanager
def resting() -> Iterator[None]:
    _change(+1)
    try:
        yield
    finally:
        _change(-1)


@contextmanager
def working() -> Iterator[None]:
    """Inside `resting()`: for the time of a call of foreign code."""
    _change(-1)
    try:
        yield
    finally:
        _change(+1)
