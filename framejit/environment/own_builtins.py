"""The builtins that framejit is written with. A program may put its own in their place; then nothing is captured until
they are back.

Compiling would call the program's functions, hundreds of times, and types of its own are not what the compiler takes
them for.
"""
from __future__ import annotations

import builtins
from types import CodeType
from typing import Any, Final

_NAMES: Final = """
__import__ abs all any bool bytes callable chr classmethod complex delattr dict dir divmod enumerate filter float
format frozenset getattr hasattr hash id int isinstance issubclass iter len list map max min next object ord pow
property range repr reversed round set setattr slice sorted staticmethod str sum super tuple type vars zip
"""
_OWN: Final[tuple[tuple[str, Any], ...]] = tuple((name, getattr(builtins, name)) for name in _NAMES.split())
_table: Final = vars(builtins)


untold: Final[dict[str, CodeType]] = {}
"""Replaced builtins by name, and code that ran as it is for that reason: telling of it calls builtins, and so has to
wait."""


def builtins_are_replaced(code: CodeType) -> bool:
    """Whether a frame of this code is to be left to Python, because a builtin is not Python's own. Calls none."""
    for name, own in _OWN:
        if _table.get(name) is not own:
            untold[name] = code
            return True
    return False
