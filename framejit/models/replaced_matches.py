"""`Pattern.sub` and `Pattern.subn` with a function for the replacement; with a text they are folded."""

from __future__ import annotations

from typing import Any


def sub(pattern: Any, /, repl: Any, string: Any, count: int = 0) -> Any:
    return _substituted(pattern, repl, string, count)[0]


def subn(pattern: Any, /, repl: Any, string: Any, count: int = 0) -> Any:
    return _substituted(pattern, repl, string, count)


def _substituted(pattern: Any, repl: Any, string: Any, count: int) -> tuple[Any, int]:
    pieces: list[Any] = []
    end = made = 0
    if count >= 0:
        for match in pattern.finditer(string):
            start = match.start()
            if end < start:
                pieces.append(string[end:start])
            piece = repl(match)
            if piece is not None:
                pieces.append(piece)
            end = match.end()
            made += 1
            if made == count:
                break
    if end < len(string):
        pieces.append(string[end:])
    return string[:0].join(pieces), made
