"""collections.deque: bounded or not, changed at both ends, rotated; iterators notice changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.iterators import ItemsIterator
from framejit.values.containers.sequence import ListValue, TupleValue, as_index, says

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Codegen, Frame

_CHANGED = "deque mutated during iteration"


class DequeValue(ListValue):
    """A deque. `changes` counts what CPython's own iterators notice: everything but the replacement of an item."""

    cls = deque

    def __init__(
        self,
        items: list[Value],
        maxlen: int | Callable[[], int | None] | None = None,
        source: Source | None = None,
        look: Callable[[], list[Value]] | None = None,
    ) -> None:
        super().__init__(items, source, look)
        self._maxlen = maxlen  # of an existing deque, what gives and guards it
        self._assigned: set[int] = set()  # places whose items were replaced

    @property
    def maxlen(self) -> int | None:
        if callable(self._maxlen):
            self._maxlen = self._maxlen()
        return self._maxlen

    def make(self, items: list[Value]) -> ListValue:
        return DequeValue(self._bounded(items), self.maxlen)

    def _bounded(self, items: list[Value]) -> list[Value]:
        return items if self.maxlen is None else items[max(len(items) - self.maxlen, 0) :]

    def iterator(self, tx: Frame) -> Value:
        return DequeIterator(self, tx.seq)

    def reverse_iterator(self, tx: Frame) -> Value:
        return DequeReverseIterator(self, tx.seq)

    def iterate(self, tx: Frame) -> Any:
        return tx.drain(self.iterator(tx))

    def push(self, tx: Frame, item: Value, left: bool = False) -> None:
        """Add an item at one end; a full deque loses one at the other."""
        self.touch(tx)
        self.items.insert(0 if left else len(self.items), item)
        if self.maxlen is not None and len(self.items) > self.maxlen:
            del self.items[-1 if left else 0]

    def push_all(self, tx: Frame, iterable: Value, left: bool = False) -> None:
        for item in list(self.items) if iterable is self else tx.iterate(iterable):
            self.push(tx, item, left)

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        match name, len(args):
            case ("append" | "appendleft"), 1:
                self.push(tx, args[0], name == "appendleft")
                return NONE
            case ("extend" | "extendleft"), 1:
                self.push_all(tx, args[0], name == "extendleft")
                return NONE
            case "__iadd__", 1:
                self.push_all(tx, args[0])
                return self
            case "__imul__", 1:
                repeated = self._repeated(tx, args[0])
                if repeated is None:
                    return ConstantValue(NotImplemented)
                self.change(tx, self._bounded(repeated))
                return self
            case ("pop" | "popleft"), 0:
                if not self.items:
                    raise tx.raised(IndexError, "pop from an empty deque")
                self.touch(tx)
                return self.items.pop(-1 if name == "pop" else 0)
            case "insert", 2:
                if self.maxlen is not None and len(self.items) >= self.maxlen:
                    raise tx.raised(IndexError, _FULL)
                self._edit(tx, list.insert, as_index(tx, args[0]), args[1])
                return NONE
            case "remove", 1:
                self._remove(tx, args[0])
                return NONE
            case "rotate", 0 | 1:
                turned, n = deque(self.items), as_index(tx, args[0]) if args else 1
                try:
                    turned.rotate(n)
                except TypeError as e:
                    raise tx.raised_from(e) from None
                if len(turned) > 1:
                    self.change(tx, list(turned))
                return NONE
            case "clear", 0:
                if self.items:
                    self.change(tx, [])
                return NONE
            case "reverse", 0:
                tx.capture.effects.changed(self)  # no iterator notices
                self.items.reverse()
                self._assigned.update(range(len(self.items)))
                return NONE
            case ("copy" | "__copy__"), 0:
                return self.make(list(self.items))
            case "__getitem__", 1:
                return self.items[self._at(tx, args[0], deque.__getitem__)]
            case "__setitem__", 2:
                at = self._at(tx, args[0], deque.__getitem__)
                tx.capture.effects.changed(self)
                self.items[at] = args[1]
                self._assigned.add(at)
                return NONE
            case "__delitem__", 1:
                at = self._at(tx, args[0], deque.__getitem__)
                self.touch(tx)
                del self.items[at]
                return NONE
            case "count", 1:
                return ConstantValue(sum(tx.equal(item, args[0]) for item in self.iterate(tx)))
            case "__reversed__", 0:
                return self.reverse_iterator(tx)
            case "sort", _:
                raise Unsupported("sorting a deque")
        return super().call_method(tx, name, args, kwargs)

    def _find(self, tx: Frame, item: Value, start: int = 0, stop: int | None = None) -> int:
        changes = self.changes
        for at in range(start, len(self.items) if stop is None else min(stop, len(self.items))):
            found = tx.equal(self.items[at], item)
            if self.changes != changes:
                raise tx.raised(RuntimeError, _CHANGED)
            if found:
                return at
        return -1

    def _remove(self, tx: Frame, item: Value) -> None:
        changes = self.changes
        for at in range(len(self.items)):
            found = tx.equal(self.items[at], item)
            if self.changes != changes:
                raise tx.raised(IndexError, "deque mutated during remove().")
            if found:
                self.touch(tx)
                del self.items[at]
                return
        raise Unsupported("deque.remove() of what is not in it", "FJ161")  # the message has the item's repr

    def _at(self, tx: Frame, key: Value, method: Any) -> int:
        """The place a subscript means, as CPython checks it."""
        index = self._index(tx, key)
        try:
            method(deque([None]) * len(self.items), index)
        except (IndexError, TypeError) as e:
            raise tx.raised_from(e) from None
        return int(index) % len(self.items)

    def getattr(self, tx: Frame, name: str) -> Value:
        return ConstantValue(self.maxlen) if name == "maxlen" else super().getattr(tx, name)

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
        if self._rewritten:
            cg.call_method(self, "clear")
            cg.em.pop()
        cg.call_method(self, "extend", TupleValue(self._items))
        cg.em.pop()


_ITERATOR: type = type(iter(deque()))
_FULL = says(deque([1], 1), "insert", 0, 0)


class DequeIterator(ItemsIterator):
    """Over a deque, from the left; raises once the deque has changed."""

    def __init__(self, sequence: DequeValue, made_at: int, kind: type = _ITERATOR) -> None:
        super().__init__(sequence, kind)
        self._left, self._changes, self._made_at = len(sequence.items), sequence.changes, made_at

    sequence: DequeValue
    checks_when_ended = True

    def _check(self, tx: Frame) -> None:
        if self._changes != self.sequence.changes and (self._left or self.checks_when_ended):
            self._left = 0
            raise tx.raised(RuntimeError, _CHANGED)

    def next(self, tx: Frame) -> Value:
        self._check(tx)
        if not self._left:
            self.exhausted = True
        else:
            self._left -= 1
        return super().next(tx)

    def reconstruct(self, cg: Codegen) -> None:
        if (self._left or self.checks_when_ended) and (self._changes != self.sequence.changes or self.sequence.source is not None and self.sequence.changes):
            cg.capture.break_at(self._made_at, Unsupported("an iterator over a deque that has changed leaves captured code", "FJ151"))
        cg.em.call_object(self.kind, lambda: (cg.load(self.sequence), cg.em.load_object(len(self.sequence.items) - self._left)), 2)


class DequeReverseIterator(DequeIterator):
    """The same from the right."""

    checks_when_ended = False

    def __init__(self, sequence: DequeValue, made_at: int) -> None:
        super().__init__(sequence, made_at, type(reversed(deque())))

    def item(self, at: int) -> Value:
        return self.sequence.items[-1 - at]

