"""Sets and frozensets: CPython's own methods run on stand-ins for the members."""

from __future__ import annotations

from collections.abc import Iterator
from operator import is_
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import CallSource
from framejit.signals import NotConstant, Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.hashing import (
    HashTable,
    asking,
    frozen_key,
    has_own_hash,
    hashes_of,
    key_value,
    real_call,
)
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.table_iterator import TableIterator
from framejit.values.containers.tuples import TupleValue
from framejit.values.hash_order import note_order

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Codegen, Frame

_RELATIONS = frozenset("__eq__ __ne__ __le__ __lt__ __ge__ __gt__".split())
_OPERATORS = frozenset("__or__ __and__ __sub__ __xor__ __ror__ __rand__ __rsub__ __rxor__".split())
_IN_PLACE = frozenset("__ior__ __iand__ __isub__ __ixor__".split())
_OVER_ITERABLES = frozenset("union intersection difference symmetric_difference issubset issuperset isdisjoint".split())
_READING = _RELATIONS | _OPERATORS | _OVER_ITERABLES | frozenset("__contains__ __len__ copy".split())
_UPDATES = frozenset("update intersection_update difference_update symmetric_difference_update clear".split())
_OF_ONE_MEMBER = frozenset("add discard remove".split())


class Layout:
    """How the set at `source` lies in memory: assumed once the order of members is looked at."""

    def __init__(self, source: Source, found: native.SetLayout) -> None:
        self.source, self.found = source, found

    def guard(self, frame: Frame) -> None:
        where = CallSource(self.source, native.set_layout)
        plain = not any(isinstance(k, type) for k in self.found[-1])
        frame.capture.add_guard(
            where, native.C_EQUALS if plain else native.C_PY, self.found if plain else self.found.__eq__
        )


class SetValue(HashTable):
    """A set or frozenset.

    The members of a set that was made here lie in `items` as they would in the program's set; so do those of an
    existing set of constants, whose layout is taken over. `layouts` are the existing sets that the order goes back to.
    The order of objects hashed by their address is that of the existing set (`order`) until it changes, and not known
    otherwise.
    """

    def __init__(
        self, items: set[Any] | frozenset[Any], source: Source | None = None, layouts: tuple[Layout, ...] = (),
        order: list[Any] | None = None
    ) -> None:
        super().__init__()
        self.items, self.source, self.cls, self.layouts, self.order = items, source, type(items), layouts, order
        # of an existing set: methods of set and their arguments, for the real one
        self._changes: list[tuple[str, list[Value]]] = []

    def python_type(self) -> type:
        return self.cls

    def constant(self) -> Any:
        if self.cls is frozenset and not any(isinstance(k, Value) for k in self.items):
            return self.items
        raise NotConstant(self.describe())

    def plain_copy(self, frame: Frame) -> Any:
        if any(isinstance(k, Value) for k in self.items):
            raise NotConstant(self.describe())
        self.in_order(frame)
        return self.items

    def children(self) -> Iterator[Value]:
        yield from (key_value(k) for k in self.items if isinstance(k, Value))
        for _, args in self._changes:
            yield from args

    def truth(self, frame: Frame) -> bool:
        return bool(self.items)

    # ---- order ------------------------------------------------------------------------------

    def in_order(self, frame: Frame) -> list[Any]:
        """The keys in the order of iteration, which is guarded."""
        if len(self.items) < 2:
            return list(self.items)
        note_order(frame.capture.assumed, self.items)
        if self.order is not None:
            return self.order
        if not self.shares_order():
            raise Unsupported("the order of a set of objects", "FJ123")
        for layout in self.layouts:
            layout.guard(frame)
        return list(self.items)

    def iterate(self, frame: Frame) -> Iterator[Value]:
        return iter([key_value(k) for k in self.in_order(frame)])

    def unordered(self) -> list[Value]:
        """The members, for those who do not look at their order."""
        return [key_value(k) for k in self.items]

    def iterator(self, frame: Frame) -> Value:
        return TableIterator(frame, self, self, "keys")

    def real_iterator(self, frame: Frame, kind: str, backwards: bool) -> Iterator[Any]:
        keys = self.in_order(frame)
        return iter(self.items) if self.order is None else _noticing(self, keys)

    # ---- methods ----------------------------------------------------------------------------

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        args = [realize(frame, a) for a in args]
        if name == "__iter__" and not args:
            return frame.get_iter(self)
        if name in _READING:
            return self._read(frame, name, args, kwargs)
        if self.cls is set:
            if name in _OF_ONE_MEMBER and len(args) == 1 and not kwargs:
                return self._change_member(frame, name, args[0])
            if name == "pop" and not args and not kwargs:
                return self._pop(frame)
            if name in _IN_PLACE or name in _UPDATES or name in _OF_ONE_MEMBER or name == "pop":
                return self._update(frame, name, args, kwargs)
            if name == "__init__" and len(args) < 2 and not kwargs:
                self._update(frame, "clear", [], {})
                return self._update(frame, "update", args, {})
        return super().call_method(frame, name, args, kwargs)

    def _read(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "copy" and self.cls is frozenset and not args:
            return self
        if len(args) == 1 and name == "__contains__":
            operands = [self._member(frame, args[0], searches=True)]
        elif len(args) == 1 and (name in _RELATIONS or name in _OPERATORS):
            part = set_part(args[0])
            if part is None:
                return ConstantValue(NotImplemented)
            operands = [self._operand(frame, part)]
        else:
            operands = [self._operand(frame, a) for a in args]
        result = real_call(frame, getattr(self.cls, name), self.items, operands, kwargs)
        if isinstance(result, (set, frozenset)):
            return SetValue(result, None, self._layouts_with(args))
        return ConstantValue(result)

    def _layouts_with(self, args: list[Value]) -> tuple[Layout, ...]:
        """The existing sets that the order of a result goes back to."""
        parts = [self, *(p for p in map(set_part, args) if p is not None)]
        return tuple({id(layout): layout for part in parts for layout in part.layouts}.values())

    def _member(self, frame: Frame, value: Value, searches: bool = False) -> Any:
        """The key of something that is looked for, if only to know whether it is there (`searches`); a set is looked
        for as the frozenset that equals it."""
        part = set_part(value)
        if part is not None and part.cls is set and value.python_type().__hash__ is None:
            return self.tell_apart(frame, frozen_key(frame, part, value))
        return self.search_key(frame, value) if searches else self.look_up(frame, value)

    def _operand(self, frame: Frame, value: Value) -> Any:
        """A set or dict of stand-ins, or an iterator that takes the next item when CPython's code asks for it."""
        shown = value.dict_snapshot(frame)
        table = set_part(value) if shown is None else shown
        if table is None:
            table = value
        is_dict = isinstance(table, DictValue) and table.cls is dict
        # ints that are left open are members by what they are, by which sets lie
        if isinstance(table, HashTable) and (isinstance(table, SetValue) or is_dict and not any(table.open_keys())):
            for key in table.items:
                self.tell_apart(frame, key)
            return table.items
        iterator = frame.get_iter(value)
        return self._keys_from(frame, iterator)

    def _keys_from(self, frame: Frame, iterator: Value) -> Iterator[Any]:
        items = frame.drain(iterator)
        while True:
            with asking(False):
                item = next(items, None)
                key = None if item is None else self.look_up(frame, item)
            if item is None:
                return
            yield key

    def frozen(self) -> SetValue:
        """A frozenset of the same members, in the same places."""
        slots, taken, left, finger, members = native.set_layout(self.items)
        items = native.set_of_layout(frozenset, slots, taken, left, finger, members, (None,) * len(members))
        return SetValue(items, None, self.layouts)

    # ---- changes ------------------------------------------------------------------------------

    def put(self, frame: Frame, member: Value) -> None:
        """Add a member to a set that is being built."""
        real_call(frame, set.add, self.items, [self.look_up(frame, member)], {})

    def _change_member(self, frame: Frame, name: str, member: Value) -> Value:
        key = self.look_up(frame, member) if name == "add" else self._member(frame, member)
        before = len(self.items)
        real_call(frame, set.add if name == "add" else set.discard, self.items, [key], {})
        if len(self.items) != before:
            frame.capture.effects.changed(self)
            if self.source is not None:
                if has_own_hash(key):
                    raise Unsupported("changing a set from outside by objects that have their own hash", "FJ123")
                hashes_of((*self.items, key))
            part = set_part(member)
            # a set may yet be empty where this is replayed
            looked_for = part.frozen() if part is not None and part.cls is set else key_value(key)
            self._changed(frame, "add" if name == "add" else "discard", [looked_for])
        elif name == "remove":
            raise frame.raised(KeyError, member)
        return NONE

    def _pop(self, frame: Frame) -> Value:
        if not self.items:
            raise frame.raised(KeyError, "pop from an empty set")
        if self.order is not None and len(self.items) > 1:
            raise Unsupported("the order of a set of objects", "FJ123")
        self.in_order(frame)
        key = self.items.pop()
        self._changed(frame, "pop", [])
        return key_value(key)

    def _update(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in _IN_PLACE and len(args) == 1:
            part = set_part(args[0])
            if part is None:
                return ConstantValue(NotImplemented)
            args = [part]
        operands = [self._operand(frame, a) for a in args]
        layouts = self._layouts_with(args)
        taken = [self if o is self.items else _snapshot(o) for o in operands] if self.source is not None else []
        operands = [t.noting(o) if isinstance(t, _Taken) else o for t, o in zip(taken, operands)] or operands
        self._changed(frame, name, taken)
        before = list(self.items)
        real_call(frame, getattr(set, name), self.items, operands, kwargs)
        if self.source is not None:
            seen = [
                key
                for t in taken
                for key in (t.keys if isinstance(t, _Taken) else t.items if isinstance(t, HashTable) else ())
            ]
            if name != "clear" and any(map(has_own_hash, (*before, *self.items, *seen))):
                raise Unsupported("changing a set from outside by objects that have their own hash", "FJ123")
        self.layouts = layouts
        return self if name in _IN_PLACE else NONE

    def _changed(self, frame: Frame, name: str, args: list[Value]) -> None:
        """Note a change: nothing is known of the order of objects any more, and an existing set is changed alike at the
        end."""
        frame.capture.effects.changed(self)
        self.order = None
        self.reshaped += 1
        if self.source is None:
            return
        if name == "add" and self._changes and self._changes[-1][0] == "add":
            self._changes[-1][1].extend(args)
        else:
            self._changes.append((name, list(args)))

    # ---- output -------------------------------------------------------------------------------

    def reconstruct(self, cg: Codegen) -> None:
        keys = list(self.items)
        made: set[Any] | frozenset[Any] = set(keys)  # as `_load` makes it; the copy of a set may lie otherwise
        if self.cls is frozenset:
            made = frozenset(made)
        alike = native.set_layout(made)[:4] == native.set_layout(self.items)[:4] and all(map(is_, made, keys))
        hashes = hashes_of(keys)
        is_plain = all(h is None for h in hashes) and (alike or not self.shares_order())
        if not is_plain or len(keys) > 1 and self.shares_order():
            note_order(cg.capture.assumed, keys)  # members are put into places, or come one after the other
        if is_plain:
            self._load(cg, keys, "SET")
            if self.cls is frozenset:
                em, temporary = cg.em, cg.em.new_temporary("set")
                em.store_fast(temporary)
                em.call_object(frozenset, lambda: em.load_fast(temporary))
            return
        slots, taken, left, finger, _ = native.set_layout(self.items)

        def load() -> None:
            for part in (self.cls, slots, taken, left, finger):
                cg.em.load_object(part)
            self._load(cg, keys, "TUPLE")
            cg.em.load_object(hashes)

        cg.em.call_object(native.set_of_layout, load, 7)

    def _load(self, cg: Codegen, keys: list[Any], how: str) -> None:
        for key in keys:
            cg.load(key_value(key))
        cg.em.build(how, len(keys))

    def replay(self, cg: Codegen) -> None:
        if self.source is None:
            return  # it was built as it is now
        for name, args in self._changes:
            if name == "add":
                name, args = "update", [TupleValue(args)]  # adds one after the other
            cg.call_function(getattr(set, name), self, *args)
            cg.em.pop()


class _Taken(TupleValue):
    """What an update takes from an iterable, as it takes it."""

    def __init__(self) -> None:
        super().__init__([])
        self.keys: list[Any] = []

    def noting(self, keys: Iterator[Any]) -> Iterator[Any]:
        for key in keys:
            self.keys.append(key)
            self.items.append(key_value(key))
            yield key


def _snapshot(operand: Any) -> Value:
    """What the operand of an update holds now, for the replay."""
    if isinstance(operand, (set, frozenset)):
        slots, taken, left, finger, members = native.set_layout(operand)
        return SetValue(native.set_of_layout(set, slots, taken, left, finger, members, (None,) * len(members)))
    if isinstance(operand, dict):
        return DictValue(dict.fromkeys(operand, NONE))
    return _Taken()


def frozen(frame: Frame, iterable: Value) -> Value:
    """`frozenset(iterable)`."""
    if (
        isinstance(iterable, ConstantValue)
        and type(iterable.value) is frozenset
        or isinstance(iterable, SetValue)
        and iterable.cls is frozenset
    ):
        return iterable
    made = SetValue(set())
    made.call_method(frame, "update", [iterable], {})
    return made.frozen()


def set_part(value: Value | None) -> SetValue | None:
    """A set, or the set that an instance of a subclass is."""
    part = getattr(value, "base", None) or value
    return part if isinstance(part, SetValue) else None


def _noticing(table: SetValue, keys: list[Any]) -> Iterator[Any]:
    size = len(keys)
    for key in keys:
        if len(table.items) != size:
            raise RuntimeError("Set changed size during iteration")
        yield key
