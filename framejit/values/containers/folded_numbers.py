"""`sum`, `max` and `min` of all numbers of a list from outside, as a number that is not assumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from framejit import _native as native
from framejit.guards.sources import CallSource
from framejit.values.base import Value
from framejit.values.sym_int import LARGEST, SymIntValue
from framejit.values.sym_number import SymNumberValue

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture

NUMBERS: Final = (int, float)


def folded(capture: Capture, function: Callable[[Any], Any], numbers: list[Any], source: Source) -> Value | None:
    """What the function gives for a list, which replacement code finds anew at each call; None unless all items are
    floats, or all are ints."""
    kind = kind_of_numbers(numbers)
    if kind is None:
        return None
    capture.add_guard(CallSource(source, kind_of_numbers), native.C_ID, kind)
    found, place = function(numbers), CallSource(source, function)
    if kind is int and not capture.dynamic.never and 0 <= found <= LARGEST:
        return SymIntValue(capture.sizes.number(found, place), place, found)
    return SymNumberValue(capture, found, place)


def kind_of_numbers(items: list[Any]) -> type | None:
    """The class of all items, where that is int or float."""
    kinds = set(map(type, items))
    return kinds.pop() if len(kinds) == 1 and kinds.issubset(NUMBERS) else None
