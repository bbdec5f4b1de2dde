"""Modules that a thread is importing while others run. The import system hands out halves of modules to threads that
would wait for each other."""

from __future__ import annotations

import sys
import threading
from importlib import _bootstrap


def is_being_imported(name: str) -> bool:
    """Whether a module is there and not yet complete."""
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


def met_half_a_module(error: BaseException | None) -> bool:
    """Whether an exception comes of a module that is being imported, by this thread or another."""
    while error is not None:
        if type(error).__name__ == "_DeadlockError":
            return True
        if isinstance(error, (ImportError, AttributeError)) and "most likely due to a circular import" in str(error):
            return True
        error = error.__cause__
    return False


def other_threads_import() -> bool:
    """Whether a thread other than this one is importing a module, and so holds its lock."""
    here = threading.get_ident()
    locks = [reference() for reference in list(_bootstrap._module_locks.values())]  # type: ignore[attr-defined]
    return any(getattr(lock, "owner", None) not in (None, here) for lock in locks)
