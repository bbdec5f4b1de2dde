"""The table of opcode handlers.

A handler registers under an opcode name with the versions that have it; registration checks that the running
interpreter's opcode exists, so a misspelt or vanished opcode is an error at import.
"""
from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framejit.bytecode.spellings import ENTER_WITH

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction

Handler = Callable[[Any, "Instruction"], Any]
"""What an instruction does with a frame; it gives the index of the instruction to go on with, or None for the next."""
HANDLERS: dict[str, Handler] = {}

# Opcodes that are not captured, each with the reason a graph break there gives.
BREAKS: dict[str, str] = {}

VERSION = sys.version_info[:2]
NEWEST = (3, 15)


def opcode(
    *names: str, since: tuple[int, int] = (3, 11), until: tuple[int, int] = NEWEST
) -> Callable[[Handler], Handler]:
    """Register a handler for opcodes that exist from Python `since` to `until`, both included."""

    def register(handler: Handler) -> Handler:
        if since <= VERSION <= until:
            for name in names:
                if name not in dis.opmap and name != ENTER_WITH:
                    raise AssertionError(f"{name} is no opcode of Python {VERSION[0]}.{VERSION[1]}")
                if name in HANDLERS:
                    raise AssertionError(f"{name} has two handlers")
                HANDLERS[name] = handler
        return handler

    return register


def breaks(reason: str, *names: str) -> None:
    """Declare opcodes (those the running version has) as graph breaks."""
    for name in names:
        if name in dis.opmap:
            BREAKS[name] = reason
