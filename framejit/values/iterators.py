"""Iterators stepped while capturing: over sequences, and those of builtins and itertools."""
from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.sequence import SequenceValue, TupleValue
from framejit.values.signals import Exhausted, NotConstant, Raised, Unsupported

if TYPE_CHECKING:
    from framejit.capture.codegen import Codegen
    from framejit.guards.sources import Source
    from framejit.interpreter.frame import Frame


class IteratorValue(Value):
    """Something with `next`; raises Exhausted at the end."""

    mutable = True

    def next(self, tx: Frame) -> Value:
        raise NotImplementedError

    def iterate(self, tx: Frame) -> Iterator[Value]:
        return iter(list(tx.drain(self)))

    def iterator(self, tx: Frame) -> Value:
        return self

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__iter__":
            return self
        if name == "__next__":
            try:
                return tx.next(self)
            except Exhausted:
                raise self.stop(tx) from None
        return super().call_method(tx, name, args, kwargs)


    def stop(self, tx: Frame) -> Raised:
        """The StopIteration that `next()` raises at the end."""
        return tx.raised(StopIteration)


class ItemsIterator(IteratorValue):
    """Over a list (live, as Python's own list iterator) or over items fixed at its creation."""

    def __init__(self, sequence: SequenceValue, kind: type, index: int = 0, source: Source | None = None) -> None:
        self.sequence, self.kind, self.index, self.source = sequence, kind, index, source
        self._began_at = index

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Iterator[Value]:
        return iter((self.sequence,))

    def next(self, tx: Frame) -> Value:
        if self.index >= len(self.sequence.items):
            raise Exhausted
        tx.capture.effects.changed(self)
        self.index += 1
        return self.sequence.items[self.index - 1]

    def reconstruct(self, cg: Codegen) -> None:
        if isinstance(self.sequence, TupleValue) and self.sequence.source is None:
            rest: Value = TupleValue(self.sequence.items[self.index :])
            cg.em.call_object(iter, lambda: cg.load(rest))
            return
        cg.em.call_object(_iterator_at, lambda: (cg.load(self.sequence), cg.em.load_object(self.index)), 2)


    def replay(self, cg: Codegen) -> None:
        """Bring the real iterator to where this one is."""
        if self.source is not None:
            cg.em.call_object(_advance, lambda: (cg.load(self), cg.em.load_object(self.index - self._began_at)), 2)
            cg.em.pop()


def _advance(iterator: Iterator[Any], n: int) -> None:
    for _ in range(n):
        next(iterator, None)


def iterator_state(iterator: Any) -> tuple[Any, int | None]:
    """The sequence a list or tuple iterator goes over and its position; None at the end."""
    reduced = iterator.__reduce__()
    return (reduced[1][0], reduced[2]) if len(reduced) == 3 else (reduced[1][0], None)


def iterated_sequence(iterator: Any) -> Any:
    return iterator_state(iterator)[0]


def iterator_position(iterator: Any) -> int | None:
    return iterator_state(iterator)[1]


def _iterator_at(sequence: Any, index: int) -> Iterator[Any]:
    iterator = iter(sequence)
    iterator.__setstate__(index)
    return iterator


class KeyedIterator(IteratorValue):
    """Over a dict, one of its views, or a set: values are read when it gets there, and changed sizes noticed."""

    def __init__(self, tx: Frame, iterable: Value, container: Any, kind: str) -> None:
        self.iterable, self.container, self.kind, self.made_at = iterable, container, kind, tx.seq
        self.keys, self.order = list(container.items), list(container.iterate(tx))
        self.made_from = self.seen = container.items
        self.index = 0

    def python_type(self) -> type:
        return type(iter(set())) if not hasattr(self.container, "keys_and_values") else type(iter(getattr({}, self.kind)()))

    def children(self) -> Iterator[Value]:
        return iter((self.iterable,))

    def next(self, tx: Frame) -> Value:
        from framejit.values.mapping import as_key

        items = self.container.items
        if self.index > len(self.order):
            raise Exhausted
        if items is not self.seen:
            if len(items) != len(self.keys):
                raise tx.raised(RuntimeError, f"{'Set' if self.container.python_type() is set else 'dictionary'} changed size during iteration")
            if list(items) != self.keys:
                raise Unsupported(f"iterating over {self.container.describe()} while its keys change")
            self.seen = items
        if self.index == len(self.order):
            self.index += 1
            raise Exhausted
        key = self.order[self.index]
        self.index += 1
        if self.kind == "keys":
            return key
        value = items[as_key(tx, key)]
        return value if self.kind == "values" else TupleValue([key, value])

    def reconstruct(self, cg: Codegen) -> None:
        if self.container.items is not self.made_from and self.index <= len(self.order):
            cg.capture.break_at(self.made_at, Unsupported(f"an iterator over {self.container.describe()} leaves captured code", "FJ151"))
        cg.em.call_object(advanced, lambda: (cg.load(self.iterable), cg.em.load_object(self.index)), 2)


def advanced(iterable: Any, steps: int) -> Iterator[Any]:
    iterator = iter(iterable)
    for _ in range(steps):
        next(iterator, None)
    return iterator


class SubscriptIterator(IteratorValue):
    """Over an object with `__getitem__` and no `__iter__`."""

    def __init__(self, owner: Value) -> None:
        self.owner, self.index = owner, 0

    def python_type(self) -> type:
        return type(iter(type("Old", (), {"__getitem__": lambda self, i: i})()))

    def children(self) -> Iterator[Value]:
        return iter((self.owner,))

    def next(self, tx: Frame) -> Value:
        if self.index < 0:
            raise Exhausted
        try:
            with tx.catching():
                item = self.owner.call_method(tx, "__getitem__", [ConstantValue(self.index)], {})
        except Raised as e:
            if not issubclass(e.value.cls, (IndexError, StopIteration)):
                raise
            self.index = -1
            raise Exhausted from None
        self.index += 1
        return item

    def reconstruct(self, cg: Codegen) -> None:
        if self.index < 0:
            cg.em.call_object(iter, lambda: cg.em.load_object(()))
        else:
            cg.em.call_object(_iterator_at, lambda: (cg.load(self.owner), cg.em.load_object(self.index)), 2)


class RangeIterator(IteratorValue):
    def __init__(self, rest: range) -> None:
        self.rest = rest

    def python_type(self) -> type:
        return type(iter(range(0)))

    def next(self, tx: Frame) -> Value:
        if not self.rest:
            raise Exhausted
        first, self.rest = self.rest[0], self.rest[1:]
        return ConstantValue(first)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(iter, lambda: cg.em.load_object(self.rest))


def sort_values(tx: Frame, items: list[Value], kwargs: dict[str, Value]) -> list[Value]:
    """sorted() with symbolic comparison; keys are computed once each, in order."""
    key, reverse = kwargs.get("key", NONE), "reverse" in kwargs and tx.truth(kwargs["reverse"])
    plain = key.is_constant() and key.constant() is None
    keys = [realize(tx, i) if plain else realize(tx, tx.call(key, [i], {})) for i in items]

    def order(a: int, b: int) -> int:
        if tx.truth(tx.compare("lt", keys[a], keys[b])):
            return -1
        return 1 if tx.truth(tx.compare("lt", keys[b], keys[a])) else 0

    try:
        known = [k.constant() for k in keys]
    except NotConstant:
        positions = sorted(range(len(items)), key=functools.cmp_to_key(order), reverse=reverse)
    else:
        try:
            positions = sorted(range(len(items)), key=known.__getitem__, reverse=reverse)
        except TypeError as e:
            raise tx.raised_from(e) from None
    return [items[p] for p in positions]


class OpaqueIterator(IteratorValue):
    """A real iterator from outside the trace: stepping it is left to Python, so a loop over it stays in Python."""

    def __init__(self, obj: Any, source: Any) -> None:
        self.obj, self.source = obj, source

    def python_type(self) -> type:
        return type(self.obj)

    def next(self, tx: Frame) -> Value:
        raise Unsupported(f"stepping a {type(self.obj).__name__} made outside the graph", "FJ150")


class CallIterator(IteratorValue):
    """iter(callable, sentinel), and objects with `__next__` written in Python."""

    def __init__(self, owner: Value, sentinel: Value | None = None) -> None:
        self.owner, self.sentinel = owner, sentinel

    def children(self) -> Iterator[Value]:
        return iter((self.owner,) if self.sentinel is None else (self.owner, self.sentinel))

    def next(self, tx: Frame) -> Value:
        if self.sentinel is not None:
            item = tx.call(self.owner, [], {})
            if tx.equal(item, self.sentinel):
                raise Exhausted
            return item
        try:
            with tx.catching():
                return self.owner.call_method(tx, "__next__", [], {})
        except Raised as e:
            if issubclass(e.value.cls, StopIteration):
                raise Exhausted from None
            raise

    def reconstruct(self, cg: Codegen) -> None:
        if self.sentinel is None:
            cg.load(self.owner)
        else:
            cg.call_function(iter, self.owner, self.sentinel)


