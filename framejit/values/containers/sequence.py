"""Lists and tuples of values; named tuples, torch.Size and torch.return_types are tuples with another class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from framejit.guards.sources import static_lookup
from framejit.signals import NotConstant, Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue, SliceValue
from framejit.values.inspection import module_of
from framejit.values.lazy import deep_realize

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Codegen, Frame


LARGEST_REPETITION = 1_000_000
"""Sequences that are repeated to more items than this are left to Python."""


def as_index(tx: Frame, value: Value) -> Any:
    """The int that `__index__` of an object gives; anything else as it is known."""
    from framejit.values.objects.user_object import ObjectValue

    value = realize(tx, value)
    if isinstance(value, ObjectValue) and static_lookup(value.cls, "__index__", None) is not None:
        value = realize(tx, value.call_method(tx, "__index__", [], {}))
        if value.python_type() is not int:
            raise Unsupported(f"__index__ that returns {value.describe()}", "FJ122")
    try:
        return value.constant()
    except NotConstant:
        raise Unsupported(f"{value.describe()} as an index", "FJ122") from None


def missing_item(tx: Frame, cls: type, item: Value) -> str:
    """What `index` says of an item that is not there."""
    from framejit.values.builtins.formatting import text_of

    said = says(() if issubclass(cls, tuple) else cls(), "index", 0)
    return said.replace("0", str(text_of(tx, repr, [realize(tx, item)]).constant()), 1) if said.startswith("0") else said


def says(owner: Any, method: str, *args: Any) -> str:
    """What the exception says that a method of a real object raises."""
    try:
        getattr(owner, method)(*args)
    except Exception as e:
        return str(e)
    raise AssertionError(f"{method} raised nothing")


def is_namedtuple_class(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make")


_NAMED_ANEW = frozenset(("__new__", "__repr__", "__getnewargs__", "__doc__"))  # what namedtuple() itself writes into a class


def adds_only_names(cls: type) -> bool:
    """Whether a namedtuple class works like a tuple: no class among its bases has a method of tuple's, or a field's name, anew."""
    fields = getattr(cls, "_fields", ())
    return (
        is_namedtuple_class(cls)
        and type(fields) is tuple
        and all(static_lookup(cls, n) is static for n, static in tuple.__dict__.items() if n not in _NAMED_ANEW)
        and all(static_lookup(cls, n) is object.__dict__[n] for n in ("__setattr__", "__delattr__", "__reduce__", "__reduce_ex__", "__init__"))
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


class SequenceValue(Value):
    items: list[Value]

    def children(self) -> Iterator[Value]:
        return iter(self.items)

    def truth(self, tx: Frame) -> bool:
        return bool(self.items)

    def iterate(self, tx: Frame) -> Iterator[Value]:
        """The items as an iterator finds them: it sees what is added and removed meanwhile."""
        at = 0
        while at < len(self.items):
            yield self.items[at]
            at += 1

    def iterator(self, tx: Frame) -> Value:
        from framejit.values.containers.iterators import ItemsIterator

        cls = self.python_type()
        return ItemsIterator(self, type(iter(cls() if cls in (list, tuple) else ())))

    def reverse_iterator(self, tx: Frame) -> Value:
        from framejit.values.containers.iterators import ReverseIterator

        return ReverseIterator(self, type(reversed(self.python_type()() if self.python_type() in (list, tuple) else ())))

    def realized(self, tx: Frame) -> list[Value]:
        """The items, every one looked at: for what goes into a graph or is compared."""
        self.items[:] = [realize(tx, i) for i in self.items]
        return self.items

    def make(self, items: list[Value]) -> SequenceValue:
        """A new sequence of the built-in kind, as slicing and + give."""
        raise NotImplementedError

    def _index(self, tx: Frame, key: Value) -> Any:
        """The int or slice a subscript stands for."""
        key = deep_realize(tx, [key])[0]
        if isinstance(key, SliceValue):
            start, stop, step = key.parts
            step = as_index(tx, step)
            return slice(as_index(tx, start), as_index(tx, stop), step)
        return as_index(tx, key)

    def _subscript(self, tx: Frame, key: Value) -> Value:
        index = self._index(tx, key)
        try:
            found = self.items[index]
        except (IndexError, TypeError, ValueError):
            try:  # for what this very class says
                (tuple if issubclass(self.python_type(), tuple) else list)()[index]
            except (IndexError, TypeError, ValueError) as e:
                raise tx.raised_from(e) from None
            raise
        if isinstance(index, slice):
            return self.make(found)
        return found

    def _find(self, tx: Frame, item: Value, start: int = 0, stop: int | None = None) -> int:
        """The place of the first item that equals; -1 without one. Comparing may change the sequence."""
        at = start
        while at < len(self.items) and (stop is None or at < stop):
            if tx.equal(self.items[at], item):
                return at
            at += 1
        return -1

    def _bounds(self, tx: Frame, args: list[Value]) -> tuple[int, int]:
        """Start and stop of a search, counted from the front."""
        found = [as_index(tx, a) for a in args]
        for value, given in zip(found, args):
            if not isinstance(value, int):
                raise Unsupported(f"searching a {self.python_type().__name__} from {given.describe()}", "FJ122")
        size = len(self.items)
        return tuple(max(b + size, 0) if b < 0 else b for b in [*found, *[0, size][len(found) :]])

    def _repeated(self, tx: Frame, count: Value) -> list[Value] | None:
        """The items several times over; None if `count` is no number."""
        from framejit.values.objects.user_object import ObjectValue

        if isinstance(count, ObjectValue) and static_lookup(count.cls, "__index__", None) is None:
            return None
        times = as_index(tx, count)
        if not isinstance(times, int):
            return None
        if len(self.items) * times > LARGEST_REPETITION:
            raise Unsupported(f"a {self.python_type().__name__} of {len(self.items) * times} items")
        return list(self.items) * times

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        match name, len(args):
            case "__getitem__", 1:
                return self._subscript(tx, args[0])
            case "__len__", 0:
                return ConstantValue(len(self.items))
            case "__contains__", 1:
                return ConstantValue(self._find(tx, args[0]) >= 0)
            case "__iter__", 0:
                return tx.get_iter(self)
            case "index", 1 | 2 | 3:
                at = self._find(tx, args[0], *self._bounds(tx, args[1:]))
                if at >= 0:
                    return ConstantValue(at)
                raise tx.raised(ValueError, missing_item(tx, self.python_type(), args[0]))
            case "count", 1:
                return ConstantValue(sum(tx.equal(item, args[0]) for item in self.iterate(tx)))
            case "__add__", 1:
                other_part = sequence_part(args[0])
                if other_part is not None and issubclass(args[0].python_type(), self.make([]).python_type()):
                    return self._joined(self, other_part)
                return ConstantValue(NotImplemented)
            case (("__mul__" | "__rmul__"), 1):
                repeated = self._repeated(tx, args[0])
                return ConstantValue(NotImplemented) if repeated is None else self.make(repeated)
            case (("__eq__" | "__ne__"), 1):
                other = sequence_part(args[0])
                if other is None or not self._comparable(other):
                    return ConstantValue(NotImplemented)
                differing = self._first_difference(tx, other) if len(self.items) == len(other.items) else 0
                ended = differing >= min(len(self.items), len(other.items))  # also where comparing items has made them fewer
                return ConstantValue((ended and len(self.items) == len(other.items)) == (name == "__eq__"))
            case (("__lt__" | "__le__" | "__gt__" | "__ge__"), 1):
                other = sequence_part(args[0])
                return ConstantValue(NotImplemented) if other is None or not self._comparable(other) else self._order(tx, name, other)
            case (("__repr__" | "__str__" | "__hash__"), 0):
                return ConstantValue(getattr(self.constant(), name)())
        return super().call_method(tx, name, args, kwargs)

    def _joined(self, first: SequenceValue, second: SequenceValue) -> SequenceValue:
        return self.make(first.items + second.items)

    def _comparable(self, other: SequenceValue) -> bool:
        mine, its = self.python_type(), other.python_type()
        return issubclass(mine, its) or issubclass(its, mine) or (issubclass(mine, tuple) and issubclass(its, tuple))

    def _first_difference(self, tx: Frame, other: SequenceValue) -> int:
        """The place of the first items that differ, or where the shorter one ends. Comparing items may change both."""
        at = 0
        while at < min(len(self.items), len(other.items)) and tx.equal(self.items[at], other.items[at]):
            at += 1
        return at

    def _order(self, tx: Frame, name: str, other: SequenceValue) -> Value:
        from framejit.values.operators import compare

        differing = self._first_difference(tx, other)
        if differing < min(len(self.items), len(other.items)):
            return compare(tx, name.strip("_"), realize(tx, self.items[differing]), realize(tx, other.items[differing]))
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
        if self.cls is tuple and not self.is_part and len(items) == len(self.items) and all(a is b for a, b in zip(items, self.items)):
            return self  # as CPython does for the whole of a tuple
        return TupleValue(items, torch.Size if self.cls is torch.Size else tuple)

    def _joined(self, first: SequenceValue, second: SequenceValue) -> SequenceValue:
        if not first.items and second.python_type() is tuple and self.cls is tuple and not getattr(second, "is_part", False):
            return second
        return super()._joined(first, second)

    def constant(self) -> Any:
        return self.real([i.constant() for i in self.items]) if self.existing is None else self.existing

    @property
    def symbolic(self) -> bool:
        return any(item.symbolic for item in self.items)

    def real(self, items: list[Any]) -> Any:
        """The Python tuple of this class that holds `items`."""
        return tuple.__new__(self.cls, items) if is_namedtuple_class(self.cls) else self.cls(items)

    def proxy(self) -> Any:
        parts = [i.proxy() for i in self.items]
        if is_namedtuple_class(self.cls):
            return tuple.__new__(self.cls, parts)
        return tuple(parts)

    def getattr(self, tx: Frame, name: str) -> Value:
        if is_namedtuple_class(self.cls) and name in self.cls._fields:  # type: ignore[attr-defined]
            return self.items[self.cls._fields.index(name)]  # type: ignore[attr-defined]
        if is_return_type(self.cls):
            member = getattr(self.cls, name, None)
            fields = [f for f in dir(self.cls) if type(getattr(self.cls, f)).__name__ == "member_descriptor"]
            if name in fields:
                probe = self.cls(range(len(self.items)))
                return self.items[getattr(probe, name)]
            if member is None:
                raise tx.raised(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        if is_namedtuple_class(self.cls) and not hasattr(tuple, name):
            from framejit.values.objects.user_object import class_attribute

            return class_attribute(tx, self, self.cls, name)
        return super().getattr(tx, name)

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.cls is torch.Size and name == "numel":
            numel: Value = ConstantValue(1)
            for item in self.items:
                numel = tx.binary("*", numel, item)
            return numel
        if name == "_replace" and not args:
            fields = self.cls._fields  # type: ignore[attr-defined]
            return TupleValue([kwargs.get(f, i) for f, i in zip(fields, self.items)], self.cls)
        if name == "_asdict":
            from framejit.values.containers.mapping import DictValue

            return DictValue(dict(zip(self.cls._fields, self.items)))  # type: ignore[attr-defined]
        return super().call_method(tx, name, args, kwargs)

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


class ListValue(SequenceValue):
    """A list; changes are replayed on the real one if it has a source."""

    mutable = True

    cls: type = list

    def __init__(self, items: list[Value], source: Source | None = None, look: Callable[[], list[Value]] | None = None) -> None:
        self.source = source
        self.changes = 0  # how often it was changed, by which iterators and sorting notice
        self._items = list(items)
        self._look = look  # gives, and guards, what an existing list holds; until then `_items` is what was appended
        self._rewritten = look is None

    @property
    def items(self) -> list[Value]:
        """What the list holds.  Asking guards the length of an existing list; appending does not ask."""
        if self._look is not None:
            look, self._look = self._look, None
            self._items = look() + self._items
            self._rewritten = True
        return self._items

    @items.setter
    def items(self, items: list[Value]) -> None:
        self._look, self._items, self._rewritten = None, items, True

    def children(self) -> Iterator[Value]:
        return iter(self._items)

    def python_type(self) -> type:
        return self.cls

    def make(self, items: list[Value]) -> ListValue:
        return ListValue(items)

    def proxy(self) -> Any:
        return [i.proxy() for i in self.items]

    def constants_inside(self) -> list[Any]:
        return [i.constant() for i in self.items]

    def touch(self, tx: Frame) -> None:
        """Called before each change."""
        tx.capture.effects.changed(self)
        self.changes += 1

    def change(self, tx: Frame, items: list[Value]) -> None:
        self.touch(tx)
        self.items[:] = items

    def _extend(self, tx: Frame, other: Value) -> None:
        """Append items one at a time, as they come: what gives them may read this very list."""
        if other is self or isinstance(other, SequenceValue) and other.python_type() in (list, tuple):
            self.change(tx, self.items + other.items)
            return
        from framejit.values.containers.length_hints import gathered

        for item in gathered(tx, other):
            self.touch(tx)
            self.items.append(item)

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "append" and len(args) == 1:
            self.touch(tx)
            self._items.append(args[0])
            return NONE
        match name, len(args):
            case "extend", 1:
                self._extend(tx, args[0])
                return NONE
            case "__iadd__", 1:
                self._extend(tx, args[0])
                return self
            case "__imul__", 1:
                repeated = self._repeated(tx, args[0])
                if repeated is None:
                    return ConstantValue(NotImplemented)
                self.change(tx, repeated)
                return self
            case "insert", 2:
                self._edit(tx, list.insert, as_index(tx, args[0]), args[1])
                return NONE
            case "pop", 0 | 1:
                found = self._edit(tx, list.pop, *(as_index(tx, a) for a in args))
                assert isinstance(found, Value)
                return found
            case "remove", 1:
                at = self._find(tx, args[0])
                if at < 0:
                    raise tx.raised(ValueError, _NOT_REMOVED)
                self._edit(tx, list.pop, at)
                return NONE
            case "clear", 0:
                self.change(tx, [])
                return NONE
            case "reverse", 0:
                self.change(tx, self.items[::-1])
                return NONE
            case "copy", 0:
                return self.make(list(self.items))
            case "__reversed__", 0:
                return self.reverse_iterator(tx)
            case "sort", 0:
                self._sort(tx, kwargs)
                return NONE
            case "__setitem__", 2:
                key, value = self._index(tx, args[0]), args[1]
                if not isinstance(key, slice):
                    self._edit(tx, list.__setitem__, key, value)
                    return NONE
                value = realize(tx, value)
                if isinstance(value, ConstantValue) and not hasattr(type(value.value), "__iter__"):
                    self._edit(tx, list.__setitem__, key, value.value)  # raises
                self._edit(tx, list.__setitem__, key, list(tx.iterate(value)))
                return NONE
            case "__delitem__", 1:
                self._edit(tx, list.__delitem__, self._index(tx, args[0]))
                return NONE
        return super().call_method(tx, name, args, kwargs)

    def _edit(self, tx: Frame, method: Callable[..., Any], *args: Any) -> Any:
        """Change the items by a real method of lists; what it raises, the program raises."""
        items = list(self.items)
        try:
            result = method(items, *args)
        except (IndexError, ValueError, TypeError, OverflowError) as e:
            raise tx.raised(type(e), str(e)) from None
        self.change(tx, items)
        return result

    def _sort(self, tx: Frame, kwargs: dict[str, Value]) -> None:
        """Sort in place: meanwhile the list is empty, and whoever changes it is told."""
        from framejit.values.builtins.sorting import sort_values

        items = list(self.items)
        self.change(tx, [])
        changes = self.changes
        try:
            sort_values(tx, items, kwargs)
        finally:
            modified = self.changes != changes
            self.change(tx, items)
        if modified:
            raise tx.raised(ValueError, "list modified during sort")

    def reconstruct(self, cg: Codegen) -> None:
        if cg.holds_itself(self):
            cg.em.build("LIST", 0)
            cg.capture.effects.changed(self)
            return
        self._load_items(cg)

    def replay(self, cg: Codegen) -> None:
        """Make the real list hold the items it has now."""
        em = cg.em
        if not self._rewritten:
            for item in self._items:
                cg.call_method(self, "append", item)
                em.pop()
            return
        self._load_items(cg)
        cg.load(self)
        em.load_object(None)
        em.load_object(None)
        em.build("SLICE", 2)
        em.op("STORE_SUBSCR")

    def _load_items(self, cg: Codegen) -> None:
        for item in self.items:
            cg.load(item)
        cg.em.build("LIST", len(self.items))


_NOT_REMOVED = says([], "remove", 0)
