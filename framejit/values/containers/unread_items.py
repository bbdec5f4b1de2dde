"""What lists, tuples and deques from outside hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import CallSource, IndexSource
from framejit.signals import Unsupported
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
        """The items; how many there are is guarded. Breaks the graph where that would be another number in each
        call."""
        if self._capture.is_ever_new(CallSource(self._source, len).name()) and self._goes_on_growing():
            raise Unsupported(
                f"what {self._source.name()!r} holds, which is longer from call to call", "FJ121",
                "add up what is needed as it comes, or look at the whole list outside the compiled function",
            )
        self._capture.add_guard(self._source, native.C_LEN, self._kind.__len__(self._obj))
        return existing_items(self._kind.__iter__(self._obj), self._source)  # whatever a subclass says

    def _goes_on_growing(self) -> bool:
        """Whether it may yet be longer: for a deque that drops items once it is full, that is guarded."""
        if self._kind is not deque or self._obj.maxlen is None:
            return True
        full = is_full(self._obj)
        self._capture.add_guard(CallSource(self._source, is_full), native.C_ID, full)
        return not full

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


def is_full(items: deque[Any]) -> bool:
    """Whether a deque drops an item for each that is added; called by guards."""
    return deque.__len__(items) == items.maxlen


def existing_items(items: Iterable[Any], source: Source) -> list[Value]:
    return [LazyValue(item, IndexSource(source, i)) for i, item in enumerate(items)]
