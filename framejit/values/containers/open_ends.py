"""The ends of a list or deque from outside whose length is left open: what captured code reads and changes there
without looking at all items."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.filling import drop_ends
from framejit.values.containers.folded_numbers import NUMBERS

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.containers.unread_items import Unread
    from framejit.values.context import Codegen, Frame
    from framejit.values.journal import Journal


_SINGLY: Final = 16
"""As many items of a slice are read one by one."""


class OpenEnds(Value):
    """The part of a list that knows what is at its ends."""

    journal: Journal | None
    _items: list[Value]
    _unread: Unread | None

    def make(self, items: list[Value]) -> Value:
        """A new list of items."""
        raise NotImplementedError

    def made_of(self, unread: Unread, appended: list[Value]) -> OpenEnds:
        """A new list of items that nobody has looked at, and others behind them."""
        raise NotImplementedError

    def touch(self, frame: Frame) -> None:
        """Called at each change."""
        raise NotImplementedError

    def _at_its_ends(self, frame: Frame) -> Unread | None:
        """What an existing list of open length holds before `_items`; None where all is looked at."""
        unread = self._unread if self.journal is None else None
        return unread if unread is not None and unread.is_open else None

    def refuse_if_open(self, frame: Frame, what: str) -> None:
        """Break the graph where all items are wanted of a list whose length was seen to change: each length, and each
        number in it, would take an entry."""
        if self._at_its_ends(frame) is not None:
            raise Unsupported(f"{what}() of a list whose length changes from call to call", "FJ110")

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

    def copied(self, frame: Frame) -> OpenEnds | None:
        """A new list of all items that nobody has looked at; None where they are looked at."""
        unread = self._at_its_ends(frame)
        return None if unread is None else self.made_of(unread.copy(), self._items)

    def _sliced(self, frame: Frame, key: slice) -> Value | None:
        """A slice such as `losses[-3:]`, `losses[:3]` or `losses[:]`, if that can be told without looking at all."""
        if key.step is not None or key.start is not None and key.stop is not None:
            return None
        if key.start is None:
            return self.copied(frame) if key.stop is None else self._first_items(frame, key.stop)
        unread = self._at_its_ends(frame)
        if unread is None or type(key.start) is not int or key.start >= 0:
            return None
        count = -key.start - len(self._items)  # of those that were there
        if count <= 0:
            return self.make(self._items[key.start :])
        if count > unread.now:
            length = unread.length(frame)
            assert length is not None and frame.compare("lt", length, ConstantValue(count)).constant()
            return self.copied(frame)
        if count > _SINGLY:
            end = unread.end(frame, count)
            return None if end is None else self.made_of(end, self._items)
        found = [unread.item(frame, at) for at in range(-count, 0)]
        known = [item for item in found if item is not None]
        return self.make([*known, *self._items]) if len(known) == len(found) else None

    def _first_items(self, frame: Frame, stop: Any) -> Value | None:
        unread = self._at_its_ends(frame)
        if unread is None or type(stop) is not int or not 0 < stop <= _SINGLY:
            return None
        found = [unread.item(frame, at) for at in range(stop)]
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

    def appended(self) -> list[Value]:
        """The items behind those that nobody has looked at."""
        return self._items

    def numbers_before(self, frame: Frame) -> tuple[list[int | float], Source] | None:
        """The items that nobody has looked at, now, and where they are found at each call, if all are numbers."""
        unread = self._at_its_ends(frame)
        return None if unread is None else unread.numbers()

    def _load_unread(self, cg: Codegen) -> None:
        """Push a new list of what nobody has looked at and what was appended."""
        assert self._unread is not None
        self._unread.load(cg)
        for item in self._items:
            cg.load(item)
            cg.em.op("LIST_APPEND", 1)

    def _replay_taken(self, cg: Codegen) -> None:
        """Take from a real list whose other items nobody has looked at what captured code has taken."""
        unread = self._unread
        if unread is not None and (unread.first or unread.last):
            cg.call_function(drop_ends, self, ConstantValue(unread.first), ConstantValue(unread.last))
            cg.em.pop()
