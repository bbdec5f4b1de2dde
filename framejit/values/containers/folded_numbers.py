"""`sum`, `max` and `min` of all numbers of a list from outside, as a number that is not assumed."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import TYPE_CHECKING, Any, Final

from framejit import _native as native
from framejit.guards.sources import CallSource
from framejit.late_dataclass import dataclass
from framejit.values.base import Value
from framejit.values.sym_int import LARGEST, SymIntValue
from framejit.values.sym_number import SymNumberValue

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture

NUMBERS: Final = (int, float)


@dataclass(frozen=True)
class Between:
    """The items of a list or deque without so many at its ends, as a list."""

    first: int
    last: int

    def __call__(self, items: Any) -> list[Any]:
        return [*items][self.first : len(items) - self.last]


@dataclass(frozen=True)
class LastItems:
    """So many items of a list before the last ones that do not count, as a list."""

    count: int
    last: int

    def __call__(self, items: list[Any]) -> list[Any]:
        end = len(items) - self.last
        return items[end - self.count : end]


def folded(
    capture: Capture, function: Callable[[Any], Any], numbers: Any, source: Source, part: Between | None = None
) -> Value | None:
    """What the function gives for a list or deque, or a part of it, which replacement code finds anew at each call;
    None unless all items are floats or ints."""
    if part is not None:
        numbers, source = part(numbers), CallSource(source, part)
    if of_numbers(capture, numbers, source) is None:
        return None
    found, place = function(numbers), CallSource(source, function)
    if kind_of_numbers(numbers) is Real:
        capture.add_guard(place, native.C_TYPE, type(found))
    return open_number(capture, found, place)


def of_numbers(capture: Capture, items: Any, source: Source) -> tuple[Any, Source] | None:
    """The items of a list and where that is, if all are numbers of the kinds that are guarded; None of others."""
    kind = kind_of_numbers(items)
    if kind is None:
        return None
    capture.add_guard(CallSource(source, kind_of_numbers), native.C_ID, kind)
    return items, source


def open_number(capture: Capture, number: int | float, place: Source) -> Value:
    """A number that is not assumed, and is surely of this class."""
    if type(number) is int and not capture.dynamic.never and 0 <= number <= LARGEST:
        return SymIntValue(capture.sizes.number(number, place), place, number)
    return SymNumberValue(capture, number, place)


def kind_of_numbers(items: Any) -> type | None:
    """The class of all items, where that is int or float; Real where both are among them, and no int is too large to be
    added up."""
    kinds = set(map(type, items))
    if not kinds or not kinds.issubset(NUMBERS):
        return None
    if len(kinds) == 1:
        return kinds.pop()
    return Real if all(type(item) is float or abs(item) <= LARGEST for item in items) else None
