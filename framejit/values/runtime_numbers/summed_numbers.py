"""`sum` of numbers that are not assumed, by `sum` itself, which from CPython 3.12 on keeps what rounding loses: it is
not what additions one after the other come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from framejit.backends.number_calls import total
from framejit.guards.sources import BinarySource, ComputedSource, Source, TypedKey
from framejit.late_dataclass import dataclass
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.runtime_numbers.number_calls import call_on_read
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.runtime_numbers.size_number import place_of
from framejit.values.sym_int import LARGEST, SymIntValue
from framejit.values.sym_number import SymNumberValue, guard_answer

if TYPE_CHECKING:
    from framejit.values.context import Capture

KEEPS_WHAT_ROUNDING_LOSES: Final = sum([1.0, 1e100, 1.0, -1e100]) == 2.0
"""Whether this Python's `sum` does."""


@dataclass(frozen=True)
class SumOf:
    """Adds up numbers that are known and, where None stands, those that it is called with; before them, if `has_list`,
    all of a list that it is called with first."""

    parts: tuple[TypedKey | None, ...]
    has_list: bool

    def __call__(self, *given: Any) -> Any:
        left = iter(given)
        first = [*next(left)] if self.has_list else []
        return sum([*first, *(next(left) if part is None else part.value for part in self.parts)])


class SummedNumberValue(SymNumberValue):
    """Such a sum. It is never a negative zero, which equals another number."""

    def assume(self) -> None:
        guard_answer(self.capture, BinarySource(self.source, "==", "eq", TypedKey(self.value)), True)

    def _inner_leaves(self) -> tuple[SymNumberValue, ...]:
        return (self,)


def sum_of(
    capture: Capture, items: Sequence[Value], listed: tuple[Sequence[int | float], Source] | None = None
) -> Value | None:
    """The sum of all items of a list, which are numbers of kinds that are guarded, and of others; None where these
    have to be known."""
    if listed is None and any(isinstance(item, ReadNumberValue) for item in items):
        return call_on_read(total, total.__name__, items)
    parts: list[TypedKey | None] = []
    numbers, places = ([*listed[0]], [listed[1]]) if listed is not None else (list[int | float](), list[Source]())
    for item in items:
        if isinstance(item, ConstantValue) and type(item.value) in (int, float) and abs(item.value) <= LARGEST:
            parts.append(TypedKey(item.value))
            numbers.append(item.value)
            continue
        if isinstance(item, SymIntValue) and not item.is_of_data():
            numbers.append(int(item.size.node.hint))
            places.append(place_of(item))
        elif isinstance(item, SymNumberValue) and item.as_float() is not None:
            numbers.append(item.value)
            places.append(item.source)
        else:
            return None
        parts.append(None)
    now = sum(numbers)
    if now != now:  # nan equals nothing
        return None
    return SummedNumberValue(capture, now, ComputedSource(SumOf(tuple(parts), listed is not None), tuple(places)))
