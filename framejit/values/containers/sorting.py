"""Sorting values: CPython's own sort runs over stand-ins, so that the program's comparisons are made in the order, and
as often, as it makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framejit.signals import NotConstant, Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE

if TYPE_CHECKING:
    from framejit.values.context import Frame


class _Compared:
    """A key whose `<` is carried out in the captured program."""

    __slots__ = ("frame", "value")

    def __init__(self, frame: Frame, value: Value) -> None:
        self.frame, self.value = frame, value

    def __lt__(self, other: _Compared) -> bool:
        return self.frame.truth(self.frame.compare("lt", self.value, other.value))


def sort_values(frame: Frame, items: list[Value], kwargs: dict[str, Value]) -> None:
    """`list.sort` of `items`, in place; where it raises, they are left in the order they had got into."""
    key, reverse = kwargs.get("key", NONE), kwargs.get("reverse", NONE)
    backwards = False
    if "reverse" in kwargs:
        if not (reverse.is_constant() and isinstance(reverse.constant(), int)):
            raise Unsupported(f"sorting with reverse={reverse.describe()}", "FJ161")
        backwards = bool(reverse.constant())
    plain = key.is_constant() and key.constant() is None
    keys = [realize(frame, i) if plain else realize(frame, frame.call(key, [i], {})) for i in items]
    compared: list[Any]
    try:
        compared = [k.constant() for k in keys]
        if not all(type(k) in _PLAIN for k in compared):
            raise NotConstant("a key")
    except NotConstant:
        compared = [_Compared(frame, k) for k in keys]
    before, positions = list(items), list(range(len(items)))
    try:
        positions.sort(key=compared.__getitem__, reverse=backwards)
    except TypeError as e:
        if compared and isinstance(compared[0], _Compared):
            raise
        raise frame.raised_from(e) from None
    finally:
        items[:] = [before[p] for p in positions] if positions or not before else before


_PLAIN = (int, float, str, bytes, bool)
