"""The garbage collector rests while a frame is captured.

A capture makes many objects that live until its end, and each full collection they set off walks everything the program
has loaded: with a large library imported that takes longer than the capture. Cycles are few, and `Capture.close` takes
the large ones apart.
"""
from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

_lock = threading.Lock()
_own = threading.local()
_resting = 0
"""Threads that have it rest."""
_was_enabled = False
_GENERATIONS: Final = sys.version_info < (3, 14)
"""Whether a collection that is due may be one of all that the program has loaded; later ones go by increments."""
FIRST: Final = 8
"""After so many rests of a process the objects of each are no more taken for old ones: what lives shortly among them is
collected with old objects only."""
_rests = 0
"""How many there were of these."""
FROZEN_BY_PYTHON: Final = 1000
"""So many objects are frozen by nobody but CPython, which freezes some hundred in 3.12 as it starts; a program that
freezes has thousands by then. Those of a program stay frozen."""


def _change(by: int) -> None:
    """Threads rest it together: the first one stops it, the last one lets it go on if it was running."""
    global _resting, _was_enabled, _rests
    with _lock:
        if _resting == 0:
            # where an exception from outside has kept it from going on before, it goes on behind this rest
            _was_enabled = _was_enabled or gc.isenabled()
            gc.disable()
        _resting += by
        if _resting == 0 and _was_enabled:
            if _GENERATIONS and _rests < FIRST and gc.get_freeze_count() < FROZEN_BY_PYTHON:
                _rests += 1
                _take_for_old()
            gc.enable()
            _was_enabled = False


def _take_for_old() -> None:
    """Take all objects for old ones, without looking at any. After the imports of a first capture a collection of all
    would be due, which takes as long as they do."""
    gc.freeze()
    gc.unfreeze()


def rests_for_others() -> bool:
    """Whether another thread captures a frame, or reads what was captured."""
    return _resting > bool(_depth())


def _depth() -> int:
    """In how many blocks of `resting` this thread is."""
    return getattr(_own, "depth", 0)


@contextmanager
def _at(depth: int) -> Iterator[None]:
    before = _depth()
    _own.depth = depth
    change = bool(depth) - bool(before)
    if change:
        _change(change)
    try:
        yield
    finally:
        _own.depth = before
        if change:
            _change(-change)


def resting() -> AbstractContextManager[None]:
    """While in the block, nothing is collected."""
    return _at(_depth() + 1)


def working() -> AbstractContextManager[None]:
    """Inside of `resting()`: for the time of a call of foreign code."""
    return _at(0)
