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
from framejit.guards.sources import (
    AttrSource,
    BinarySource,
    CallSource,
    ComputedSource,
    PairSource,
    Source,
    TypedKey,
    key_source,
)
from framejit.late_dataclass import dataclass
from framejit.values.base import Value, deep_realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.existing_tables import dict_items
from framejit.values.containers.folded_numbers import open_number
from framejit.values.containers.hashing import real_call
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.lazy import LazyValue
from framejit.values.runtime_numbers.number_texts import NumberTextValue
from framejit.values.runtime_numbers.picked_numbers import (
    has_plain_keys,
    is_plain_key,
    item_of,
    picked_from,
    place_of_open_int,
)
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.sym_number import guard_answer
from framejit.values.wrap import wrap, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame

_NUMBERS: Final = (int, float, bool)
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
        found = None if self.is_known else self._item(frame, deep_realize(frame, [key])[0])
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
        key = deep_realize(frame, args[:1])[0]
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
        if not _is_known(key):
            index = _place_of_key(key)
            return None if index is None else picked_from(
                self._capture, item_of, self._obj, self._origin, key, index
            )
        known = key.constant()
        return LazyValue(self._obj[known], key_source(self._origin, known))

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
        if not _may_be_key(key):
            return None
        if _is_known(key):
            holds = key.constant() in self._obj
            guard_answer(self._capture, BinarySource(source, "contains", "contains", TypedKey(key.constant())), holds)
            return holds
        found = _place_of_key(key)
        if found is None:
            return None
        now, place = found
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
        there = open_number(self._capture, len(self._obj), CallSource(self._origin, len))
        return frame.binary("+", there, ConstantValue(new))

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
    """Whether a value is text, or a number, with a hash of CPython's, or a tuple of these; no nan, which is equal to
    itself alone."""
    if isinstance(key, ConstantValue):
        return is_plain_key(key.value) and _is_equal_to_itself(key.value)
    if isinstance(key, ReadNumberValue):
        return key.cls is int and not key.is_either
    if isinstance(key, TupleValue):
        return key.python_type() is tuple and all(map(_may_be_key, key.items))
    return isinstance(key, NumberTextValue) or place_of_open_int(key) is not None


def _is_equal_to_itself(key: Any) -> bool:
    return all(map(_is_equal_to_itself, key)) if type(key) is tuple else bool(key == key)


def _is_known(key: Value) -> bool:
    """Whether a key is known by its value."""
    return all(map(_is_known, key.items)) if isinstance(key, TupleValue) else isinstance(key, ConstantValue)


@dataclass(frozen=True)
class TupleOf:
    """Makes a tuple of the parts that are known, and, where None stands, of what it is called with."""

    parts: tuple[TypedKey | None, ...]

    def __call__(self, *others: Any) -> tuple[Any, ...]:
        left = iter(others)
        return tuple(next(left) if part is None else part.value for part in self.parts)


def _place_of_key(key: Value) -> tuple[Any, Source] | None:
    """A key now, and where it can be computed again, if that is known before the graph has run."""
    if not isinstance(key, TupleValue):
        return place_of_open_int(key)
    known = [TypedKey(item.constant()) if _is_known(item) else None for item in key.items]
    places = [_place_of_key(item) for item, part in zip(key.items, known) if part is None]
    found = [place for place in places if place is not None]
    if len(found) < len(places):
        return None
    made = TupleOf(tuple(known))
    return made(*(now for now, _ in found)), ComputedSource(made, tuple(place for _, place in found))


def _is_same(frame: Frame, a: Value, b: Value) -> bool | None:
    """Whether two keys are equal, which is guarded; None where that is not known before the graph has run."""
    if a is b:
        return True
    if _is_known(a) and _is_known(b):
        return bool(a.constant() == b.constant())
    if a.python_type() is tuple or b.python_type() is tuple:
        return _are_same_tuples(frame, a, b)
    if (a.python_type() in _NUMBERS) != (b.python_type() in _NUMBERS):
        return False
    if all(isinstance(key, ConstantValue) or place_of_open_int(key) is not None for key in (a, b)):
        return frame.equal(a, b)
    return None


def _are_same_tuples(frame: Frame, a: Value, b: Value) -> bool | None:
    if a.python_type() is not b.python_type():
        return False
    items = [_items_of_tuple(key) for key in (a, b)]
    if len(items[0]) != len(items[1]):
        return False
    same = [_is_same(frame, one, other) for one, other in zip(*items)]
    return False if False in same else None if None in same else True


def _items_of_tuple(key: Value) -> list[Value]:
    return key.items if isinstance(key, TupleValue) else [ConstantValue(item) for item in key.constant()]


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
