"""Lists and tuples of values; named tuples, torch.Size and torch.return_types are tuples with another class."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.guards.plain_text import module_of
from framejit.guards.sources import static_lookup
from framejit.models.absent import message
from framejit.signals import Unsupported
from framejit.values.base import Value, deep_realize, is_user_object, realize
from framejit.values.constant import NONE, ConstantValue, SliceValue, is_constant_object, is_not_implemented
from framejit.values.containers.iterator_values import ItemsIterator, ReverseIterator
from framejit.values.containers.length_hints import gathered
from framejit.values.containers.open_ends import OpenEnds
from framejit.values.containers.sorting import sort_values
from framejit.values.containers.unread_items import Unread, existing_items
from framejit.values.folding import plain
from framejit.values.indices import as_index
from framejit.values.inspection import instance_dict
from framejit.values.journal import Appended, Changed, Held, Wrote, int_of
from framejit.values.methods import BuiltinMethods, method
from framejit.values.shown_objects import stand_in, writes_own_text
from framejit.values.wrap import from_python, makes, wraps

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.builtins.reflection import IdValue
    from framejit.values.context import Capture, Codegen, Frame
    from framejit.values.journal import Journal


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


def is_namedtuple_class(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make")


# what namedtuple() itself writes into a class
_NAMED_ANEW = frozenset(("__new__", "__repr__", "__getnewargs__", "__doc__"))


def adds_only_names(cls: type) -> bool:
    """Whether a namedtuple class works like a tuple: no class among its bases has a method of tuple's, or a field's
    name, anew."""
    fields = getattr(cls, "_fields", ())
    return (
        is_namedtuple_class(cls)
        and type(fields) is tuple
        and all(static_lookup(cls, n) is static for n, static in tuple.__dict__.items() if n not in _NAMED_ANEW)
        and all(
            static_lookup(cls, n) is object.__dict__[n]
            for n in ("__setattr__", "__delattr__", "__reduce__", "__reduce_ex__", "__init__")
        )
        and static_lookup(cls, "__getattr__", None) is None
        and all(type(static_lookup(cls, f, None)).__name__ == "_tuplegetter" for f in fields)
        and all(getattr(static_lookup(cls, n), "__module__", None) == "collections" for n in ("_replace", "_asdict"))
    )


def sequence_part(value: Value) -> SequenceValue | None:
    """A list or tuple, or the built-in part of an instance of a subclass."""
    part = getattr(value, "base", None) or value
    return part if isinstance(part, SequenceValue) else None


def is_return_type(cls: type) -> bool:
    """torch.return_types: structseq classes such as that of torch.max(x, dim)."""
    return module_of(cls) == "torch.return_types"


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


class TupleValue(SequenceValue):
    """A tuple, or an instance of a tuple class that adds nothing but names (`cls`)."""

    def __init__(self, items: list[Value], cls: type = tuple, source: Source | None = None) -> None:
        self.items, self.cls, self.source = list(items), cls, source
        self.is_part = False  # of an instance of a subclass, which is another object than a tuple of the same items
        self.existing: Any = None  # the very tuple, of constants, that this is

    def python_type(self) -> type:
        return self.cls

    def make(self, items: list[Value]) -> TupleValue:
        if (
            self.cls is tuple
            and not self.is_part
            and len(items) == len(self.items)
            and all(a is b for a, b in zip(items, self.items))
        ):
            return self  # as CPython does for the whole of a tuple
        return TupleValue(items, torch.Size if self.cls is torch.Size else tuple)

    def _joined(self, first: SequenceValue, second: SequenceValue) -> SequenceValue:
        if (
            not first.items
            and second.python_type() is tuple
            and self.cls is tuple
            and not getattr(second, "is_part", False)
        ):
            return second
        return super()._joined(first, second)

    def ids(self) -> Iterator[IdValue]:
        return itertools.chain.from_iterable(item.ids() for item in self.items)

    def constant(self) -> Any:
        return self.real([i.constant() for i in self.items]) if self.existing is None else self.existing

    @property
    def symbolic(self) -> bool:
        return any(item.symbolic for item in self.items)

    def real(self, items: list[Any]) -> Any:
        """The Python tuple of this class that holds `items`."""
        return tuple.__new__(self.cls, items) if is_namedtuple_class(self.cls) else self.cls(items)

    def plain_copy(self, frame: Frame) -> Any:
        shown = stand_in(self) if writes_own_text(self.cls) else None
        return self.real([plain(frame, i) for i in self.items]) if shown is None else shown

    def proxy(self) -> Any:
        parts = [i.proxy() for i in self.items]
        if is_namedtuple_class(self.cls):
            return tuple.__new__(self.cls, parts)
        return tuple(parts)

    def getattr(self, frame: Frame, name: str) -> Value:
        if is_namedtuple_class(self.cls) and name in self.cls._fields:  # type: ignore[attr-defined]
            return self.items[self.cls._fields.index(name)]  # type: ignore[attr-defined]
        if is_return_type(self.cls):
            member = getattr(self.cls, name, None)
            fields = [f for f in dir(self.cls) if type(getattr(self.cls, f)).__name__ == "member_descriptor"]
            if name in fields:
                probe = self.cls(range(len(self.items)))
                return self.items[getattr(probe, name)]
            if member is None:
                raise frame.raised(AttributeError, f"{native.type_name(self.cls)!r} object has no attribute {name!r}")
        if is_namedtuple_class(self.cls) and not hasattr(tuple, name):
            return frame.class_attribute(self, self.cls, name)
        return super().getattr(frame, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.cls is torch.Size and name == "numel":
            numel: Value = ConstantValue(1)
            for item in self.items:
                numel = frame.binary("*", numel, item)
            return numel
        if name == "_replace" and not args:
            fields = self.cls._fields  # type: ignore[attr-defined]
            return TupleValue([kwargs.get(f, i) for f, i in zip(fields, self.items)], self.cls)
        if name == "_asdict":
            return frame.call(from_python(dict), [], dict(zip(self.cls._fields, self.items)))  # type: ignore[attr-defined]
        return super().call_method(frame, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        if self.existing is not None:
            cg.em.load_object(self.existing)
        elif is_namedtuple_class(self.cls):
            cg.em.call_object(tuple.__new__, lambda: (cg.em.load_object(self.cls), self._build(cg)), 2)
        elif self.cls is tuple:
            self._build(cg)
        else:
            cg.em.call_object(self.cls, lambda: self._build(cg))

    def _build(self, cg: Codegen) -> None:
        for item in self.items:
            cg.load(item)
        cg.em.build("TUPLE", len(self.items))


class ListValue(OpenEnds, SequenceValue):
    """A list; changes are replayed on the real one if it has a source."""

    mutable = True

    cls: type = list
    journal: Journal | None = None
    """While a call is followed that may come to the list: what is told of each look at `items`."""

    def __init__(
        self, items: list[Value], source: Source | None = None, unread: Unread | None = None
    ) -> None:
        self.source = source
        self.changes = 0  # how often it was changed, by which iterators and sorting notice
        self._items = list(items)
        self._is_of_subclass = unread is not None and not unread.is_exact
        self._unread = unread  # of an existing list; until somebody looks, `_items` is what was appended
        self._rewritten = unread is None

    @property
    def is_known(self) -> bool:
        """Whether it was looked at, and its items are all there."""
        return self._unread is None

    @property
    def items(self) -> list[Value]:
        """What the list holds.  Asking guards the length of an existing list; appending does not ask."""
        if self._unread is not None:
            self._items = self._bounded(self._unread.look() + self._items)
            self._unread, self._rewritten = None, True
        if self.journal is not None:
            self.journal.add(Held(self, (), tuple(self._items)))
        return self._items

    @items.setter
    def items(self, items: list[Value]) -> None:
        """The list's items. Asking guards the length of an existing list; appending does not ask."""
        if self.journal is not None:
            self.journal.add(Changed(self))
        self._unread, self._items, self._rewritten = None, items, True

    @property
    def kept_items(self) -> list[Value]:
        """What `items` holds of a list that is known, without telling the journal."""
        return self._items

    def children(self) -> Iterator[Value]:
        return iter(self._items)

    def python_type(self) -> type:
        return self.cls

    def make(self, items: list[Value]) -> ListValue:
        return ListValue(items)

    def made_of(self, unread: Unread, appended: list[Value]) -> ListValue:
        return ListValue(appended, None, unread)

    def plain_copy(self, frame: Frame) -> Any:
        return [plain(frame, i) for i in self.items]

    def proxy(self) -> Any:
        return [i.proxy() for i in self.items]

    def touch(self, frame: Frame) -> None:
        """Called at each change."""
        self._touch(frame)
        if self.journal is not None:
            self.journal.add(Changed(self))

    def _touch(self, frame: Frame) -> None:
        frame.capture.effects.changed(self)
        self.changes += 1

    def _bounded(self, items: list[Value]) -> list[Value]:
        """As many of the items, the last ones, as there is room for."""
        return items

    def truth(self, frame: Frame) -> bool:
        is_asked = self.journal is not None or not self.is_known
        return frame.truth(self._len(frame)) if is_asked else super().truth(frame)

    def _subscript(self, frame: Frame, key: Value) -> Value:
        if self.journal is not None:
            key = realize(frame, key)
            place = self._place(key)
            if place is not None:
                found = self.journal.read(self, key, self._items[place])
                assert found is not None
                return found
        elif not self.is_known:
            key = deep_realize(frame, [key])[0]
            end: Value | None = None
            if isinstance(key, ConstantValue) and type(key.value) is slice:
                end = self._sliced(frame, key.value)
            elif isinstance(key, ConstantValue) and type(key.value) is int:
                end = self._item_at_an_end(frame, key.value)
            if end is not None:
                return end
        return super()._subscript(frame, key)

    def _place(self, key: Value) -> int | None:
        """The place that a number is the index of; None without one."""
        index = int_of(key)
        size = len(self._items)
        return index % size if index is not None and self.is_known and -size <= index < size else None

    @method("__len__")
    def _len(self, frame: Frame) -> Value:
        if self.journal is not None and self.is_known:
            return self.journal.length(self, len(self._items))
        unread = self._at_its_ends(frame)
        length = None if unread is None else unread.length(frame)
        if length is None:
            return super()._len(frame)
        return frame.binary("+", length, ConstantValue(len(self._items))) if self._items else length

    def append(self, frame: Frame, item: Value) -> None:
        self._touch(frame)
        if self.journal is not None:
            self.journal.add(Appended(self, item))
        self._items.append(item)

    def write(self, frame: Frame, place: int, key: Value, value: Value) -> None:
        """Put a value at a place, which the program names by `key`."""
        self._touch(frame)
        if self.journal is not None:
            self.journal.add(Wrote(self, key, value))
        self._items[place] = value

    def is_part_of(self, value: Value) -> bool:
        """Whether a value is this very list, or the instance of a subclass of which this is the built-in part."""
        return sequence_part(value) is self

    def change(self, frame: Frame, items: list[Value]) -> None:
        self.touch(frame)
        self.items[:] = items

    def _extend(self, frame: Frame, other: Value) -> None:
        """Append items one at a time, as they come: what gives them may read this very list."""
        other = realize(frame, other)
        known = other if isinstance(other, SequenceValue) and other.python_type() in (list, tuple) else None
        if self.is_part_of(other):  # what it holds by now: what it is given comes behind that
            asked = other is not self and _ASKED_FOR_ITSELF  # its iterator for a length, it itself for none
            known = self.make(list(gathered(frame, frame.get_iter(other)))) if asked else self
        if known is not None and self.journal is not None:
            for item in [*known.items]:
                self.append(frame, item)
            return
        if isinstance(other, ListValue) and self._begins_as(frame, other):
            return
        if known is not None:
            items = [*known.items]
            self.touch(frame)
            self._end.extend(items)
            return
        for item in gathered(frame, other):
            self.touch(frame)
            self._end.append(item)

    def _begins_as(self, frame: Frame, other: ListValue) -> bool:
        """Become a copy of a list that nobody has looked at, if this one is new and empty: `[*losses]`."""
        if self.source is not None or self._items or not self.is_known or self.journal is not None:
            return False
        copied = other.copied(frame)
        if copied is None:
            return False
        self.touch(frame)
        self._items, self._unread, self._rewritten = copied._items, copied._unread, False
        return True

    @property
    def _end(self) -> list[Value]:
        """What items are appended to."""
        return self._items if self.journal is None else self.items

    @method("append")
    def _append(self, frame: Frame, item: Value) -> Value:
        self.append(frame, item)
        return NONE

    @method("extend")
    def _extended(self, frame: Frame, items: Value) -> Value:
        self._extend(frame, items)
        return NONE

    @method("__iadd__")
    def _extended_in_place(self, frame: Frame, items: Value) -> Value:
        self._extend(frame, items)
        return self

    @method("__imul__")
    def _multiply_in_place(self, frame: Frame, count: Value) -> Value:
        repeated = self._repeated(frame, count)
        if repeated is None:
            return ConstantValue(NotImplemented)
        self.change(frame, repeated)
        return self

    @method("insert")
    def _insert(self, frame: Frame, place: Value, item: Value) -> Value:
        self._edit(frame, list.insert, as_index(frame, place), item)
        return NONE

    @method("pop")
    def _pop(self, frame: Frame, *place: Value) -> Value:
        at = as_index(frame, place[0]) if len(place) == 1 and not self.is_known else -1
        taken = self._take_from(frame, at == 0) if len(place) < 2 and type(at) is int and at in (0, -1) else None
        if taken is not None:
            return taken
        found = self._edit(frame, list.pop, *(as_index(frame, a) for a in place))
        assert isinstance(found, Value)
        return found

    @method("remove")
    def _remove_item(self, frame: Frame, item: Value) -> Value:
        at = self._find(frame, item)
        if at < 0:
            raise frame.raised(ValueError, _NOT_REMOVED)
        self._edit(frame, list.pop, at)
        return NONE

    @method("clear")
    def _clear(self, frame: Frame) -> Value:
        self.touch(frame)
        self.items = []
        return NONE

    @method("reverse")
    def _reverse(self, frame: Frame) -> Value:
        self.change(frame, self.items[::-1])
        return NONE

    @method("copy")
    def _copy(self, frame: Frame) -> Value:
        return self.copied(frame) or self.make(list(self.items))

    @method("__reversed__")
    def _reversed(self, frame: Frame) -> Value:
        return self.reverse_iterator(frame)

    @method("__setitem__")
    def _setitem(self, frame: Frame, place: Value, value: Value) -> Value:
        if self.journal is not None:
            place = realize(frame, place)
            at = self._place(place)
            if at is not None:
                self.write(frame, at, place, value)
                return NONE
        elif not self.is_known:
            place = deep_realize(frame, [place])[0]
            if self._replace_at_an_end(frame, place, value):
                return NONE
        key = self._index(frame, place)
        if not isinstance(key, slice):
            self._edit(frame, list.__setitem__, key, value)
            return NONE
        value = realize(frame, value)
        if isinstance(value, ConstantValue) and not hasattr(type(value.value), "__iter__"):
            self._edit(frame, list.__setitem__, key, value.value)  # raises
        # a list's own items are copied without asking the class how it is iterated
        items = list(self.items) if self.is_part_of(value) else list(frame.iterate(value))
        self._edit(frame, list.__setitem__, key, items)
        return NONE

    @method("__delitem__")
    def _delitem(self, frame: Frame, place: Value) -> Value:
        self._edit(frame, list.__delitem__, self._index(frame, place))
        return NONE

    def _edit(self, frame: Frame, method: Callable[..., Any], *args: Any) -> Any:
        """Change the items by a real method of lists; what it raises, the program raises."""
        try:
            result = method(self.items, *args)
        except (IndexError, ValueError, TypeError, OverflowError) as e:
            raise frame.raised(type(e), str(e)) from None  # and nothing has changed
        self.touch(frame)
        return result

    @method("sort")
    def _sort(self, frame: Frame, /, **kwargs: Value) -> Value:
        """Sort in place: meanwhile the list is empty, and whoever changes it is told."""
        self.refuse_if_open(frame, "list.sort")
        items = list(self.items)
        self.change(frame, [])
        changes = self.changes
        try:
            sort_values(frame, items, kwargs)
        finally:
            modified = self.changes != changes
            self.change(frame, items)
        if modified:
            raise frame.raised(ValueError, "list modified during sort")
        return NONE

    def reconstruct(self, cg: Codegen) -> None:
        if cg.holds_itself(self):
            self._items = self.items  # which is looked at here, for replay to fill in
            cg.em.build("LIST", 0)
            cg.capture.effects.changed(self)
            return
        if self.is_known:
            self._load_items(cg)
        else:
            self._load_unread(cg)

    def replay(self, cg: Codegen) -> None:
        """Make the real list hold the items it has now."""
        em = cg.em
        if self.source is None and not self.is_known:
            return  # it was built as it is now
        if not self._rewritten:
            self._replay_taken(cg)
            for item in self._items:
                cg.call_function(list.append, self, item)  # whatever methods a subclass has
                em.pop()
            return

        def load_whole() -> None:
            em.load_object(None)
            em.load_object(None)
            em.build("SLICE", 2)

        if self._is_of_subclass:
            em.call_object(list.__setitem__, lambda: (cg.load(self), load_whole(), self._load_items(cg)), 3)
            em.pop()
            return
        self._load_items(cg)
        cg.load(self)
        load_whole()
        em.op("STORE_SUBSCR")

    def _load_items(self, cg: Codegen) -> None:
        for item in self.items:
            cg.load(item)
        cg.em.build("LIST", len(self.items))


class _Asked(list[Any]):
    asked = False

    def __iter__(self) -> Iterator[Any]:
        self.asked = True
        return super().__iter__()


_asked = _Asked()
_asked.extend(_asked)
_ASKED_FOR_ITSELF = _asked.asked
"""Whether an instance of a subclass of list that is extended by itself is iterated as its class says: before CPython
3.13."""


_NOT_REMOVED = message([].remove, 0)


@wraps(tuple, subclasses=True)
def _existing_tuple(capture: Capture, obj: tuple[Any, ...], source: Source) -> Value | None:
    cls = type(obj)
    if (
        cls not in (tuple, torch.Size)
        and not is_return_type(cls)
        and not (adds_only_names(cls) and instance_dict(obj) is None)
    ):
        return None
    capture.add_guard(source, native.C_TYPE, cls)
    capture.add_guard(source, native.C_LEN, tuple.__len__(obj))
    return TupleValue(existing_items(tuple.__iter__(obj), source), cls, source)


@makes(tuple, subclasses=True)
def _made_tuple(obj: tuple[Any, ...]) -> Value | None:
    cls = type(obj)
    if cls not in (tuple, torch.Size) and not adds_only_names(cls):
        return None
    made = TupleValue([from_python(x) for x in obj], cls)
    made.existing = obj if is_constant_object(obj) else None
    return made


@wraps(list)
def _existing_list(capture: Capture, obj: list[Any], source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, list)
    return ListValue([], source, Unread(capture, obj, source))


@makes(list)
def _made_list(obj: list[Any]) -> Value:
    return ListValue([from_python(x) for x in obj])
