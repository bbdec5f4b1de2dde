"""Text of lists, tuples and dicts with numbers in them that are not assumed: `str(metrics)`, `json.dumps(metrics)`.

Replacement code makes the data anew, with the numbers of the call in their places, and has its text written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from framejit.late_dataclass import dataclass
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.sequence import SequenceValue
from framejit.values.runtime_numbers.number_texts import text_made_of

if TYPE_CHECKING:
    from framejit.values.context import Frame

_PLAIN: Final = (str, int, float, bool, type(None))
_DEEPEST: Final = 20
"""Data that holds data further down than this is left to others; it may hold itself."""


@dataclass(frozen=True, eq=False)
class Hole:
    """Where a number goes, by its place among those that are given."""

    place: int


@dataclass(frozen=True, eq=False)
class Filled:
    """The text that `write` makes of data with numbers in its holes."""

    write: Callable[[Any], str]
    data: Any

    def __call__(self, *numbers: Any) -> str:
        return self.write(_filled(self.data, numbers))


def _filled(data: Any, numbers: tuple[Any, ...]) -> Any:
    if type(data) is Hole:
        return numbers[data.place]
    if type(data) is dict:
        return {key: _filled(item, numbers) for key, item in data.items()}
    return type(data)(_filled(item, numbers) for item in data) if type(data) in (list, tuple) else data


def text_of_data(frame: Frame, write: Callable[[Any], str], data: Value) -> Value | None:
    """The text of a list, tuple or dict; None where no number in it is open, or there is more than plain data in it."""
    if not isinstance(data, (SequenceValue, DictValue)):
        return None
    numbers: list[Value] = []
    found = _with_holes(frame, data, numbers, 0)
    return None if found is None or not numbers else text_made_of(Filled(write, found[0]), numbers)


def _with_holes(frame: Frame, value: Value, numbers: list[Value], depth: int) -> tuple[Any] | None:
    """What a value is as plain data, with holes for the numbers that are not known; None for what is none."""
    value = realize(frame, value)
    if isinstance(value, ConstantValue):
        return (value.value,) if type(value.value) in _PLAIN else None
    kind = value.python_type()
    if kind in (int, float, str):
        numbers.append(value)
        return (Hole(len(numbers) - 1),)
    if depth > _DEEPEST:
        return None
    if isinstance(value, DictValue) and kind is dict and all(type(key) in _PLAIN for key in value.items):
        parts = [_with_holes(frame, item, numbers, depth + 1) for item in value.items.values()]
    elif isinstance(value, SequenceValue) and kind in (list, tuple):
        parts = [_with_holes(frame, item, numbers, depth + 1) for item in value.items]
    else:
        return None
    items = [part[0] for part in parts if part is not None]
    if len(items) < len(parts):
        return None
    return (dict(zip(value.items, items)) if isinstance(value, DictValue) else kind(items),)
