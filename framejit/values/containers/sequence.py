"""What lists, tuples and other sequences of values have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit.guards.sources import static_lookup
from framejit.models.absent import message
from framejit.signals import Unsupported
from framejit.values.base import Value, deep_realize, is_user_object, realize
from framejit.values.constant import ConstantValue, SliceValue, is_not_implemented
from framejit.values.containers.iterator_values import ItemsIterator, ReverseIterator
from framejit.values.indices import as_index
from framejit.values.methods import BuiltinMethods, method
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Frame


LARGEST_REPETITION = 1_000_000
"""Sequences that are repeated to more items than this are left to Python."""


def missing_item(frame: Frame, cls: type, item: Value) -> str:
    """The text of the ValueError that `index` raises for an item that is not there."""
    empty: Any = () if issubclass(cls, tuple) else cls()
    said = message(empty.index, 0)
    return (
        said.replace("0", str(frame.call(from_python(repr), [item], {}).constant()), 1)
        if said.startswith("0")
        else said
    )


def sequence_part(value: Value) -> SequenceValue | None:
    """A list or tuple, or the built-in part of an instance of a subclass."""
    part = getattr(value, "base", None) or value
    return part if isinstance(part, SequenceValue) else None


class SequenceValue(BuiltinMethods):
    """A list, a tuple or another sequence, whose items are values; the base class of these."""

    items: list[Value]

    def children(self) -> Iterator[Value]:
        return iter(self.items)

    def truth(self, frame: Frame) -> bool:
        return bool(self.items)

    def realize_parts(self, frame: Frame) -> None:
        self.items[:] = deep_realize(frame, self.items)

    def iterate(self, frame: Frame) -> Iterator[Value]:
        """The items as an iterator finds them: it sees what is added and removed meanwhile."""
        at = 0
        while at < len(self.items):
            yield self.items[at]
            at += 1

    def iterator(self, frame: Frame) -> Value:
        cls = self.python_type()
        return ItemsIterator(self, type(iter(cls() if cls in (list, tuple) else ())))

    def reverse_iterator(self, frame: Frame) -> Value:
        return ReverseIterator(
            self, type(reversed(self.python_type()() if self.python_type() in (list, tuple) else ()))
        )

    def realized(self, frame: Frame) -> list[Value]:
        """The items, every one looked at: for what goes into a graph or is compared."""
        self.items[:] = [realize(frame, i) for i in self.items]
        return self.items

    def make(self, items: list[Value]) -> SequenceValue:
        """A new sequence of the built-in kind, as slicing and + give."""
        raise NotImplementedError

    def _index(self, frame: Frame, key: Value) -> Any:
        """The int or slice a subscript stands for."""
        key = deep_realize(frame, [key])[0]
        if isinstance(key, SliceValue):
            start, stop, step = key.parts
            step = as_index(frame, step)
            return slice(as_index(frame, start), as_index(frame, stop), step)
        return as_index(frame, key)

    def _subscript(self, frame: Frame, key: Value) -> Value:
        index = self._index(frame, key)
        try:
            found = self.items[index]
        except (IndexError, TypeError, ValueError):
            try:  # for what this very class says
                (tuple if issubclass(self.python_type(), tuple) else list)()[index]
            except (IndexError, TypeError, ValueError) as e:
                raise frame.raised_from(e) from None
            raise
        if isinstance(index, slice):
            return self.make(found)
        return found

    def _find(self, frame: Frame, item: Value, start: int = 0, stop: int | None = None) -> int:
        """The place of the first item that equals; -1 without one. Comparing may change the sequence."""
        at = start
        while at < len(self.items) and (stop is None or at < stop):
            if frame.equal(self.items[at], item):
                return at
            at += 1
        return -1

    def _bounds(self, frame: Frame, args: list[Value]) -> tuple[int, int]:
        """Start and stop of a search, counted from the front."""
        found = [as_index(frame, a) for a in args]
        for value, given in zip(found, args):
            if not isinstance(value, int):
                raise Unsupported(f"searching a {self.python_type().__name__} from {given.describe()}", "FJ122")
        size = len(self.items)
        return tuple(max(b + size, 0) if b < 0 else b for b in [*found, *[0, size][len(found) :]])

    def _repeated(self, frame: Frame, count: Value) -> list[Value] | None:
        """The items several times over; None if `count` is no number."""
        if is_user_object(count) and static_lookup(count.cls, "__index__", None) is None:
            return None
        times = as_index(frame, count)
        if not isinstance(times, int):
            return None
        if len(self.items) * times > LARGEST_REPETITION:
            raise Unsupported(f"a {self.python_type().__name__} of {len(self.items) * times} items")
        return list(self.items) * times

    @method("__getitem__")
    def _getitem(self, frame: Frame, key: Value) -> Value:
        return self._subscript(frame, key)

    @method("__len__")
    def _len(self, frame: Frame) -> Value:
        return ConstantValue(len(self.items))

    @method("__contains__")
    def _contains(self, frame: Frame, item: Value) -> Value:
        return ConstantValue(self._find(frame, item) >= 0)

    @method("__iter__")
    def _iter(self, frame: Frame) -> Value:
        return frame.get_iter(self)

    @method("index")
    def _index_of(self, frame: Frame, item: Value, start: Value | None = None, stop: Value | None = None) -> Value:
        at = self._find(frame, item, *self._bounds(frame, [bound for bound in (start, stop) if bound is not None]))
        if at >= 0:
            return ConstantValue(at)
        raise frame.raised(ValueError, missing_item(frame, self.python_type(), item))

    @method("count")
    def _count(self, frame: Frame, wanted: Value) -> Value:
        return ConstantValue(sum(frame.equal(item, wanted) for item in self.iterate(frame)))

    @method("__add__")
    def _add(self, frame: Frame, value: Value) -> Value:
        if not issubclass(value.python_type(), self.make([]).python_type()):
            return ConstantValue(NotImplemented)
        other = sequence_part(value)
        if other is None:
            raise Unsupported(f"joining {self.describe()} and {value.describe()}, whose items are not known")
        return self._joined(self, other)

    @method("__mul__", "__rmul__")
    def _multiply(self, frame: Frame, count: Value) -> Value:
        repeated = self._repeated(frame, count)
        return ConstantValue(NotImplemented) if repeated is None else self.make(repeated)

    @method("__eq__")
    def _equals(self, frame: Frame, value: Value) -> Value:
        other = sequence_part(value)
        if other is None or not self._comparable(other):
            return ConstantValue(NotImplemented)
        told_by_length = len(self.items) != len(other.items) and not issubclass(self.python_type(), tuple)
        differing = 0 if told_by_length else self._first_difference(frame, other)
        ended = differing >= min(len(self.items), len(other.items))  # also where comparing items has made them fewer
        return ConstantValue(ended and len(self.items) == len(other.items))

    @method("__ne__")
    def _differs(self, frame: Frame, value: Value) -> Value:
        equal = self._equals(frame, value)
        return equal if is_not_implemented(equal) else ConstantValue(not equal.constant())

    @method("__lt__", "__le__", "__gt__", "__ge__", tells_name=True)
    def _compare(self, frame: Frame, name: str, value: Value) -> Value:
        other = sequence_part(value)
        return (
            ConstantValue(NotImplemented)
            if other is None or not self._comparable(other)
            else self._order(frame, name, other)
        )

    @method("__repr__", "__str__", "__hash__", tells_name=True)
    def _of_constants(self, frame: Frame, name: str) -> Value:
        return ConstantValue(getattr(self.constant(), name)())

    def _joined(self, first: SequenceValue, second: SequenceValue) -> SequenceValue:
        return self.make(first.items + second.items)

    def _comparable(self, other: SequenceValue) -> bool:
        mine, its = self.python_type(), other.python_type()
        return issubclass(mine, its) or issubclass(its, mine) or (issubclass(mine, tuple) and issubclass(its, tuple))

    def _first_difference(self, frame: Frame, other: SequenceValue) -> int:
        """The place of the first items that differ, or where the shorter one ends. Comparing items may change both."""
        at = 0
        while at < min(len(self.items), len(other.items)) and frame.equal(self.items[at], other.items[at]):
            at += 1
        return at

    def _order(self, frame: Frame, name: str, other: SequenceValue) -> Value:
        differing = self._first_difference(frame, other)
        if differing < min(len(self.items), len(other.items)):
            return frame.compare(name.strip("_"), self.items[differing], other.items[differing])
        return ConstantValue(getattr(len(self.items), name)(len(other.items)))
