"""Dicts (also OrderedDict, defaultdict, mappingproxy): CPython's own methods run on stand-ins for the keys."""

from __future__ import annotations

import builtins
import itertools
import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import DictSource, static_lookup
from framejit.signals import Raised, Unsupported
from framejit.values.base import Value, deep_realize, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.filling import dict_of, fill_method, put_each
from framejit.values.containers.hashing import (
    HashTable,
    ObjectKey,
    asking,
    has_own_hash,
    hashes_of,
    key_value,
    real_call,
)
from framejit.values.containers.table_iterator import TableIterator
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import plain
from framejit.values.lazy import LazyValue
from framejit.values.methods import BuiltinMethods, method

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Codegen, Frame

DICT_CLASSES = (dict, OrderedDict, defaultdict, types.MappingProxyType)
VIEWS = ("keys", "values", "items")
_OF_ONE_KEY = frozenset("get __contains__ setdefault pop __setitem__ __delitem__ move_to_end".split())
_READING = frozenset("get __contains__ __len__".split())
_REWRITING = frozenset("__setitem__ move_to_end".split())  # they change a table that stays as large as it is
_CHANGING = frozenset("setdefault pop popitem __setitem__ __delitem__ move_to_end clear".split())
# frozendict, where there is one: dicts are compared and merged with it
_FROZEN = tuple(filter(None, [vars(builtins).get("frozendict")]))
_MISSING_KEEPS_WHAT_THE_FACTORY_SET = sys.version_info >= (3, 14)
_HANDED_ON = frozenset("__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __or__ __ror__ copy".split())
_FILLING = frozenset("__ior__ update __init__".split())

MAKERS_OF_VIEWS: dict[str, Callable[[DictValue], Value]] = {}
"""The views that `keys()`, `values()` and `items()` give, which register themselves."""


class DictValue(HashTable, BuiltinMethods):
    """A dict; `cls` is dict, OrderedDict, defaultdict or mappingproxy.

    `items` is a dict of values by stand-ins of their keys, an OrderedDict where the program's is one.
    """

    is_known = True  # whether its items were looked at: see OpenKeysValue

    takes_open_numbers = True

    def __init__(
        self, items: dict[Any, Value], source: Source | None = None, cls: type = dict, default_factory: Value = NONE
    ) -> None:
        super().__init__()
        self.items, self.source, self.cls, self.default_factory = self._table(items, cls), source, cls, default_factory
        self._found = list(self.items.items()) if source is not None else []  # what an existing dict holds
        self._gone: set[int] = set()  # ids of its keys that went, if only for a while
        self._cleared = False
        self._attributes: DictValue | None = None

    @staticmethod
    def _table(items: dict[Any, Value], cls: type) -> dict[Any, Value]:
        if cls is not OrderedDict or type(items) is OrderedDict:
            return items
        return OrderedDict(items)

    def python_type(self) -> type:
        return self.cls

    def realize_parts(self, frame: Frame) -> None:
        self.replace_values(deep_realize(frame, list(self.items.values())))

    def plain_copy(self, frame: Frame) -> Any:
        if self._attributes is not None and self._attributes.items:
            raise Unsupported(f"{self.describe()}, which has attributes, as a constant")
        items = {k.constant() if isinstance(k, Value) else k: plain(frame, v) for k, v in self.items.items()}
        return defaultdict(plain(frame, self.default_factory), items) if self.cls is defaultdict else self.cls(items)

    @property
    def real(self) -> Any:
        """The class whose methods run on `items`."""
        return OrderedDict if self.cls is OrderedDict else dict

    def children(self) -> Iterator[Value]:
        yield from (key_value(k) for k in self.items if isinstance(k, Value))
        yield from self.items.values()
        if self.cls is defaultdict:
            yield self.default_factory
        if self._attributes is not None:
            yield self._attributes

    def taken_out(self) -> Iterator[Value]:
        return (k.value for k, _ in self._found if isinstance(k, ObjectKey) and id(k) in self._gone)

    def truth(self, frame: Frame) -> bool:
        return bool(self.items)

    def proxy(self) -> Any:
        if any(isinstance(k, Value) for k in self.items):
            raise Unsupported("a dictionary with object keys as an argument of a tensor operation", "FJ120")
        return {k: v.proxy() for k, v in self.items.items()}

    def iterate(self, frame: Frame) -> Iterator[Value]:
        return iter([key_value(k) for k in self.items])

    def iterator(self, frame: Frame) -> Value:
        return TableIterator(frame, self, self, "keys")

    def real_iterator(self, frame: Frame, kind: str, backwards: bool) -> Iterator[Any]:
        view = getattr(self.items, kind)()
        return reversed(view) if backwards else iter(view)

    def keys_and_values(self) -> list[tuple[Value, Value]]:
        return [(key_value(k), v) for k, v in self.items.items()]

    def change(self, frame: Frame, items: dict[Any, Value]) -> None:
        frame.capture.effects.changed(self)
        self.reshaped += 1
        self.items = self._table(items, self.cls)

    def replace_values(self, values: list[Value]) -> None:
        """Put other values of the same objects in place: those that were looked at."""
        for key, value in zip(list(self.items), values):
            self.items[key] = value
        self._found = [(k, realized(v)) for k, v in self._found]

    def copied(self) -> dict[Any, Value]:
        """The items in a dict of their own."""
        return type(self.items)(self.items)

    # ---- methods ----------------------------------------------------------------------------

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        writable = self.cls is not types.MappingProxyType
        if name in _HANDED_ON and not (writable or self._answers_for_itself(args)):
            raise Unsupported(f"{name}() of a mappingproxy, which hands on what it shows")
        if name in _READING or (name in _CHANGING and writable):
            return self._run(frame, name, args, kwargs)
        if name in _FILLING and not writable or name == "__missing__" and self.cls is not defaultdict:
            return Value.call_method(self, frame, name, args, kwargs)
        return super().call_method(frame, name, args, kwargs)

    def _answers_for_itself(self, args: list[Value]) -> bool:
        """Whether a mappingproxy's operation is that of its dict, without anybody seeing which mapping it hands on."""
        return isinstance(self, MappingProxyValue) and all(
            isinstance(a, (ConstantValue, MappingProxyValue)) or isinstance(a, DictValue) and a.cls is dict
            for a in args
        )

    def other_dict(self, value: Value) -> DictValue | None:
        """The dict that an operand is. A mappingproxy beside a dict is none, but does the operation itself."""
        if value.python_type() in _FROZEN:
            raise Unsupported("a dict beside a frozendict")
        other = dict_part(value)
        shown = other is not None and other.cls is types.MappingProxyType
        return None if shown and self.cls is not types.MappingProxyType else other

    @method("__getitem__")
    def _getitem(self, frame: Frame, key: Value) -> Value:
        return self.getitem(frame, key)

    @method("keys", "values", "items", tells_name=True)
    def _view(self, frame: Frame, name: str) -> Value:
        return MAKERS_OF_VIEWS[name](self)

    @method("__iter__")
    def _iter(self, frame: Frame) -> Value:
        return frame.get_iter(self)

    @method("__reversed__")
    def _reversed(self, frame: Frame) -> Value:
        return TableIterator(frame, self, self, "keys", backwards=True)

    @method("copy", "__copy__")
    def _copy(self, frame: Frame) -> Value:
        return DictValue(
            real_call(frame, self.real.copy, self.items, [], {}), None, self._plain_class(), self.default_factory
        )

    @method("__eq__")
    def _equal_to(self, frame: Frame, value: Value) -> Value:
        other = self.other_dict(value)
        return ConstantValue(NotImplemented if other is None else self._equals(frame, other))

    @method("__ne__")
    def _unequal_to(self, frame: Frame, value: Value) -> Value:
        other = self.other_dict(value)
        return ConstantValue(NotImplemented if other is None else not self._equals(frame, other))

    @method("__ior__")
    def _update_in_place(self, frame: Frame, items: Value) -> Value:
        self.update(frame, [items], {})
        return self

    @method("update", "__init__")
    def _update(self, frame: Frame, items: Value | None = None, /, **kwargs: Value) -> Value:
        self.update(frame, [] if items is None else [items], kwargs)
        return NONE

    @method("__missing__")
    def _missing(self, frame: Frame, key: Value) -> Value:
        return self.missing(frame, key, self)

    def _plain_class(self) -> type:
        return dict if self.cls is types.MappingProxyType else self.cls

    def _run(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """A method of CPython's that looks for one key at most."""
        given: list[Any] = list(args)
        named: dict[str, Any] = {k: realize(frame, v).constant() if k == "last" else v for k, v in kwargs.items()}
        if name in _OF_ONE_KEY and given:
            given[0] = self.search_key(frame, given[0]) if name in _READING else self.look_up(frame, given[0])
        elif name in _OF_ONE_KEY and "key" in named and self.cls is OrderedDict:
            named["key"] = self.look_up(frame, named["key"])
        if name == "move_to_end" or name == "popitem":
            given[name == "move_to_end" :] = [realize(frame, v).constant() for v in args[name == "move_to_end" :]]
        adds = name == "setdefault" and len(given) < 2 and "default" not in named
        if adds:
            given.append(NONE) if given else named.update(default=NONE)
        size = len(self.items)
        if name in _REWRITING:
            frame.capture.effects.changed(self)
        result = real_call(frame, getattr(self.real, name), self.items, given, named)
        if len(self.items) != size:
            frame.capture.effects.changed(self)
        self.reshaped += len(self.items) != size or name == "move_to_end"
        if self._found and len(self.items) < size:
            self._cleared |= name == "clear"
            self._gone |= {id(k) for k, _ in self._found}.difference(map(id, self.items))
        if isinstance(result, tuple):
            return TupleValue([key_value(result[0]), result[1]])
        return result if isinstance(result, Value) else ConstantValue(result)

    def getitem(self, frame: Frame, key: Value, owner: Value | None = None) -> Value:
        """`self[key]`, or that of the instance of a subclass that this is the dict of."""
        found = real_call(frame, dict.get, self.items, [self.search_key(frame, key), None], {})
        if found is not None:
            return found
        missing = None if owner is None else static_lookup(owner.python_type(), "__missing__", None)
        if owner is not None and missing is not None and missing is not defaultdict.__dict__["__missing__"]:
            return frame.call_special(owner, "__missing__", [key], "has no __missing__")
        if self.cls is defaultdict:
            return self.missing(frame, key, owner or self)
        raise frame.raised(KeyError, key)

    def missing(self, frame: Frame, key: Value, owner: Value) -> Value:
        """defaultdict.__missing__."""
        if self.default_factory.is_constant() and self.default_factory.constant() is None:
            raise frame.raised(KeyError, key)
        made = frame.call(self.default_factory, [], {})
        if _MISSING_KEEPS_WHAT_THE_FACTORY_SET:
            return self._run(frame, "setdefault", [key, made], {})
        frame.call_special(owner, "__setitem__", [key, made], "does not support item assignment")
        return made

    def _equals(self, frame: Frame, other: DictValue) -> bool:
        for key in other.items:
            self.tell_apart(frame, key)
        left, right = self._comparable(frame), other._comparable(frame)
        return bool(real_call(frame, type(left).__eq__, left, [right], {}))

    def _comparable(self, frame: Frame) -> dict[Any, Any]:
        return type(self.items)((k, _Compared(frame, v)) for k, v in self.items.items())

    @method("__or__", "__ror__", tells_name=True)
    def _merged(self, frame: Frame, name: str, value: Value) -> Value:
        other = self.other_dict(value)
        if other is None:
            return ConstantValue(NotImplemented)
        first, second = (self, other) if name == "__or__" else (other, self)
        cls = self._plain_class()
        made = DictValue(first.copied(), None, cls, self.default_factory)
        made.items = real_call(frame, made.real.copy, made.items, [], {})
        made.merge(frame, second if second is self else value)
        return made

    # ---- taking the items of others --------------------------------------------------------------

    def update(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> None:
        """`update(*args, **kwargs)`, of one argument at most."""
        frame.capture.effects.changed(self)
        self.reshaped += 1
        if args:
            self.merge(frame, args[0])
        for name, value in kwargs.items():
            real_call(frame, self.real.__setitem__, self.items, [name, value], {})

    def put(self, frame: Frame, key: Value, value: Value) -> None:
        """Set an item of a dict that is being built."""
        real_call(frame, dict.__setitem__, self.items, [self.look_up(frame, key), value], {})

    def take_keys(self, frame: Frame, keys: list[Any], value: Value) -> None:
        """Take the keys of a dict or set into this one, which is empty; like CPython's code, that asks none of them for
        its hash."""
        for key in keys:
            self.tell_apart(frame, key)
        frame.capture.effects.changed(self)
        self.items = dict.fromkeys(keys, value)

    def count(self, frame: Frame, item: Value) -> None:
        """Count an item, as collections.Counter does: it is asked for its hash once."""
        key = self.look_up(frame, item)
        before = real_call(frame, dict.get, self.items, [key, ConstantValue(0)], {}, tells_use=False)
        after = frame.binary("+", before, ConstantValue(1))
        frame.capture.effects.changed(self)
        self.reshaped += 1
        known = key.hashed if isinstance(key, ObjectKey) else hash(key)
        real_call(frame, native.dict_set_known_hash, self.items, [key, known, after], {})

    def set_factory(self, frame: Frame, factory: Value) -> None:
        known = factory.is_constant() and factory.constant() is None
        if not known and static_lookup(factory.python_type(), "__call__", None) is None:
            raise frame.raised(TypeError, "first argument must be callable or None")
        self.default_factory = factory

    def merge(self, frame: Frame, value: Value) -> None:
        """Take what `dict(value)` would take: of another dict, of what has keys(), or pairs."""
        value = realize(frame, value)
        other = plain_dict_part(frame, value)
        if other is not None and not (self.cls is OrderedDict and _says_what_it_holds(value, other)):
            for key in other.items:
                self.tell_apart(frame, key)
            real_call(frame, self.real.update, self.items, [other.items], {})
            return
        try:
            with frame.catching():
                keys = value.getattr(frame, "keys")
        except Raised as e:
            if not issubclass(e.value.cls, AttributeError):
                raise
        else:
            self.merge_keys(frame, value, keys)
            return
        for n, pair in enumerate(frame.drain(frame.get_iter(value))):
            self._take_pair(frame, n, realize(frame, pair))

    def merge_keys(self, frame: Frame, value: Value, keys: Value) -> None:
        """Take the items of a mapping by its method `keys`."""
        for key in frame.drain(frame.get_iter(frame.call(keys, [], {}))):
            item = frame.call_special(value, "__getitem__", [key], "is not subscriptable")
            real_call(frame, self.real.__setitem__, self.items, [self.look_up(frame, key), item], {})

    def _take_pair(self, frame: Frame, n: int, pair: Value) -> None:
        try:
            with frame.catching():
                iterator = frame.get_iter(pair)
        except Raised as e:
            if not issubclass(e.value.cls, TypeError):
                raise
            said = (
                "object is not iterable"
                if sys.version_info >= (3, 14)
                else f"cannot convert dictionary update sequence element #{n} to a sequence"
            )
            raise frame.raised(TypeError, said) from None
        items = list(frame.drain(iterator))
        if len(items) != 2:
            raise frame.raised(
                ValueError, f"dictionary update sequence element #{n} has length {len(items)}; 2 is required"
            )
        real_call(frame, self.real.__setitem__, self.items, [self.look_up(frame, items[0]), items[1]], {})

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "default_factory" and self.cls is defaultdict:
            return self.default_factory
        if self.cls is OrderedDict and (name == "__dict__" or static_lookup(OrderedDict, name, None) is None):
            attributes = self.attributes(frame)
            if name == "__dict__" and self.source is not None:
                return attributes
            if name in attributes.items:
                return attributes.items[name]
        return super().getattr(frame, name)

    def setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        if self.cls is not OrderedDict or value is None or static_lookup(OrderedDict, name, None) is not None:
            raise Unsupported(f"setting attribute {name!r} of {self.describe()}")
        attributes = self.attributes(frame)
        attributes.change(frame, {**attributes.items, name: value})

    def attributes(self, frame: Frame) -> DictValue:
        """What an OrderedDict has for its `__dict__`, as the one of a state_dict has `_metadata`."""
        if self._attributes is None:
            if self.source is None:
                self._attributes = DictValue({})
            else:
                found = realize(frame, frame.wrap(frame.capture.real(self).__dict__, DictSource(self.source)))
                if not isinstance(found, DictValue):
                    raise Unsupported(f"the attributes of {self.describe()}")
                self._attributes = found
        return self._attributes

    # ---- output -------------------------------------------------------------------------------

    def _load_dict(self, cg: Codegen, beside: Iterable[Any] = ()) -> None:
        """Push a plain dict of the items, which are to go beside other keys."""
        hashes = hashes_of(self.items, beside)
        if all(h is None for h in hashes):
            for key, value in self.items.items():
                cg.load(key_value(key))
                cg.load(value)
            cg.em.build("MAP", len(self.items))
            return
        for key in self.items:
            cg.load(key_value(key))
        keys, values = cg.em.new_temporary("keys"), cg.em.new_temporary("values")
        cg.em.build("TUPLE", len(self.items))
        cg.em.store_fast(keys)
        for value in self.items.values():
            cg.load(value)
        cg.em.build("TUPLE", len(self.items))
        cg.em.store_fast(values)
        cg.em.call_object(
            dict_of, lambda: (cg.em.load_fast(keys), cg.em.load_object(hashes), cg.em.load_fast(values)), 3
        )

    def reconstruct(self, cg: Codegen) -> None:
        content: DictValue = self
        if cg.holds_itself(self):
            content = DictValue({})
            cg.capture.effects.changed(self)
        if self.cls is OrderedDict and any(map(has_own_hash, content.items)):
            raise Unsupported("an OrderedDict of objects that have their own hash", "FJ130")
        if self.cls is dict:
            content._load_dict(cg)
        elif self.cls is defaultdict:
            cg.em.call_object(defaultdict, lambda: (cg.load(self.default_factory), content._load_dict(cg)), 2)
        else:
            cg.em.call_object(self.cls, lambda: content._load_dict(cg))
        if self._attributes is not None and self._attributes.source is None and self._attributes.items:
            cg.capture.effects.changed(self)  # replay fills them in, so that cycles are possible

    def replay(self, cg: Codegen) -> None:
        if self.source is None and self._attributes is not None:
            for name, value in self._attributes.items.items():
                cg.load(value)
                cg.load(self)
                cg.em.store_attr(name)
        if self.source is None and not cg.holds_itself(self):
            return  # it was built as it is now
        em, now = cg.em, list(self.items.items())
        if self.real is OrderedDict and any(map(has_own_hash, (*self.items, *(k for k, _ in self._found)))):
            raise Unsupported("an OrderedDict of objects that have their own hash", "FJ130")
        stay = [(k, realized(v)) for k, v in self._found if id(k) not in self._gone]
        gone = [k for k, _ in self._found if id(k) in self._gone]
        if (
            self._cleared
            or any(map(has_own_hash, gone))
            or not all(a[0] is b[0] for a, b in itertools.zip_longest(stay, now[: len(stay)], fillvalue=(None,)))
        ):
            em.call_object(self.real.clear, lambda: cg.load(self))
            em.pop()
            changes = now
        else:
            # what goes is taken out and what comes is put in, so that iterators elsewhere see what they would have;
            # a thread, or the callback of a weak reference, may have taken it out while the graph ran
            for key in gone:
                cg.call_function(self.real.pop, self, key_value(key), NONE)
                em.pop()
            changes = [item for n, item in enumerate(now) if n >= len(stay) or realized(item[1]) is not stay[n][1]]
        filled = DictValue({})
        filled.items = dict(changes)
        fill = put_each if gone and self.real is dict else fill_method(self.real)
        em.call_object(fill, lambda: (cg.load(self), filled._load_dict(cg, (*self.items, *gone))), 2)
        em.pop()


class _Compared:
    """Stands for an item of a dict that is compared with another dict: CPython's code asks the captured program."""

    def __init__(self, frame: Frame, value: Value) -> None:
        self.frame, self.value = frame, value

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _Compared)
        with asking(False):
            return self.frame.equal(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]


def realized(value: Value) -> Value:
    """The value that a lazy value turned out to be, if anybody looked at it; else the value itself."""
    return value.realized or value if isinstance(value, LazyValue) else value


class MappingProxyValue(DictValue):
    """A mappingproxy of a dict: it holds what the dict holds at the time."""

    def __init__(self, behind: DictValue, source: Source | None = None) -> None:
        self.behind = behind
        super().__init__({}, source, types.MappingProxyType)

    def children(self) -> Iterator[Value]:
        return iter((self.behind,))

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(types.MappingProxyType, lambda: cg.load(self.behind))

    @property
    def items(self) -> dict[Any, Value]:
        return self.behind.items

    @items.setter
    def items(self, items: dict[Any, Value]) -> None:
        """What it holds is the dict's."""

    @property
    def reshaped(self) -> int:
        return self.behind.reshaped

    @reshaped.setter
    def reshaped(self, times: int) -> None:
        """How often it was reshaped is the dict's."""


def dict_part(value: Value) -> DictValue | None:
    """A dict, or the dict that an instance of a subclass is."""
    part = getattr(value, "base", None) or value
    return part if isinstance(part, DictValue) else None


def plain_dict_part(frame: Frame, value: Value) -> DictValue | None:
    """The dict whose table CPython's C code reads itself, instead of calling keys() and __getitem__; None for other
    mappings."""
    snapshot = value.dict_snapshot(frame)
    if isinstance(snapshot, DictValue):
        return snapshot
    part = dict_part(value)
    if part is None or part is value:
        return part if part is None or part.cls is not types.MappingProxyType else part
    return part if static_lookup(value.python_type(), "__iter__") is dict.__iter__ else None


def _says_what_it_holds(value: Value, part: DictValue) -> bool:
    """Whether an instance of a subclass of dict has its own `keys` or `__getitem__`, which an OrderedDict asks."""
    cls = value.python_type()
    return any(static_lookup(cls, name) is not static_lookup(part.cls, name) for name in ("keys", "__getitem__"))


def pairs(frame: Frame, value: Value) -> dict[Any, Value]:
    """The items that `dict(value)` would have."""
    made = DictValue({})
    made.merge(frame, value)
    return made.items
