"""A text in which names can be replaced by others again and again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_NAME: Final = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
"""A name that is no attribute."""


class NamedText:
    """A text, and where some names stand in it."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        place = {name: number for number, name in enumerate(names)}
        end = 0
        self._parts: list[str] = []
        self._names: list[tuple[int, int]] = []
        """The parts that are names, each with its number among them."""
        for match in _NAME.finditer(text):
            if match[0] in place:
                self._parts += [text[end : match.start()], match[0]]
                self._names.append((len(self._parts) - 1, place[match[0]]))
                end = match.end()
        self._parts.append(text[end:])

    def text(self, names: Sequence[str]) -> str:
        """The text with these in the places of the names."""
        for part, number in self._names:
            self._parts[part] = names[number]
        return "".join(self._parts)
