"""Triton's library brought into memory while the program still does something else.

The library is so large that mapping it takes longer than all of Triton's imports together. Only that is done ahead, by
a thread that needs no lock of Python's: modules imported by a thread of its own could get into the way of imports of
the program's.
"""
from __future__ import annotations

import contextlib
import ctypes
import threading
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@cache
def preload() -> threading.Thread | None:
    """Begin, unless that was done before; None if there is no Triton."""
    spec = find_spec("triton")  # of a package that is in none, without importing it
    if spec is None or spec.origin is None:
        return None
    thread = threading.Thread(
        target=_load, args=(Path(spec.origin).parent / "_C" / "libtriton.so",), name="framejit-preload", daemon=True
    )
    thread.start()
    return thread


def _load(library: Path) -> None:
    with contextlib.suppress(OSError):  # then importing it will say why
        ctypes.CDLL(str(library))
