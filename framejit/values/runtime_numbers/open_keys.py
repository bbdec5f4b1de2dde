"""Dicts whose keys were seen to change from call to call, as those of logs: `logs[step] = loss.item()`.

Nothing is guarded of the keys but that no code of the program compares them. Replacement code writes items as the
program does, under keys that it computes, so that CPython finds whether a key is new, and where it stands. Whether the
dict has a key is guarded where it is asked for; whoever asks for more, as for all items, assumes the keys.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from framejit import _native as native
from framejit.guards.sources import AttrSource, BinarySource, CallSource, PairSource, Source, TypedKey, key_source
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.existing_tables import dict_items
from framejit.values.containers.hashing import real_call
from framejit.values.containers.mapping import DictValue
from framejit.values.lazy import LazyValue
from framejit.values.runtime_numbers.number_texts import NumberTextValue
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.runtime_numbers.size_number import place_of
from framejit.values.sym_int import SymIntValue
from framejit.values.sym_number import SymNumberValue, guard_answer
from framejit.values.wrap import wrap, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame

_NUMBERS: Final = (int, float, bool)
_PLAIN: Final = frozenset((*_NUMBERS, str, bytes, type(None)))
_ARGUMENTS: Final = {"__setitem__": (2, 2), "__contains__": (1, 1), "get": (1, 2), "setdefault": (1, 2)}
"""How many arguments those methods take at least and at most that need not look at all keys."""
_ABSENT: Final = Value()
"""Stands for the item under a key that a dict has not."""


class OpenKeysValue(DictValue):
    """A dict or defaultdict that existed before. Until somebody looks at its items, `_written` is what captured code
    has written, in its order."""

    is_known = True  # while it is made

    def __init__(self, capture: Capture, obj: dict[Any, Any], source: Source, kind: type, factory: Value) -> None:
        super().__init__({}, source, kind, factory)
        self._capture, self._obj, self._origin = capture, obj, source
        self._written: list[tuple[Value, Value]] = []
        self.is_known = False

    @property
    def items(self) -> dict[Any, Value]:
        """What the dict holds. Asking guards the keys."""
        if not self.is_known:
            self._look()
        return self._items

    @items.setter
    def items(self, items: dict[Any, Value]) -> None:
        if not self.is_known:
            self._look()
        self._items = items

    def _look(self) -> None:
        frame = self._capture.frame
        assert frame is not None
        self._items = dict_items(self._capture, self._obj, self._origin)
        self._found, self.is_known = list(self._items.items()), True
        try:
            for key, value in self._written:
                real_call(frame, dict.__setitem__, self._items, [self.look_up(frame, key), value], {})
        except BaseException:
            self._found, self.is_known = [], False
            raise

    def children(self) -> Iterator[Value]:
        if self.is_known:
            yield from super().children()
            return
        for item in self._written:
            yield from item
        yield self.default_factory

    def truth(self, frame: Frame) -> bool:
        length = None if self.is_known else self._length(frame)
        return super().truth(frame) if length is None else frame.truth(length)

    def getitem(self, frame: Frame, key: Value, owner: Value | None = None) -> Value:
        found = None if self.is_known else self._item(frame, realize(frame, key))
        if found is _ABSENT and self.cls is defaultdict:
            return self.missing(frame, key, self)
        if found is _ABSENT:
            raise frame.raised(KeyError, key)
        return super().getitem(frame, key, owner) if found is None else found

    def _run(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        found = None if self.is_known or kwargs else self._unseen(frame, name, args)
        return super()._run(frame, name, args, kwargs) if found is None else found

    def _unseen(self, frame: Frame, name: str, args: list[Value]) -> Value | None:
        """The result of a method; None where the items have to be looked at."""
        if name == "__len__" and not args:
            return self._length(frame)
        least, most = _ARGUMENTS.get(name, (0, -1))
        if not least <= len(args) <= most:
            return None
        key = realize(frame, args[0])
        if name == "__setitem__":
            return self._write(frame, key, args[1]) if _may_be_key(key) else None
        if name == "__contains__":
            holds = self._holds(frame, key)
            return None if holds is None else ConstantValue(holds)
        found = self._item(frame, key)
        if found is not _ABSENT:
            return found
        default = args[1] if len(args) > 1 else NONE
        if name == "setdefault":
            self._write(frame, key, default)
        return default

    def _write(self, frame: Frame, key: Value, value: Value) -> Value:
        frame.capture.effects.changed(self)
        self.reshaped += 1
        self._written.append((key, value))
        return NONE

    def _item(self, frame: Frame, key: Value) -> Value | None:
        """The item under a key; None where that can't be told without looking at all."""
        for other, value in reversed(self._written):
            same = _is_same(frame, key, other)
            if same is None:
                return None
            if same:
                return value
        holds = self._held_before(key)
        if holds is None or not holds:
            return None if holds is None else _ABSENT
        if not isinstance(key, ConstantValue):
            return None
        return LazyValue(self._obj[key.value], key_source(self._origin, key.value))

    def _holds(self, frame: Frame, key: Value) -> bool | None:
        """Whether a key is there, which is guarded; None where that can't be told without looking at all."""
        for other, _ in self._written:
            same = _is_same(frame, key, other)
            if same is None or same:
                return same
        return self._held_before(key)

    def _held_before(self, key: Value) -> bool | None:
        """Whether the dict has a key that captured code has not written."""
        source = self._origin
        if isinstance(key, ConstantValue) and _may_be_key(key):
            holds = key.value in self._obj
            guard_answer(self._capture, BinarySource(source, "contains", "contains", TypedKey(key.value)), holds)
            return holds
        if not _is_open_int(key):
            return None
        now, place = (key.value, key.source) if isinstance(key, SymNumberValue) else (_now(key), place_of(key))
        holds = now in self._obj
        guard_answer(self._capture, PairSource(source, place, "contains", "contains"), holds)
        return holds

    def _length(self, frame: Frame) -> Value | None:
        """How many items there are, as an int that need not be assumed."""
        new = 0
        for n, (key, _) in enumerate(self._written):
            before = [_is_same(frame, key, other) for other, _ in self._written[:n]]
            holds = None if None in before else any(before) or self._held_before(key)
            if holds is None:
                return None
            new += not holds
        return frame.binary("+", frame.wrap(len(self._obj), CallSource(self._origin, len)), ConstantValue(new))

    def replay(self, cg: Codegen) -> None:
        if self.is_known:
            super().replay(cg)
            return
        for key, value in self._written:
            cg.load(value)
            cg.load(self)
            cg.load(key)
            cg.em.op("STORE_SUBSCR")


def _may_be_key(key: Value) -> bool:
    """Whether a value is text or a number with a hash of CPython's; no nan, which is equal to itself alone."""
    if isinstance(key, ConstantValue):
        return type(key.value) in _PLAIN and bool(key.value == key.value)
    if isinstance(key, ReadNumberValue):
        return key.cls is int and not key.is_either
    return isinstance(key, NumberTextValue) or _is_open_int(key)


def _is_open_int(key: Value) -> bool:
    if isinstance(key, SymIntValue):
        return not key.is_of_data()
    return isinstance(key, SymNumberValue) and key.python_type() is int


def _now(key: Value) -> int:
    assert isinstance(key, SymIntValue)
    return int(key.size.node.hint)


def _is_same(frame: Frame, a: Value, b: Value) -> bool | None:
    """Whether two keys are equal, which is guarded; None where that is not known before the graph has run."""
    if a is b:
        return True
    if isinstance(a, ConstantValue) and isinstance(b, ConstantValue):
        return bool(a.value == b.value)
    if (a.python_type() in _NUMBERS) != (b.python_type() in _NUMBERS):
        return False
    if all(isinstance(key, ConstantValue) or _is_open_int(key) for key in (a, b)):
        return frame.equal(a, b)
    return None


def has_plain_keys(table: dict[Any, Any]) -> bool:
    """Whether no code of the program runs where a key is looked for."""
    return _PLAIN.issuperset(map(type, table))


@wraps(dict, defaultdict, first=True)
def _dict_of_open_keys(capture: Capture, obj: Any, source: Source) -> Value | None:
    if CallSource(source, tuple).name() not in capture.changing or not has_plain_keys(obj):
        return None
    if capture.effects.globals_of(obj):
        return None
    kind = type(obj)
    capture.add_guard(source, native.C_TYPE, kind)
    capture.add_guard(CallSource(source, has_plain_keys), native.C_ID, True)
    factory: Value = NONE
    if kind is defaultdict:
        factory = wrap(capture, obj.default_factory, AttrSource(source, "default_factory"))
    return OpenKeysValue(capture, obj, source, kind, factory)
