"""HTML that is escaped by construction: only `element` makes `Html`, and it escapes whatever is not `Html` already."""
from __future__ import annotations

from html import escape
from typing import Any

_VOID = frozenset(("meta", "input", "br", "line", "rect", "path"))


class Html(str):
    """Text that is HTML; everything else is text to be shown."""

    __slots__ = ()


def element(name: str, /, *children: Any, **attributes: Any) -> Html:
    """`<name ...>children</name>`. `class_` stands for class, `_` in other names for `-`; None and False leave an
    attribute out."""
    written = ""
    for key, value in attributes.items():
        if value is not None and value is not False:
            shown = "" if value is True else f'="{escape(str(value))}"'
            written += f" {key.rstrip('_').replace('_', '-')}{shown}"
    if name in _VOID:
        return Html(f"<{name}{written}/>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Any) -> Html:
    """Children one after the other; lists are taken apart, None is left out."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, (list, tuple)):
            parts.append(join(child))
        elif child is not None:
            parts.append(child if isinstance(child, Html) else escape(str(child)))
    return Html("".join(parts))


def plural(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
