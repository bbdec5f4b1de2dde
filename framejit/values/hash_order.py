"""What depends on hashes: those of text are drawn anew by each process, those of objects are their addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framejit.values.context import Assumed


def is_text(key: Any) -> bool:
    """Whether a constant's hash goes by what it holds, some text among that."""
    return type(key) in (str, bytes) or type(key) is tuple and all(is_text(part) or _is_number(part) for part in key)


def _is_number(key: Any) -> bool:
    return type(key) in (int, float, complex, bool)


def note_order(assumed: Assumed, members: Iterable[Any]) -> None:
    """Something depends on the order in which a set has its members."""
    members = [*members]
    if not all(is_text(member) or _is_number(member) for member in members):
        assumed.holds_only_here("it depends on the order of objects in a set")
    elif any(map(is_text, members)):
        assumed.depends_on_hashes()
