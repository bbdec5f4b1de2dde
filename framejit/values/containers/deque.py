"""collections.deque: bounded or not, changed at both ends, rotated; iterators notice changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import AttrSource
from framejit.models.absent import message
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.iterator_values import ItemsIterator
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.containers.unread_items import Unread
from framejit.values.indices import as_index
from framejit.values.methods import method
from framejit.values.wrap import wraps

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Codegen, Frame

_CHANGED = "deque mutated during iteration"


class DequeValue(ListValue):
    """A deque. `changes` counts what CPython's own iterators notice: everything but the replacement of an item."""

    cls = deque

    def __init__(
        self,
        items: list[Value],
        maxlen: int | Callable[[], int | None] | None = None,
        source: Source | None = None,
        unread: Unread | None = None,
    ) -> None:
        super().__init__(items, source, unread)
        self._maxlen = maxlen  # of an existing deque, what gives and guards it
        self._assigned: set[int] = set()  # places whose items were replaced

    @property
    def maxlen(self) -> int | None:
        if callable(self._maxlen):
            self._maxlen = self._maxlen()
        return self._maxlen

    def plain_copy(self, frame: Frame) -> Any:
        return deque(super().plain_copy(frame), self.maxlen)

    def proxy(self) -> Any:
        # most operations refuse a deque in the place of a list
        raise Unsupported(f"{self.describe()} can't be an argument of a tensor operation", "FJ120")

    def make(self, items: list[Value]) -> ListValue:
        return DequeValue(self._bounded(items), self.maxlen)

    def _at_its_ends(self, frame: Frame) -> Unread | None:
        """What was there before what was appended. A full deque loses as many at its left end; one that is not stays so
        or is looked at."""
        unread = super()._at_its_ends(frame)
        if unread is None or self.maxlen is None:
            return unread
        room = self.maxlen - len(self._items)
        if unread.assume_full(self.maxlen):
            if room < 0:
                return None
            unread.first += max(unread.now - room, 0)
            return unread
        length = unread.length(frame) if unread.now <= room else None
        if length is None:
            return None
        assert frame.compare("le", length, ConstantValue(room)).constant()
        return unread

    def _bounded(self, items: list[Value]) -> list[Value]:
        return items if self.maxlen is None else items[max(len(items) - self.maxlen, 0) :]

    def iterator(self, frame: Frame) -> Value:
        return DequeIterator(self, frame.seq)

    def reverse_iterator(self, frame: Frame) -> Value:
        return DequeReverseIterator(self, frame.seq)

    def iterate(self, frame: Frame) -> Any:
        return frame.drain(self.iterator(frame))

    def push(self, frame: Frame, item: Value, left: bool = False) -> None:
        """Add an item at one end; a full deque loses one at the other."""
        self.touch(frame)
        if not left and not self.is_known and self.journal is None:
            self._items.append(item)
            return
        self.items.insert(0 if left else len(self.items), item)
        if self.maxlen is not None and len(self.items) > self.maxlen:
            del self.items[-1 if left else 0]

    def push_all(self, frame: Frame, iterable: Value, left: bool = False) -> None:
        iterable = realize(frame, iterable)
        items = frame.iterate(iterable)
        for item in list(items) if self.is_part_of(iterable) else items:
            self.push(frame, item, left)

    @method("append", "appendleft", tells_name=True)
    def _append_to_end(self, frame: Frame, name: str, item: Value) -> Value:
        self.push(frame, item, name == "appendleft")
        return NONE

    @method("extend", "extendleft", tells_name=True)
    def _extend_end(self, frame: Frame, name: str, iterable: Value) -> Value:
        self.push_all(frame, iterable, name == "extendleft")
        return NONE

    @method("__iadd__")
    def _grown(self, frame: Frame, iterable: Value) -> Value:
        self.push_all(frame, iterable)
        return self

    @method("__imul__")
    def _multiplied(self, frame: Frame, times: Value) -> Value:
        repeated = self._repeated(frame, times)
        if repeated is None:
            return ConstantValue(NotImplemented)
        self.change(frame, self._bounded(repeated))
        return self

    @method("pop", "popleft", tells_name=True)
    def _pop_end(self, frame: Frame, name: str) -> Value:
        taken = None if self.is_known else self._take_from(frame, name == "popleft")
        if taken is not None:
            return taken
        if not self.items:
            raise frame.raised(IndexError, "pop from an empty deque")
        self.touch(frame)
        return self.items.pop(-1 if name == "pop" else 0)

    @method("insert")
    def _insert_item(self, frame: Frame, index: Value, item: Value) -> Value:
        if self.maxlen is not None and len(self.items) >= self.maxlen:
            raise frame.raised(IndexError, _FULL)
        self._edit(frame, list.insert, as_index(frame, index), item)
        return NONE

    @method("remove")
    def _remove_item(self, frame: Frame, item: Value) -> Value:
        self._remove(frame, item)
        return NONE

    @method("rotate")
    def _rotate(self, frame: Frame, steps: Value | None = None) -> Value:
        turned, n = deque(self.items), 1 if steps is None else as_index(frame, steps)
        try:
            turned.rotate(n)
        except TypeError as e:
            raise frame.raised_from(e) from None
        if len(turned) > 1:
            self.change(frame, list(turned))
        return NONE

    @method("clear")
    def _clear_all(self, frame: Frame) -> Value:
        if not self.is_known:  # which no iterator of captured code is over
            self.touch(frame)
            self.items = []
        elif self.items:
            self.change(frame, [])
        return NONE

    @method("reverse")
    def _reverse_all(self, frame: Frame) -> Value:
        frame.capture.effects.changed(self)  # no iterator notices
        self.items.reverse()
        self._assigned.update(range(len(self.items)))
        return NONE

    @method("copy", "__copy__")
    def _shallow_copy(self, frame: Frame) -> Value:
        return self.make(list(self.items))

    @method("__getitem__")
    def _item(self, frame: Frame, key: Value) -> Value:
        key = realize(frame, key)
        if isinstance(key, ConstantValue) and type(key.value) is int:
            found = None if self.is_known else self._item_at_an_end(frame, key.value)
            if found is not None:
                return found
        return self.items[self._at(frame, key, deque.__getitem__)]

    @method("__setitem__")
    def _assign_item(self, frame: Frame, key: Value, item: Value) -> Value:
        key = realize(frame, key)
        if not self.is_known and self._replace_at_an_end(frame, key, item):
            return NONE
        at = self._at(frame, key, deque.__getitem__)
        frame.capture.effects.changed(self)
        self.items[at] = item
        self._assigned.add(at)
        return NONE

    @method("__delitem__")
    def _delete_item(self, frame: Frame, key: Value) -> Value:
        at = self._at(frame, key, deque.__getitem__)
        self.touch(frame)
        del self.items[at]
        return NONE

    @method("count")
    def _number_of(self, frame: Frame, wanted: Value) -> Value:
        return ConstantValue(sum(frame.equal(item, wanted) for item in self.iterate(frame)))

    @method("__reversed__")
    def _backwards(self, frame: Frame) -> Value:
        return self.reverse_iterator(frame)

    @method("sort")
    def _sorted_in_place(self, frame: Frame, *args: Value, **kwargs: Value) -> Value:
        raise Unsupported("sorting a deque")

    def _find(self, frame: Frame, item: Value, start: int = 0, stop: int | None = None) -> int:
        changes = self.changes
        for at in range(start, len(self.items) if stop is None else min(stop, len(self.items))):
            found = frame.equal(self.items[at], item)
            if self.changes != changes:
                raise frame.raised(RuntimeError, _CHANGED)
            if found:
                return at
        return -1

    def _remove(self, frame: Frame, item: Value) -> None:
        changes = self.changes
        for at in range(len(self.items)):
            found = frame.equal(self.items[at], item)
            if self.changes != changes:
                raise frame.raised(IndexError, "deque mutated during remove().")
            if found:
                self.touch(frame)
                del self.items[at]
                return
        raise Unsupported("deque.remove() of what is not in it", "FJ161")  # the message has the item's repr

    def _at(self, frame: Frame, key: Value, method: Any) -> int:
        """The place a subscript means, as CPython checks it."""
        index = self._index(frame, key)
        try:
            method(deque([None]) * len(self.items), index)
        except (IndexError, TypeError) as e:
            raise frame.raised_from(e) from None
        return int(index) % len(self.items)

    def getattr(self, frame: Frame, name: str) -> Value:
        return ConstantValue(self.maxlen) if name == "maxlen" else super().getattr(frame, name)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(deque, lambda: (self._load_items(cg), cg.em.load_object(self.maxlen)), 2)

    def replay(self, cg: Codegen) -> None:
        """Make the real deque hold the items it has now."""
        if self.source is None:
            return  # it was built as it is now, and iterators over it would notice
        if not self.changes:
            for at in sorted(self._assigned):
                cg.call_method(self, "__setitem__", ConstantValue(at), self.items[at])
                cg.em.pop()
            return
        self._replay_taken(cg)
        if self._rewritten:
            cg.call_method(self, "clear")
            cg.em.pop()
        cg.call_method(self, "extend", TupleValue(self._items))
        cg.em.pop()


_ITERATOR: type = type(iter(deque()))
_FULL = message(deque([1], 1).insert, 0, 0)


class DequeIterator(ItemsIterator):
    """Over a deque, from the left; raises once the deque has changed."""

    def __init__(self, sequence: DequeValue, made_at: int, kind: type = _ITERATOR) -> None:
        super().__init__(sequence, kind)
        self._left, self._changes, self._made_at = len(sequence.items), sequence.changes, made_at

    sequence: DequeValue
    checks_when_ended = True

    def _check(self, frame: Frame) -> None:
        if self._changes != self.sequence.changes and (self._left or self.checks_when_ended):
            self._left = 0
            raise frame.raised(RuntimeError, _CHANGED)

    def next(self, frame: Frame) -> Value:
        self._check(frame)
        if not self._left:
            self.exhausted = True
        else:
            self._left -= 1
        return super().next(frame)

    def reconstruct(self, cg: Codegen) -> None:
        if (self._left or self.checks_when_ended) and (
            self._changes != self.sequence.changes or self.sequence.source is not None and self.sequence.changes
        ):
            cg.capture.break_at(
                self._made_at, Unsupported("an iterator over a deque that has changed leaves captured code", "FJ151")
            )
        cg.em.call_object(
            self.kind, lambda: (cg.load(self.sequence), cg.em.load_object(len(self.sequence.items) - self._left)), 2
        )


class DequeReverseIterator(DequeIterator):
    """An iterator over a deque from its right end to its left."""

    checks_when_ended = False

    def __init__(self, sequence: DequeValue, made_at: int) -> None:
        super().__init__(sequence, made_at, type(reversed(deque())))

    def item(self, at: int) -> Value:
        return self.sequence.items[-1 - at]


@wraps(deque)
def _existing_deque(capture: Capture, obj: deque[Any], source: Source) -> Value:
    def look_at_bound() -> int | None:
        capture.add_guard(AttrSource(source, "maxlen"), native.C_EQUALS, obj.maxlen)
        return obj.maxlen

    capture.add_guard(source, native.C_TYPE, deque)
    return DequeValue([], look_at_bound, source, Unread(capture, obj, source))
