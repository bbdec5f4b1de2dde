"""Bytes of a keyboard as keys."""
from __future__ import annotations

import re
from typing import Final

UP, DOWN, OPEN, CLOSE, LEAVE = "up", "down", "open", "close", "leave"

_KEYS: Final = {
    b"\x1b[A": UP, b"\x1bOA": UP, b"k": UP,
    b"\x1b[B": DOWN, b"\x1bOB": DOWN, b"j": DOWN,
    b"\r": OPEN, b"\n": OPEN, b"o": OPEN,
    b"\x1b": CLOSE, b"q": LEAVE,
}
_ONE: Final = re.compile(rb"\x1b(?:[\[O][0-9;]*[A-Za-z~])?|.", re.S)
HELP: Final = "↑ ↓ or j k: choose a break   enter or o: open the finding, or close it   q: leave the view to the output"


def keys(data: bytes) -> list[str]:
    """The keys that were pressed, without those that mean nothing."""
    return [_KEYS[found] for found in _ONE.findall(data) if found in _KEYS]
