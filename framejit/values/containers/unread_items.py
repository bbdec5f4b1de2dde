"""What lists, tuples and deques from outside hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import CallSource, IndexSource
from framejit.values.base import Value
from framejit.values.containers.folded_numbers import folded
from framejit.values.inspection import is_a
from framejit.values.lazy import LazyValue

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Frame


class Unread:
    """What an existing list or deque holds, as long as nobody has looked."""

    def __init__(self, capture: Capture, obj: Any, source: Source) -> None:
        self._capture, self._obj, self._source = capture, obj, source
        self._kind: Any = list if is_a(obj, list) else deque

    def look(self) -> list[Value]:
        """The items; how many there are is guarded."""
        self._capture.add_guard(self._source, native.C_LEN, self._kind.__len__(self._obj))
        return existing_items(self._kind.__iter__(self._obj), self._source)  # whatever a subclass says

    def length(self, frame: Frame) -> Value | None:
        """How many items there are, as an int that is not assumed: a list that has all losses grows from call to call.
        None where the number is assumed, by looking at the items, or a subclass may say something else."""
        source = CallSource(self._source, len)
        return frame.wrap(len(self._obj), source) if self._is_open(source) else None

    def _is_open(self, length: Source) -> bool:
        return length.name() in self._capture.changing and type(self._obj) is self._kind

    def folded(self, function: Callable[[Any], Any]) -> Value | None:
        """What a function gives for the items, as a number that is not assumed; None where they are looked at, or are
        not all floats, or all ints."""
        is_open = self._is_open(CallSource(self._source, len))
        return folded(self._capture, function, self._obj, self._source) if is_open else None


def existing_items(items: Iterable[Any], source: Source) -> list[Value]:
    return [LazyValue(item, IndexSource(source, i)) for i, item in enumerate(items)]
