"""What compiling beside the program takes to be imported is imported by a thread, so that no call waits for it."""

from __future__ import annotations

import importlib
import os
import threading
from typing import Final

_MODULES: Final = (
    "framejit.background.compiling", "framejit.capture.breaks.kept_step", "framejit.backends.fuse.kept",
    "framejit.backends.fuse.kept_sizes", "framejit.backends.fuse.llvm.compiled_kernel",
)
_PATIENCE_S: Final = 5.0
"""A fork of the program waits so long: it would have the locks of modules that nobody imports any more."""
_starting = threading.Lock()
_thread: threading.Thread | None = None
_done = False


def are_imported() -> bool:
    """Whether all is there. The first to ask has a thread import it."""
    global _thread
    if not _done and _starting.acquire(blocking=False):
        try:
            if _thread is None:
                # not a daemon: libraries that are being loaded when the interpreter ends would take it with them
                _thread = threading.Thread(target=_import, name="framejit imports")
                os.register_at_fork(before=_wait)
                _thread.start()
        except RuntimeError:  # the interpreter ends, and there are no new threads
            _import()
        finally:
            _starting.release()
    return _done


def _import() -> None:
    global _done
    try:
        for name in _MODULES:
            importlib.import_module(name)
        from framejit.kept.surroundings import process_hash

        process_hash()
    except ImportError:  # who comes to need it says so
        pass
    finally:
        _done = True


def _wait() -> None:
    if _thread is not None and _thread is not threading.current_thread():
        _thread.join(_PATIENCE_S)
