"""Dicts (also OrderedDict, defaultdict, Counter, mappingproxy) and their views, and sets."""
from __future__ import annotations

import types
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.lazy import deep_realize
from framejit.values.sequence import TupleValue
from framejit.values.signals import NotConstant, Raised, Unsupported

if TYPE_CHECKING:
    from framejit.capture.codegen import Codegen
    from framejit.guards.sources import Source
    from framejit.interpreter.frame import Frame

DICT_CLASSES = (dict, OrderedDict, defaultdict, Counter, types.MappingProxyType)
_MISSING = object()


def as_key(tx: Frame, value: Value) -> Any:
    """A Python object with the hash and equality the real key has: the constant, or the value for identity keys."""
    value = deep_realize(tx, [value])[0]
    try:
        key = value.constant()
        hashed = hash(key)
        return key if value.source is None or not isinstance(value, TupleValue) else HashedKey(tx, value, hashed)
    except NotConstant:
        pass
    except TypeError as e:
        raise tx.raised_from(e) from None
    if isinstance(value, TupleValue):
        return HashedKey(tx, value, hash(tuple(as_key(tx, i) for i in value.items)))
    cls = value.python_type()
    if cls.__hash__ is None:
        raise tx.raised(TypeError, f"unhashable type: {cls.__name__!r}")
    if cls.__hash__ in (object.__hash__, types.FunctionType.__hash__, torch.Tensor.__hash__):
        return value
    if isinstance(cls.__hash__, types.FunctionType):
        return HashedKey(tx, value, hash(tx.call_special(value, "__hash__", [], "is not hashable").constant()))
    raise Unsupported(f"{value.describe()} as a dictionary key", "FJ122")


class HashedKey(Value):
    """A key whose hash and equality the program defines; Python's own dict asks it for both."""

    def __init__(self, tx: Frame, value: Value, hashed: int) -> None:
        self.tx, self.value, self.hashed = tx, value, hashed

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        value = key_value(other)
        return value is self.value or self.tx.equal(self.value, value)

    def constant(self) -> Any:
        return self.value.constant()

    def children(self) -> Iterator[Value]:
        return iter((self.value,))


def key_value(key: Any) -> Value:
    from framejit.values.wrap import from_python

    if isinstance(key, HashedKey):
        return key.value
    return key if isinstance(key, Value) else from_python(key)


class DictValue(Value):
    mutable = True

    def __init__(self, items: dict[Any, Value], source: Source | None = None, cls: type = dict, default_factory: Value = NONE) -> None:
        self.items, self.source, self.cls, self.default_factory = items, source, cls, default_factory

    def python_type(self) -> type:
        return self.cls

    def children(self) -> Iterator[Value]:
        yield from (k for k in self.items if isinstance(k, Value))
        yield from self.items.values()

    def truth(self, tx: Frame) -> bool:
        return bool(self.items)

    def proxy(self) -> Any:
        if any(isinstance(k, Value) for k in self.items):
            raise Unsupported("a dictionary with object keys as an argument of a tensor operation", "FJ120")
        return {k: v.proxy() for k, v in self.items.items()}

    def iterate(self, tx: Frame) -> Iterator[Value]:
        return iter([key_value(k) for k in self.items])

    def iterator(self, tx: Frame) -> Value:
        from framejit.values.iterators import KeyedIterator

        return KeyedIterator(tx, self, self, "keys")

    def keys_and_values(self) -> list[tuple[Value, Value]]:
        return [(key_value(k), v) for k, v in self.items.items()]

    def change(self, tx: Frame, items: dict[Any, Value]) -> None:
        tx.capture.effects.changed(self)
        self.items = items

    # ---- methods ----------------------------------------------------------------------------

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        match name, len(args):
            case "__getitem__", 1:
                return self._getitem(tx, args[0])
            case "get", 1 | 2:
                found = self.items.get(as_key(tx, args[0]))
                return found if found is not None else args[1] if len(args) > 1 else kwargs.get("default", NONE)
            case "__contains__", 1:
                return ConstantValue(as_key(tx, args[0]) in self.items)
            case "__len__", 0:
                return ConstantValue(len(self.items))
            case ("keys" | "values" | "items"), 0:
                return DictViewValue(self, name)
            case "__iter__", 0:
                return tx.get_iter(self)
            case "__reversed__", 0:
                return tx.get_iter(TupleValue(list(self.iterate(tx))[::-1]))
            case "copy" | "__copy__", 0:
                return DictValue(dict(self.items), None, self.cls if self.cls is not types.MappingProxyType else dict, self.default_factory)
            case ("__or__" | "__ror__"), 1:
                other = args[0]
                if not isinstance(other, DictValue):
                    return ConstantValue(NotImplemented)
                first, second = (self, other) if name == "__or__" else (other, self)
                return DictValue({**first.items, **second.items}, None, self.cls, self.default_factory)
            case ("__eq__" | "__ne__"), 1:
                other = args[0]
                if not isinstance(other, DictValue):
                    return ConstantValue(NotImplemented)
                same = self.items.keys() == other.items.keys() and all(tx.equal(v, other.items[k]) for k, v in self.items.items())
                if same and self.cls is OrderedDict and other.cls is OrderedDict:
                    same = list(self.items) == list(other.items)
                return ConstantValue(same == (name == "__eq__"))
        if self.cls is not types.MappingProxyType:
            found = self._mutate(tx, name, args, kwargs)
            if found is not None:
                return found
        return super().call_method(tx, name, args, kwargs)

    def _getitem(self, tx: Frame, key: Value) -> Value:
        k = as_key(tx, key)
        found = self.items.get(k)
        if found is not None:
            return found
        if self.cls is defaultdict and not (self.default_factory.is_constant() and self.default_factory.constant() is None):
            made = self.default_factory.call(tx, [], {})
            self.change(tx, {**self.items, k: made})
            return made
        if self.cls is Counter:
            return ConstantValue(0)
        raise tx.raised(KeyError, key)

    def _mutate(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        items = dict(self.items)
        match name, len(args):
            case "__setitem__", 2:
                items[as_key(tx, args[0])] = args[1]
                self.change(tx, items)
                return NONE
            case "__delitem__", 1:
                if items.pop(as_key(tx, args[0]), _MISSING) is _MISSING:
                    raise tx.raised(KeyError, args[0])
                self.change(tx, items)
                return NONE
            case "setdefault", 1 | 2:
                key = as_key(tx, args[0])
                if key not in items:
                    items[key] = args[1] if len(args) > 1 else NONE
                    self.change(tx, items)
                return items[key]
            case "pop", 1 | 2:
                found = items.pop(as_key(tx, args[0]), None)
                if found is None:
                    if len(args) > 1:
                        return args[1]
                    raise tx.raised(KeyError, args[0])
                self.change(tx, items)
                return found
            case "popitem", 0:
                if not items:
                    raise tx.raised(KeyError, "popitem(): dictionary is empty")
                last = bool(kwargs["last"].constant()) if "last" in kwargs else True
                key = list(items)[-1 if last else 0]
                value = items.pop(key)
                self.change(tx, items)
                return TupleValue([key_value(key), value])
            case "move_to_end", 1 | 2:
                last = bool((args[1] if len(args) > 1 else kwargs.get("last", ConstantValue(True))).constant())
                key = as_key(tx, args[0])
                moved = items.pop(key)
                self.change(tx, {**items, key: moved} if last else {key: moved, **items})
                return NONE
            case "clear", 0:
                self.change(tx, {})
                return NONE
            case ("update" | "__ior__"), 0 | 1:
                if self.cls is Counter:
                    return None
                if args:
                    items.update(pairs(tx, args[0]))
                items.update(kwargs)
                self.change(tx, items)
                return self if name == "__ior__" else NONE
        return None

    def getattr(self, tx: Frame, name: str) -> Value:
        if name == "default_factory" and self.cls is defaultdict:
            return self.default_factory
        return super().getattr(tx, name)

    # ---- output -------------------------------------------------------------------------------

    def _load_dict(self, cg: Codegen) -> None:
        for key, value in self.items.items():
            cg.load(key_value(key))
            cg.load(value)
        cg.em.build("MAP", len(self.items))

    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is dict:
            self._load_dict(cg)
        elif self.cls is defaultdict:
            cg.em.call_object(defaultdict, lambda: (cg.load(self.default_factory), self._load_dict(cg)), 2)
        else:
            cg.em.call_object(self.cls, lambda: self._load_dict(cg))

    def replay(self, cg: Codegen) -> None:
        em = cg.em
        em.call_object(OrderedDict.clear if issubclass(self.cls, OrderedDict) else dict.clear, lambda: cg.load(self))
        em.pop()
        em.call_object(fill_method(self.cls), lambda: (cg.load(self), self._load_dict(cg)), 2)
        em.pop()


def fill_method(cls: type) -> Any:
    """What puts items into an empty dict of class `cls` without asking methods of the class."""
    return fill_ordered if issubclass(cls, OrderedDict) else dict.update


def fill_ordered(target: Any, items: dict[Any, Any]) -> None:
    # dict.update does not see OrderedDict's order, and OrderedDict.update calls the __setitem__ of a subclass.
    for key, value in items.items():
        OrderedDict.__setitem__(target, key, value)


def pairs(tx: Frame, value: Value) -> dict[Any, Value]:
    """The (key, value) pairs `dict(value)` would take."""
    value = realize(tx, value)
    inner = getattr(value, "base", None)
    if isinstance(inner, DictValue):
        value = inner
    if isinstance(value, DictValue):
        return dict(value.items)
    try:
        with tx.catching():
            has_keys = value.getattr(tx, "keys")
    except Raised:
        has_keys = None
    if has_keys is not None:
        keys = list(tx.iterate(has_keys.call(tx, [], {})))
        return {as_key(tx, k): value.call_method(tx, "__getitem__", [k], {}) for k in keys}
    found = {}
    for pair in tx.iterate(value):
        key, item = tx.iterate(pair)
        found[as_key(tx, key)] = item
    return found


class DictViewValue(Value):
    def __init__(self, mapping: DictValue, kind: str) -> None:
        self.mapping, self.kind = mapping, kind

    def python_type(self) -> type:
        empty: dict[Any, Any] = OrderedDict() if self.mapping.cls is OrderedDict else {}
        return type(getattr(empty, self.kind)())

    def children(self) -> Iterator[Value]:
        return iter((self.mapping,))

    def truth(self, tx: Frame) -> bool:
        return bool(self.mapping.items)

    def iterate(self, tx: Frame) -> Iterator[Value]:
        if self.kind == "keys":
            return self.mapping.iterate(tx)
        if self.kind == "values":
            return iter(list(self.mapping.items.values()))
        return iter([TupleValue([k, v]) for k, v in self.mapping.keys_and_values()])

    def iterator(self, tx: Frame) -> Value:
        from framejit.values.iterators import KeyedIterator

        return KeyedIterator(tx, self, self.mapping, self.kind)

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        match name, len(args):
            case "__len__", 0:
                return ConstantValue(len(self.mapping.items))
            case "__contains__", 1 if self.kind == "keys":
                return ConstantValue(as_key(tx, args[0]) in self.mapping.items)
            case "__contains__", 1:
                return ConstantValue(any(tx.equal(i, args[0]) for i in self.iterate(tx)))
            case "__iter__", 0:
                return tx.get_iter(self)
            case "__reversed__", 0:
                return tx.get_iter(TupleValue(list(self.iterate(tx))[::-1]))
        if self.kind == "keys":
            return SetValue(dict.fromkeys(self.mapping.items)).call_method(tx, name, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call(lambda: (cg.load(self.mapping), cg.em.load_attr(self.kind)), lambda: None, 0)


_BINARY = {"__or__": "union", "__and__": "intersection", "__sub__": "difference", "__xor__": "symmetric_difference"}
_IN_PLACE = {"__ior__": "union", "__iand__": "intersection", "__isub__": "difference", "__ixor__": "symmetric_difference", "update": "union",
             "intersection_update": "intersection", "difference_update": "difference", "symmetric_difference_update": "symmetric_difference"}


class SetValue(Value):
    """A set or frozenset; the keys of `items`, in the order of insertion."""

    mutable = True

    def __init__(self, items: dict[Any, None], source: Source | None = None, cls: type = set) -> None:
        self.items, self.source, self.cls = items, source, cls

    def python_type(self) -> type:
        return self.cls

    def constant(self) -> Any:
        if self.cls is frozenset and not any(isinstance(k, Value) for k in self.items):
            return frozenset(self.items)
        raise NotConstant(self.describe())

    def children(self) -> Iterator[Value]:
        return (k for k in self.items if isinstance(k, Value))

    def truth(self, tx: Frame) -> bool:
        return bool(self.items)

    def iterate(self, tx: Frame) -> Iterator[Value]:
        if len(self.items) > 1 and any(isinstance(k, Value) for k in self.items):
            raise Unsupported("the order of a set of objects", "FJ123")
        # The real order depends on hashes and history; a set built the same way has it.
        return iter([key_value(k) for k in self.cls(list(self.items))])

    def iterator(self, tx: Frame) -> Value:
        from framejit.values.iterators import KeyedIterator

        return KeyedIterator(tx, self, self, "keys")

    def _others(self, tx: Frame, args: list[Value]) -> list[dict[Any, None]]:
        return [dict.fromkeys(as_key(tx, v) for v in (a.mapping.iterate(tx) if isinstance(a, DictViewValue) else _elements(tx, a))) for a in args]

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        match name, len(args):
            case "__contains__", 1:
                return ConstantValue(as_key(tx, args[0]) in self.items)
            case "__len__", 0:
                return ConstantValue(len(self.items))
            case "__iter__", 0:
                return tx.get_iter(self)
            case "copy", 0:
                return SetValue(dict(self.items), None, self.cls)
            case ("__eq__" | "__ne__" | "issubset" | "issuperset" | "isdisjoint" | "__le__" | "__lt__" | "__ge__" | "__gt__"), 1:
                if name.startswith("__") and not isinstance(args[0], (SetValue, DictViewValue)) and not args[0].is_constant():
                    return ConstantValue(NotImplemented)
                return ConstantValue(getattr(set(self.items), name)(set(self._others(tx, args)[0])))
        if name in _BINARY or name in _BINARY.values():
            if name in _BINARY and not isinstance(args[0], (SetValue, DictViewValue, ConstantValue)):
                return ConstantValue(NotImplemented)
            return SetValue(self._combined(_BINARY.get(name, name), self._others(tx, args)), None, self.cls)
        if self.cls is set:
            if name in _IN_PLACE:
                self.change(tx, self._combined(_IN_PLACE[name], self._others(tx, args)))
                return self if name.startswith("__") else NONE
            match name, len(args):
                case "add", 1:
                    self.change(tx, {**self.items, as_key(tx, args[0]): None})
                    return NONE
                case ("discard" | "remove"), 1:
                    key, items = as_key(tx, args[0]), dict(self.items)
                    if items.pop(key, _MISSING) is _MISSING:
                        if name == "remove":
                            raise tx.raised(KeyError, args[0])
                        return NONE
                    self.change(tx, items)
                    return NONE
                case "clear", 0:
                    self.change(tx, {})
                    return NONE
                case "pop", 0:
                    first = next(self.iterate(tx), None)
                    if first is None:
                        raise tx.raised(KeyError, "pop from an empty set")
                    self.change(tx, {k: None for k in self.items if k != as_key(tx, first)})
                    return first
        return super().call_method(tx, name, args, kwargs)

    def _combined(self, how: str, others: list[dict[Any, None]]) -> dict[Any, None]:
        items = dict(self.items)
        for other in others:
            if how == "union":
                items = {**items, **other}
            elif how == "intersection":
                items = {k: None for k in items if k in other}
            elif how == "difference":
                items = {k: None for k in items if k not in other}
            else:
                items = {**{k: None for k in items if k not in other}, **{k: None for k in other if k not in items}}
        return items

    def change(self, tx: Frame, items: dict[Any, None]) -> None:
        tx.capture.effects.changed(self)
        self.items = items

    def _load_set(self, cg: Codegen) -> None:
        for key in self.items:
            cg.load(key_value(key))
        cg.em.build("SET", len(self.items))

    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is set:
            self._load_set(cg)
        else:
            cg.em.call_object(self.cls, lambda: self._load_set(cg))

    def replay(self, cg: Codegen) -> None:
        em = cg.em
        cg.call_function(set.clear, self)
        em.pop()
        cg.call_function(set.update, self, TupleValue([key_value(k) for k in self.items]))
        em.pop()


def _elements(tx: Frame, value: Value) -> Iterator[Value]:
    value = realize(tx, value)
    return iter([key_value(k) for k in value.items]) if isinstance(value, SetValue) else tx.iterate(value)
