"""What the captured code changed outside the graph, to be replayed after the graph has run."""
from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.builtins.cached_function import put_result
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.inspection import namespace_of
from framejit.values.objects.module import ModuleValue
from framejit.values.objects.user_object import ObjectValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import CachedCall, Codegen


def _load_all(cg: Codegen, values: list[Value]) -> None:
    for value in values:
        cg.load(value)


def _change_global(cg: Codegen, namespace: dict[str, Any], name: str, value: Value | None) -> None:
    """Write a name, or with None delete it."""
    verb = "DELETE" if value is None else "STORE"
    if value is not None:
        cg.load(value)
    if namespace is cg.own_globals:
        cg.em.op(f"{verb}_GLOBAL", name)
        return
    cg.load_globals(namespace)
    cg.em.load_object(name)
    cg.em.op(f"{verb}_SUBSCR")


class InSight(NamedTuple):
    """The changes kept aside that captured code may come to read."""

    outside: int
    """How often existing objects were changed."""
    classes: set[type]
    """The classes of the existing objects that were changed."""
    made: list[tuple[Any, ...]]
    """The objects that were changed, and what captured code has made and can change that is reached through them: each
    value, with what it holds of what captured code wrote."""

    def is_as(self, other: InSight, followed: Container[int] = ()) -> bool:
        """Whether nothing has changed between the two, but for what values hold that are followed, by their ids."""
        return (
            self.outside == other.outside
            and len(self.made) == len(other.made)
            and all(
                a[0] is b[0]
                and (id(a[0]) in followed or len(a) == len(b) and all(one is another for one, another in zip(a, b)))
                for a, b in zip(self.made, other.made)
            )
        )

    def inside(self) -> list[Value]:
        """What captured code has made and can change that is reached so."""
        return [made[0] for made in self.made if made[0].source is None]


class SideEffects:
    """Changed values in order of first change; attribute writes on values that keep none; global writes."""

    def __init__(self, written: Callable[[Value], None]) -> None:
        """`written` is called with a value once it was changed, at the latest when another one is."""
        self._written = written
        self._last: Value | None = None  # changed latest
        self._changed: dict[int, Value] = {}
        self._altered: dict[int, Value] = {}
        # the written function or class, as value and object
        self._attributes: dict[int, tuple[Value, Any, dict[str, Value | None]]] = {}
        self._namespaces: dict[int, Any] = {}  # of functions and classes, where captured code looks into them
        self._globals: dict[int, tuple[dict[str, Any], dict[str, Value | None]]] = {}
        # by namespace and name, whether or not they were written again
        self._deleted_globals: set[tuple[int, str]] = set()
        self.written_tensors: dict[int, TensorValue] = {}
        self.cached_calls: list[CachedCall] = []
        self.version = 0  # grows with every change
        self.outside = 0  # grows with every change of what existed before the capture

    # ---- recording ------------------------------------------------------------------------------

    def changed(self, value: Value) -> None:
        """Called before a mutable value changes."""
        self.version += 1
        self.outside += value.source is not None
        self._changed.setdefault(id(value), value)
        if self._last is not value:
            last, self._last = self._last, value
            if last is not None:
                self._written(last)

    def altered(self, value: Value) -> None:
        """Called when a value has changed of which nothing is replayed, as it is made anew where it leaves captured
        code: an iterator was stepped, a generator went on."""
        self.version += 1
        self.outside += value.source is not None
        self._altered[id(value)] = value

    def has_changed(self, value: Value) -> bool:
        return id(value) in self._changed

    def changes_name(self, obj: Any, name: Any) -> bool:
        """Whether an attribute of a function or class, or a name in the namespace of a module, was set or deleted."""
        return any(id(obj) in names and name in names[id(obj)][-1] for names in (self._attributes, self._globals))

    @contextmanager
    def changed_inside(self) -> Iterator[list[Value]]:
        """The values that are changed within the block, those also that were changed before; complete at its end."""
        before, self._changed = self._changed, {}
        altered_before, self._altered = self._altered, {}
        found: list[Value] = []
        try:
            yield found
        finally:
            found += (*self._changed.values(), *self._altered.values())
            self._changed = before | self._changed
            self._altered = altered_before | self._altered

    def set_attribute(self, owner: Value, obj: Any, name: str, value: Value | None) -> None:
        """Set, or delete, an attribute of the function or class `obj`; it is known that this succeeds."""
        if id(namespace_of(obj)) in self._namespaces:
            raise Unsupported(f"setting attribute {name!r} of {obj.__qualname__}, whose __dict__ was looked at")
        self.version += 1
        self.outside += 1
        self._attributes.setdefault(id(obj), (owner, obj, {}))[2][name] = value

    def attribute(self, obj: Any, name: str) -> Value | None:
        """The value that captured code wrote to an attribute of a function or class; None if it wrote none. Raises
        Unsupported if it deleted the attribute."""
        found = self._attributes.get(id(obj))
        if found is None or name not in found[2]:
            return None
        written = found[2][name]
        if written is None:
            raise Unsupported(f"reading attribute {name!r} after deleting it")
        return written

    def check_not_inherited(self, cls: type, name: str) -> None:
        """Break where an attribute is looked up in a class that captured code has written it to, or in one derived from
        that."""
        if self._attributes:
            for klass in cls.__mro__:
                if id(klass) in self._attributes and name in self._attributes[id(klass)][2]:
                    raise Unsupported(f"reading attribute {name!r}, which was written on {klass.__qualname__}")

    def show_namespace(self, namespace: Any) -> None:
        """Break where the `__dict__` of a function or class is looked at that captured code wrote attributes of; from
        now on it may write none."""
        for _, obj, _ in self._attributes.values():
            if namespace_of(obj) is namespace:
                raise Unsupported(f"the __dict__ of {obj.__qualname__}, which attributes were written to")
        self._namespaces[id(namespace)] = namespace

    def set_global(self, namespace: dict[str, Any], name: str, value: Value | None) -> None:
        """Set, or delete, a name in the namespace of a module."""
        self.version += 1
        self.outside += 1
        names = self._globals.setdefault(id(namespace), (namespace, {}))[1]
        if value is None:
            self._deleted_globals.add((id(namespace), name))
        elif names.get(name, value) is None:  # it comes last among the names now
            del names[name]
        names[name] = value

    def globals_of(self, namespace: dict[str, Any]) -> dict[str, Value | None]:
        found = self._globals.get(id(namespace))
        return {} if found is None else found[1]

    def tensor_written(self, tensor: TensorValue) -> None:
        self.version += 1
        self.outside += 1
        self.written_tensors.setdefault(id(tensor), tensor)

    def call_behind(
        self, function: Value, args: list[Value], kwargs: dict[str, Value], result: Value | None = None
    ) -> None:
        """A call that changes nothing but what captured code does not see, as the cache of a cached function, so that
        the changes above may be replayed after it.

        With `result` the function does not run: this goes into the cache.
        """
        self.version += 1
        self.cached_calls.append((function, args, kwargs, result))

    def close(self) -> None:
        """Let go of the values; those that were changed may hold each other."""
        for value in self._changed.values():
            value.close()
        self._last = None
        self._deleted_globals.clear()
        self._altered.clear()
        for part in (self._changed, self._attributes, self._globals, self.written_tensors, self.cached_calls):
            part.clear()

    # ---- replaying ------------------------------------------------------------------------------

    def replayed(self) -> list[Value]:
        """Changed values that outlive the capture or were rebuilt; others are garbage already."""
        return list(self._changed.values())

    def kept(self) -> list[Value]:
        """The values through which something that captured code made may be reached, besides its variables."""
        found = list(self._changed.values())
        for names in (*(a[2] for a in self._attributes.values()), *(g[1] for g in self._globals.values())):
            found += [value for value in names.values() if value is not None]
        for function, args, kwargs, result in self.cached_calls:
            found += [function, *args, *kwargs.values(), *([] if result is None else [result])]
        return found

    def any(self) -> bool:
        return bool(self._attributes or self._globals or any(v.source is not None for v in self._changed.values()))

    def in_sight(self) -> InSight | None:
        """What captured code may read that is yet to be written; None if that can't be told."""
        changed = [value for value in self._changed.values() if value.source is not None]
        written = any(tensor.source is not None for tensor in self.written_tensors.values())
        if self._attributes or self._globals or self.cached_calls or written:
            return None
        made: list[tuple[Any, ...]] = []
        waiting: list[Value] = []
        for value in changed:
            if type(value) not in (ObjectValue, ModuleValue):
                return None
            holds = [*value.children()]
            made.append((value, *holds))
            waiting += holds
        seen: set[int] = set()
        while waiting:
            value = waiting.pop()
            if value.source is not None or isinstance(value, ConstantValue) or id(value) in seen:
                continue
            if isinstance(value, TensorValue) and not value.attrs and not value.made_as:
                continue
            if type(value) is DictValue and value.cls is dict and all(type(key) is str for key in value.items):
                holds = [*value.items.values()]
                made.append((value, *value.items, *holds))
            elif type(value) is ListValue or type(value) is TupleValue:
                # whoever follows what captured code does with a list is not told of this
                holds = value.kept_items if isinstance(value, ListValue) else value.items
                made.append((value, *holds))
            else:
                return None
            seen.add(id(value))
            waiting += holds
        return InSight(self.outside, {value.python_type() for value in changed}, made)

    def prepare(self, cg: Codegen) -> None:
        """Load everything the replay writes, before it writes anything: sources are valid until then."""
        for function, args, kwargs, result in self.cached_calls:
            for part in (function, *args, *kwargs.values(), *([] if result is None else [result])):
                cg.keep(part)
        for names in (*(a[2] for a in self._attributes.values()), *(g[1] for g in self._globals.values())):
            for value in names.values():
                if value is not None:
                    cg.keep(value)
        done: set[int] = set()
        while True:
            todo = [v for v in self._changed.values() if id(v) not in done and (v.source is not None or cg.is_kept(v))]
            if not todo:
                return
            for value in todo:
                done.add(id(value))
                cg.keep(value)
                for child in (*value.children(), *value.taken_out()):
                    cg.keep(child)

    def replay(self, cg: Codegen) -> None:
        em = cg.em
        for function, args, kwargs, result in self.cached_calls:
            load, first = (
                (partial(cg.load, function), [])
                if result is None
                else (partial(em.load_object, put_result), [function, result])
            )
            given = [*first, *args, *kwargs.values()]
            em.call(load, partial(_load_all, cg, given), len(given), tuple(kwargs))
            em.pop()
        for value in list(self._changed.values()):
            if value.source is not None or cg.is_kept(value):
                value.replay(cg)  # type: ignore[attr-defined]
        for owner, _, names in self._attributes.values():
            for name, written in names.items():
                if written is not None:
                    cg.load(written)
                cg.load(owner)
                em.op("STORE_ATTR" if written is not None else "DELETE_ATTR", name)
        for namespace, names in self._globals.values():
            for name, written in names.items():
                if (id(namespace), name) in self._deleted_globals:
                    _change_global(cg, namespace, name, NONE)  # it may be there only because it was written
                    _change_global(cg, namespace, name, None)
                if written is not None:
                    _change_global(cg, namespace, name, written)
