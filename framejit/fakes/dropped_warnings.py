"""Operations that are run besides the program's own, on fakes or for a trial, warn of nothing."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import torch

from framejit._native import show_warnings_again

_HEARD = ("always", None, UserWarning, None, 0)
# Reentrant: a finalizer may capture while this thread holds it.
_lock = threading.RLock()
# The trials of a thread, innermost last: the texts that each drops, and the filters that it put its own before. Those
# are the thread's: where warnings are handled by context (3.14), each context may have its own, and they come before
# those of the process.
_listening: dict[int, list[tuple[list[str], list[Any]]]] = {}
# What all threads share (the function that shows warnings, torch's switch) is changed by the first thread that begins a
# trial and put back by the last that ends one: threads that each put back what they found would put back each other's.
_found: tuple[Any, bool] | None = None
_SHOWN: Final = warnings._showwarnmsg  # type: ignore[attr-defined]


@contextmanager
def without_warnings() -> Iterator[list[str]]:
    """For operations that are run besides the program's own: what they warn of the program's own run says. Gives the
    texts of warnings that were dropped.

    What was shown once is not shown again afterwards, as it is after `warnings.catch_warnings`; and what torch warns of
    once in a process, it still will.
    """
    texts: list[str] = []
    thread = threading.get_ident()
    try:
        _begin(thread, texts)
        yield texts
    finally:
        _end(thread, texts)


def without_warning_of(dtype: torch.dtype) -> AbstractContextManager[Any]:
    """For memory that is made besides the program's own: torch warns whenever it is for complex numbers of halves."""
    return without_warnings() if dtype is torch.complex32 else nullcontext()


def _filters() -> list[Any]:
    of_context = getattr(warnings, "_get_filters", None)
    return of_context() if of_context is not None else warnings.filters  # type: ignore[return-value]


def _begin(thread: int, texts: list[str]) -> None:
    global _found
    with _lock:
        filters = _filters()
        _listening.setdefault(thread, []).append((texts, filters))
        filters.insert(0, _HEARD)
        if _found is None:
            shown = warnings._showwarnmsg  # type: ignore[attr-defined]
            # an exception from outside may have kept it from being put back
            _found = _SHOWN if shown is _note else shown, torch.is_warn_always_enabled()
            warnings._showwarnmsg = _note  # type: ignore[attr-defined]
            torch.set_warn_always(True)


def _end(thread: int, texts: list[str]) -> None:
    global _found
    with _lock:
        left = []
        for trial in _listening.pop(thread, []):
            # By identity: texts of an outer trial may be equal. An exception from outside may have come before these
            # were put down.
            if trial[0] is not texts:
                left.append(trial)
            elif _HEARD in trial[1]:
                trial[1].remove(_HEARD)
        if left:
            _listening[thread] = left
        if not _listening and _found is not None:
            show, always = _found
            _found = None
            torch.set_warn_always(always)
            show_warnings_again(show)


def _note(message: Any) -> None:
    trials, found = _listening.get(threading.get_ident()), _found
    if trials:
        trials[-1][0].append(str(message.message))
    elif found is not None:
        found[0](message)
    else:
        # The last trial of another thread ended between the lookup of this function and here.
        shown = warnings._showwarnmsg  # type: ignore[attr-defined]
        (_SHOWN if shown is _note else shown)(message)
