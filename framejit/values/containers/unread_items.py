"""What lists, tuples and deques from outside hold.

A list that was seen to have another length at each call, as that of all losses, is not looked at as a whole where
captured code asks for its length, for what is at its ends (`losses[-1]`, `losses[-3:]`, `queue.popleft()`), or for its
sum: how many items there are is guarded to be enough, and where they are read is counted from the nearer end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import CallSource, GetItemSource, IndexSource, TypedKey
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.containers.folded_numbers import Between, LastItems, folded, of_numbers
from framejit.values.inspection import is_a
from framejit.values.lazy import LazyValue

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Codegen, Frame


class Unread:
    """What an existing list or deque holds, as long as nobody has looked at all of it. Captured code may have taken
    items from both ends; as many as `first` and `last` say are gone."""

    def __init__(self, capture: Capture, obj: Any, source: Source) -> None:
        self._capture, self._obj, self._source = capture, obj, source
        self._kind: Any = list if is_a(obj, list) else deque
        self._changes_length = CallSource(source, len)
        self._is_full = False
        self.first = self.last = 0

    def look(self) -> list[Value]:
        """The items; how many there are is guarded. Breaks the graph where that would be another number in each
        call."""
        if not self._is_full and self._capture.is_ever_new(self._changes_length.name()) and self._goes_on_growing():
            raise Unsupported(
                f"what {self._source.name()!r} holds, which is longer from call to call", "FJ121",
                "add up what is needed as it comes, or look at the whole list outside the compiled function",
            )
        self._capture.add_guard(self._source, native.C_LEN, self._kind.__len__(self._obj))
        items = existing_items(self._kind.__iter__(self._obj), self._source)  # whatever a subclass says
        return items[self.first : len(items) - self.last]

    def _goes_on_growing(self) -> bool:
        """Whether it may yet be longer: for a deque that drops items once it is full, that is guarded."""
        if self._kind is not deque or self._obj.maxlen is None:
            return True
        full = is_full(self._obj)
        self._capture.add_guard(CallSource(self._source, is_full), native.C_ID, full)
        return not full

    def copy(self) -> Unread:
        """The same items, for a list that is a copy."""
        made = Unread(self._capture, self._obj, self._source)
        made._is_full, made.first, made.last = self._is_full, self.first, self.last
        return made

    def end(self, frame: Frame, count: int) -> Unread | None:
        """So many items from the right, for a list of its own; None where there are fewer."""
        if not self.has(frame, count):
            return None
        part = LastItems(count, self.last)
        made = Unread(self._capture, part(self._obj), CallSource(self._source, part))
        made._is_full = True
        return made

    def load(self, cg: Codegen) -> None:
        """Push a new list of the items."""
        cg.em.call_object(Between(self.first, self.last), lambda: cg.em.load_source(self._source))

    def length(self, frame: Frame) -> Value | None:
        """How many items there are, as an int that is not assumed: a list that has all losses grows from call to call.
        None where the number is assumed, by looking at the items, or a subclass may say something else."""
        all_of_them = self._all(frame)
        gone = ConstantValue(self.first + self.last)
        return all_of_them if all_of_them is None or not gone.value else frame.binary("-", all_of_them, gone)

    def assume_full(self, bound: int) -> bool:
        """Whether a deque has as many items as it may have, which is guarded: it has no more at the next call."""
        if len(self._obj) == bound and self.is_open:
            self._capture.add_guard(self._source, native.C_LEN, bound)
            self._is_full = True
        return self._is_full

    @property
    def is_exact(self) -> bool:
        """Whether it is no instance of a subclass."""
        return type(self._obj) is self._kind

    @property
    def is_open(self) -> bool:
        """Whether the length was seen to change, so that not all items are to be looked at."""
        if self._is_full:
            return True
        return self._changes_length.name() in self._capture.changing and self.is_exact

    @property
    def now(self) -> int:
        """How many items there are in this call; not guarded."""
        return len(self._obj) - self.first - self.last

    def has(self, frame: Frame, count: int) -> bool:
        """Whether there surely are as many items, and captured code need not look at all."""
        everything = self._all(frame) if count <= self.now else None
        if everything is None:
            return False
        enough = ConstantValue(count + self.first + self.last)
        return bool(frame.compare("ge", everything, enough).constant())

    def item(self, frame: Frame, at: int) -> Value | None:
        """The item at a place, counted from the left (from 0 on) or from the right (-1 is the last); None where all
        have to be looked at."""
        if not self.has(frame, at + 1 if at >= 0 else -at):
            return None
        if at >= 0:
            return LazyValue(self._obj[self.first + at], IndexSource(self._source, self.first + at))
        return LazyValue(self._obj[at - self.last], GetItemSource(self._source, TypedKey(at - self.last)))

    def folded(self, function: Callable[[Any], Any]) -> Value | None:
        """What a function gives for the items, as a number that is not assumed; None where they are looked at, or are
        not all floats and ints."""
        if not self.is_open:
            return None
        part = Between(self.first, self.last) if self.first or self.last else None
        return folded(self._capture, function, self._obj, self._source, part)

    def numbers(self) -> tuple[list[int | float], Source] | None:
        """The items now, and where they are found at each call; None unless all are numbers, which is guarded."""
        if not self.is_open:
            return None
        part = Between(self.first, self.last)
        return of_numbers(self._capture, part(self._obj), CallSource(self._source, part))

    def _all(self, frame: Frame) -> Value | None:
        """How many items there are with those that captured code has taken."""
        if self._is_full:
            return ConstantValue(len(self._obj))
        return frame.wrap(len(self._obj), self._changes_length) if self.is_open else None


def is_full(items: deque[Any]) -> bool:
    """Whether a deque drops an item for each that is added; called by guards."""
    return deque.__len__(items) == items.maxlen


def existing_items(items: Iterable[Any], source: Source) -> list[Value]:
    return [LazyValue(item, IndexSource(source, i)) for i, item in enumerate(items)]
