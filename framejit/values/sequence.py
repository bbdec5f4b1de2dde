"""Lists and tuples of values; named tuples, torch.Size and torch.return_types are tuples with another class."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from framejit.guards.sources import static_lookup
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.lazy import deep_realize
from framejit.values.signals import NotConstant, Unsupported

if TYPE_CHECKING:
    from framejit.capture.codegen import Codegen
    from framejit.guards.sources import Source
    from framejit.interpreter.frame import Frame


def is_namedtuple_class(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make")


def sequence_part(value: Value) -> SequenceValue | None:
    """A list or tuple, or the built-in part of an instance of a subclass."""
    part = getattr(value, "base", None) or value
    return part if isinstance(part, SequenceValue) else None


def is_return_type(cls: type) -> bool:
    """torch.return_types: structseq classes such as that of torch.max(x, dim)."""
    return cls.__module__ == "torch.return_types"


class SequenceValue(Value):
    items: list[Value]

    def children(self) -> Iterator[Value]:
        return iter(self.items)

    def truth(self, tx: Frame) -> bool:
        return bool(self.items)

    def iterate(self, tx: Frame) -> Iterator[Value]:
        return iter(list(self.items))

    def iterator(self, tx: Frame) -> Value:
        from framejit.values.iterators import ItemsIterator

        cls = self.python_type()
        return ItemsIterator(self, type(iter(cls() if cls in (list, tuple) else ())))

    def realized(self, tx: Frame) -> list[Value]:
        """The items, every one looked at: for what goes into a graph or is compared."""
        self.items[:] = [realize(tx, i) for i in self.items]
        return self.items

    def make(self, items: list[Value]) -> SequenceValue:
        """A new sequence of the built-in kind, as slicing and + give."""
        raise NotImplementedError

    def _index(self, tx: Frame, key: Value) -> Any:
        """The int or slice a subscript stands for."""
        from framejit.values.user_object import ObjectValue

        key = deep_realize(tx, [key])[0]
        if isinstance(key, ObjectValue) and static_lookup(key.cls, "__index__", None) is not None:
            key = key.call_method(tx, "__index__", [], {})
        try:
            return key.constant()
        except NotConstant:
            raise Unsupported(f"indexing a {self.python_type().__name__} with {key.describe()}", "FJ122") from None

    def _subscript(self, tx: Frame, key: Value) -> Value:
        index = self._index(tx, key)
        if isinstance(index, slice):
            return self.make(self.items[index])
        try:
            return self.items[index]
        except (IndexError, TypeError) as e:
            raise tx.raised_from(e) from None

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        match name, len(args):
            case "__getitem__", 1:
                return self._subscript(tx, args[0])
            case "__len__", 0:
                return ConstantValue(len(self.items))
            case "__contains__", 1:
                return ConstantValue(any(tx.equal(item, args[0]) for item in self.items))
            case "__iter__", 0:
                return tx.get_iter(self)
            case ("index", n) if n >= 1:
                start, stop = (tx.constants(args[1:]) + [0, len(self.items)][n - 1 :])[:2] if n > 1 else (0, len(self.items))
                for i in range(*slice(start, stop).indices(len(self.items))):
                    if tx.equal(self.items[i], args[0]):
                        return ConstantValue(i)
                raise tx.raised(ValueError, f"{args[0].describe()} is not in {self.python_type().__name__}")
            case "count", 1:
                return ConstantValue(sum(tx.equal(item, args[0]) for item in self.items))
            case "__add__", 1:
                other_part = sequence_part(args[0])
                if other_part is not None and issubclass(args[0].python_type(), self.make([]).python_type()):
                    return self.make(self.items + other_part.items)
                return ConstantValue(NotImplemented)
            case (("__mul__" | "__rmul__"), 1):
                return self.make(self.items * args[0].constant()) if args[0].is_constant() else ConstantValue(NotImplemented)
            case (("__eq__" | "__ne__"), 1):
                other = args[0]
                if not isinstance(other, SequenceValue) or not self._comparable(other):
                    return ConstantValue(NotImplemented)
                equal = len(self.items) == len(other.items) and all(tx.equal(a, b) for a, b in zip(self.items, other.items))
                return ConstantValue(equal == (name == "__eq__"))
            case (("__lt__" | "__le__" | "__gt__" | "__ge__"), 1) if isinstance(args[0], SequenceValue):
                return self._order(tx, name, args[0])
            case (("__repr__" | "__str__" | "__hash__"), 0):
                return ConstantValue(getattr(self.constant(), name)())
        return super().call_method(tx, name, args, kwargs)

    def _comparable(self, other: SequenceValue) -> bool:
        mine, its = self.python_type(), other.python_type()
        return issubclass(mine, its) or issubclass(its, mine) or (issubclass(mine, tuple) and issubclass(its, tuple))

    def _order(self, tx: Frame, name: str, other: SequenceValue) -> Value:
        from framejit.values.operators import compare

        for a, b in zip(self.items, other.items):
            if not tx.equal(a, b):
                return compare(tx, name.strip("_"), realize(tx, a), realize(tx, b))
        return ConstantValue(getattr(len(self.items), name)(len(other.items)))


class TupleValue(SequenceValue):
    """A tuple, or an instance of a tuple class that adds nothing but names (`cls`)."""

    def __init__(self, items: list[Value], cls: type = tuple, source: Source | None = None) -> None:
        self.items, self.cls, self.source = list(items), cls, source

    def python_type(self) -> type:
        return self.cls

    def make(self, items: list[Value]) -> TupleValue:
        return TupleValue(items, torch.Size if self.cls is torch.Size else tuple)

    def constant(self) -> Any:
        return self.real([i.constant() for i in self.items])

    @property
    def symbolic(self) -> bool:
        return any(item.symbolic for item in self.items)

    def real(self, items: list[Any]) -> Any:
        """The Python tuple of this class that holds `items`."""
        return tuple.__new__(self.cls, items) if is_namedtuple_class(self.cls) else self.cls(items)

    def proxy(self) -> Any:
        parts = [i.proxy() for i in self.items]
        if is_namedtuple_class(self.cls):
            return self.cls(*parts)
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
            from framejit.values.user_object import class_attribute

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
            from framejit.values.mapping import DictValue

            return DictValue(dict(zip(self.cls._fields, self.items)))  # type: ignore[attr-defined]
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        if is_namedtuple_class(self.cls):
            cg.em.call(lambda: (cg.em.load_object(self.cls), cg.em.load_attr("_make")), lambda: self._build(cg), 1)
        elif self.cls is tuple:
            self._build(cg)
        else:
            cg.em.call_object(self.cls, lambda: self._build(cg))

    def _build(self, cg: Codegen) -> None:
        for item in self.items:
            cg.load(item)
        cg.em.build("TUPLE", len(self.items))


class ListValue(SequenceValue):
    """A list or a deque (`cls`); changes are replayed on the real one if it has a source."""

    mutable = True

    def __init__(
        self, items: list[Value], source: Source | None = None, cls: type = list, maxlen: int | None = None, look: Callable[[], list[Value]] | None = None
    ) -> None:
        self.source, self.cls, self.maxlen = source, cls, maxlen
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
        return ListValue(items, cls=self.cls, maxlen=self.maxlen)

    def proxy(self) -> Any:
        return [i.proxy() for i in self.items]

    def constants_inside(self) -> list[Any]:
        return [i.constant() for i in self.items]

    def change(self, tx: Frame, items: list[Value]) -> None:
        tx.capture.effects.changed(self)
        self.items[:] = items if self.maxlen is None else list(deque(items, self.maxlen))

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "append" and len(args) == 1 and self.maxlen is None:
            tx.capture.effects.changed(self)
            self._items.append(args[0])
            return NONE
        items = list(self.items)
        match name, len(args):
            case "append", 1:
                self.change(tx, items + [args[0]])
                return NONE
            case (("extend" | "__iadd__"), 1):
                self.change(tx, items + list(tx.iterate(args[0])))
                return self if name == "__iadd__" else NONE
            case "__imul__", 1:
                self.change(tx, items * args[0].constant())
                return self
            case "appendleft", 1:
                self.change(tx, [args[0]] + items)
                return NONE
            case "extendleft", 1:
                self.change(tx, list(tx.iterate(args[0]))[::-1] + items)
                return NONE
            case "insert", 2:
                items.insert(args[0].constant(), args[1])
                self.change(tx, items)
                return NONE
            case ("pop", 0 | 1) | ("popleft", 0):
                try:
                    found = items.pop(0 if name == "popleft" else args[0].constant() if args else -1)
                except IndexError as e:
                    raise tx.raised(IndexError, f"pop from an empty {self.cls.__name__}" if self.cls is not list else str(e)) from None
                self.change(tx, items)
                return found
            case "remove", 1:
                for i, item in enumerate(items):
                    if tx.equal(item, args[0]):
                        self.change(tx, items[:i] + items[i + 1 :])
                        return NONE
                raise tx.raised(ValueError, "list.remove(x): x not in list")
            case "clear", 0:
                self.change(tx, [])
                return NONE
            case "reverse", 0:
                self.change(tx, items[::-1])
                return NONE
            case "rotate", 0 | 1:
                rotated = deque(items)
                rotated.rotate(args[0].constant() if args else 1)
                self.change(tx, list(rotated))
                return NONE
            case "copy" | "__copy__", 0:
                return self.make(items)
            case "sort", 0:
                from framejit.values.iterators import sort_values

                self.change(tx, sort_values(tx, items, kwargs))
                return NONE
            case "__setitem__", 2:
                key = self._index(tx, args[0])
                try:
                    items[key] = list(tx.iterate(args[1])) if isinstance(key, slice) else args[1]
                except (IndexError, ValueError, TypeError) as e:
                    raise tx.raised(type(e), str(e)) from None
                self.change(tx, items)
                return NONE
            case "__delitem__", 1:
                try:
                    del items[self._index(tx, args[0])]
                except (IndexError, TypeError) as e:
                    raise tx.raised(type(e), str(e)) from None
                self.change(tx, items)
                return NONE
        return super().call_method(tx, name, args, kwargs)

    def getattr(self, tx: Frame, name: str) -> Value:
        if name == "maxlen" and self.cls is deque:
            return ConstantValue(self.maxlen)
        return super().getattr(tx, name)

    def reconstruct(self, cg: Codegen) -> None:
        for item in self.items:
            cg.load(item)
        cg.em.build("LIST", len(self.items))
        if self.cls is deque:
            cg.em.load_object(self.maxlen)
            make = cg.em.new_temporary("deque")
            cg.em.build("TUPLE", 2)
            cg.em.store_fast(make)
            cg.em.call_object(_make_deque, lambda: cg.em.load_fast(make))

    def replay(self, cg: Codegen) -> None:
        """Make the real list hold the items it has now."""
        em = cg.em
        if not self._rewritten:
            for item in self._items:
                cg.call_method(self, "append", item)
                em.pop()
            return
        if self.cls is deque:
            cg.call_method(self, "clear")
            em.pop()
            cg.call_method(self, "extend", TupleValue(self._items))
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


def _make_deque(parts: tuple[list[Any], int | None]) -> deque[Any]:
    return deque(*parts)
