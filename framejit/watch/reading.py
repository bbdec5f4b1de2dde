"""Standard input that says so before the script reads from it."""
from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any


class _Raw(io.FileIO):
    """Standard input's file. `input()` asks for its number, and reads by itself."""

    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__(0, "r", closefd=False)
        self.name = "<stdin>"  # as Python names it
        self._act = act

    def fileno(self) -> int:
        self._act()
        return super().fileno()

    def readinto(self, buffer: Any, /) -> int | None:
        self._act()
        return super().readinto(buffer)

    def readall(self) -> bytes:
        self._act()
        return super().readall()


def before_reading(act: Callable[[], Any]) -> None:
    """Call `act` whenever the script is about to read from `sys.stdin`, or asks for its file's number to do so.

    To be called before anything is read: what Python has read ahead would be lost.
    """
    plain = sys.stdin
    told = io.TextIOWrapper(
        io.BufferedReader(_Raw(act)), encoding=plain.encoding, errors=plain.errors,
        line_buffering=bool(plain.line_buffering),
    )
    told.mode = "r"  # type: ignore[misc]  # as Python's own has it
    sys.stdin = sys.__stdin__ = told  # type: ignore[misc]
