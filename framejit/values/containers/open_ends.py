"""The ends of a list or deque from outside whose length is left open: what captured code reads and changes there
without looking at all items."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.filling import drop_ends
from framejit.values.containers.folded_numbers import NUMBERS

if TYPE_CHECKING:
    from framejit.values.containers.unread_items import Unread
    from framejit.values.context import Codegen, Frame
    from framejit.values.journal import Journal


class OpenEnds(Value):
    """The part of a list that knows what is at its ends."""

    journal: Journal | None
    _items: list[Value]
    _unread: Unread | None

    def make(self, items: list[Value]) -> Value:
        """A new list of items."""
        raise NotImplementedError

    def touch(self, frame: Frame) -> None:
        """Called at each change."""
        raise NotImplementedError

    def _at_its_ends(self, frame: Frame) -> Unread | None:
        """What an existing list of open length holds before `_items`; None where all is looked at."""
        unread = self._unread if self.journal is None else None
        return unread if unread is not None and unread.is_open else None

    def _item_at_an_end(self, frame: Frame, at: int) -> Value | None:
        """An item that can be told without looking at all, by its place."""
        unread = self._at_its_ends(frame)
        if unread is None:
            return None
        if -len(self._items) <= at < 0:
            return self._items[at]
        return unread.item(frame, at + len(self._items) if at < 0 else at)

    def _replace_at_an_end(self, frame: Frame, key: Value, item: Value) -> bool:
        """Put an item in the place of one that captured code has appended; False for other places, and where all items
        are looked at."""
        at = key.value if isinstance(key, ConstantValue) and type(key.value) is int else 0
        if self._at_its_ends(frame) is None or not -len(self._items) <= at < 0:
            return False
        frame.capture.effects.changed(self)
        self._items[at] = item
        return True

    def _last_items(self, frame: Frame, key: slice) -> Value | None:
        """A slice such as `losses[-3:]`, if the list has as many items."""
        if type(key.start) is not int or key.start >= 0 or key.stop is not None or key.step is not None:
            return None
        found = [self._item_at_an_end(frame, at) for at in range(key.start, 0)]
        known = [item for item in found if item is not None]
        return self.make(known) if len(known) == len(found) else None

    def _take_from(self, frame: Frame, is_left: bool) -> Value | None:
        """Take the first or last item away; None where all have to be looked at for that."""
        unread = self._at_its_ends(frame)
        if unread is None:
            return None
        if self._items and not is_left:
            self.touch(frame)
            return self._items.pop()
        found = unread.item(frame, 0 if is_left else -1)
        if found is not None:
            self.touch(frame)
            unread.first += is_left
            unread.last += not is_left
        return found

    def folded(self, frame: Frame, function: Callable[[list[Any]], Any]) -> list[Value] | None:
        """The numbers for which `sum`, `max` or `min` gives what it gives for a list that has grown: its own result for
        the items that were there, and those that captured code has appended. None where all items are looked at."""
        unread = self._at_its_ends(frame)
        if unread is None:
            return None
        appended = [realize(frame, item) for item in self._items]
        if not all(item.python_type() in NUMBERS for item in appended):
            return None
        before = unread.folded(function)
        return None if before is None else [before, *appended]

    def _replay_taken(self, cg: Codegen) -> None:
        """Take from a real list whose other items nobody has looked at what captured code has taken."""
        unread = self._unread
        if unread is not None and (unread.first or unread.last):
            cg.call_function(drop_ends, self, ConstantValue(unread.first), ConstantValue(unread.last))
            cg.em.pop()
