"""Operations that are run besides the program's own, on fakes or for a trial, warn of nothing."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def without_warnings() -> Iterator[list[str]]:
    """For operations that are run besides the program's own: what they warn of the program's own run says. Gives the texts of warnings that were dropped.

    What was shown once is not shown again afterwards, as it is after `warnings.catch_warnings`; and what torch warns of once in a process, it still will.
    """
    filters, heard = warnings.filters, ("always", None, UserWarning, None, 0)
    thread, show, always = threading.get_ident(), warnings._showwarnmsg, torch.is_warn_always_enabled()  # type: ignore[attr-defined]
    texts: list[str] = []

    def note(message: Any) -> None:
        if threading.get_ident() == thread:
            texts.append(str(message.message))
        else:
            show(message)

    filters.insert(0, heard)  # type: ignore[attr-defined]
    warnings._showwarnmsg = note  # type: ignore[attr-defined]
    torch.set_warn_always(True)
    try:
        yield texts
    finally:
        torch.set_warn_always(always)
        warnings._showwarnmsg = show  # type: ignore[attr-defined]
        filters.remove(heard)  # type: ignore[attr-defined]
