"""Two code objects side by side."""
from __future__ import annotations

import dis
from collections.abc import Iterator
from itertools import zip_longest
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType
from typing import Any

from framejit._native import Slot

WIDTH = 58
"""Characters of the left column; longer instructions are cut there, and shown whole in the full log."""


_READABLE = (
    type(None), type(...), bool, int, float, complex, str, bytes, tuple, frozenset, slice, CodeType, type, FunctionType,
    BuiltinFunctionType, MethodDescriptorType,
)


def side_by_side(titles: tuple[str, str], codes: tuple[CodeType, CodeType]) -> str:
    """The instructions of two code objects in two columns, each with its source line where a new one begins."""
    rows = [titles, *zip_longest(*map(_instructions, codes), fillvalue="")]
    return "\n".join(f"{_cut(left):<{WIDTH}}  {right}".rstrip() for left, right in rows)


def one_below_the_other(titles: tuple[str, str], codes: tuple[CodeType, CodeType]) -> str:
    """The instructions of two code objects in full, one text below the other, with those of the code objects that are
    their constants."""
    parts: list[str] = []
    for title, code in zip(titles, codes):
        parts.append(title)
        todo = [code]
        while todo:
            shown = todo.pop(0)
            if shown is not code:
                parts.append(f"{shown.co_qualname}:")
            parts += _instructions(shown)
            todo += [constant for constant in shown.co_consts if isinstance(constant, CodeType)]
    return "\n".join(parts)


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def _instructions(code: CodeType) -> Iterator[str]:
    line = None
    readable = code.replace(co_consts=tuple(map(_readable, code.co_consts)))
    for instruction in dis.get_instructions(readable):
        number = instruction.positions.lineno if instruction.positions is not None else None
        shown, line = "" if number in (line, None) else str(number), number or line
        target = ">>" if instruction.is_jump_target else "  "
        argument = (
            ""
            if instruction.arg is None
            else f" {instruction.arg}" + (f" ({instruction.argrepr})" if instruction.argrepr else "")
        )
        yield f"{shown:>5} {target}{instruction.offset:>5} {instruction.opname}{argument}"


class _Text:
    """What stands for a constant."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _readable(constant: Any) -> Any:
    """Of what code written anew calls the class is shown: its own text is long, and may be made by the program."""
    if isinstance(constant, Slot):
        return _Text(f"<Slot {_readable(constant.target)!r}>")
    return constant if type(constant) in _READABLE else _Text(f"<{type(constant).__qualname__}>")
