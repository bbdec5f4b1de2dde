"""Iterators stepped while capturing: over sequences, and those of builtins and itertools."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit.signals import Exhausted, Raised, Unsupported
from framejit.values.base import Value
from framejit.values.constant import ITERATORS, ConstantValue

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.containers.sequence import SequenceValue
    from framejit.values.context import Codegen, Frame


_LIST_ITERATOR: Any = type(iter([]))


class IteratorValue(Value):
    """Something with `next`; raises Exhausted at the end."""

    mutable = True

    def next(self, frame: Frame) -> Value:
        raise NotImplementedError

    def iterate(self, frame: Frame) -> Iterator[Value]:
        return frame.drain(self)

    def iterator(self, frame: Frame) -> Value:
        return self

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__iter__":
            return self
        if name == "__next__":
            try:
                return frame.next(self)
            except Exhausted:
                raise self.stop(frame) from None
        return super().call_method(frame, name, args, kwargs)


    def stop(self, frame: Frame) -> Raised:
        """The StopIteration that `next()` raises at the end."""
        return frame.raised(StopIteration)


class ItemsIterator(IteratorValue):
    """Over a list (live, as Python's own list iterator) or over items fixed at its creation; once it has ended it stays
    so."""

    exhausted = False

    def __init__(self, sequence: SequenceValue, kind: type, index: int = 0, source: Source | None = None) -> None:
        self.sequence, self.kind, self.index, self.source = sequence, kind, index, source
        self._began_at = index

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Iterator[Value]:
        return iter((self.sequence,))

    def item(self, at: int) -> Value:
        return self.sequence.items[at]

    def next(self, frame: Frame) -> Value:
        if self.exhausted:
            raise Exhausted
        frame.capture.effects.changed(self)
        if self.index >= len(self.sequence.items):
            self.exhausted = True
            raise Exhausted
        self.index += 1
        return self.item(self.index - 1)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__length_hint__":
            return ConstantValue(0 if self.exhausted else max(len(self.sequence.items) - self.index, 0))
        return super().call_method(frame, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        if self.exhausted:
            cg.em.call_object(
                _ended, lambda: cg.em.load_object(self.sequence.python_type() if self.sequence.mutable else tuple)
            )
        elif not self.sequence.mutable and self.sequence.source is None:
            rest = self.sequence.make(self.sequence.items[self.index :])
            cg.em.call_object(iter, lambda: cg.load(rest))
        else:
            cg.em.call_object(_iterator_at, lambda: (cg.load(self.sequence), cg.em.load_object(self.index)), 2)

    def replay(self, cg: Codegen) -> None:
        """Bring the real iterator to where this one is."""
        if self.source is not None:
            steps = self.index - self._began_at
            cg.em.call_object(
                _advance, lambda: (cg.load(self), cg.em.load_object(steps), cg.em.load_object(self.exhausted)), 3
            )
            cg.em.pop()


def _ended(kind: type) -> Iterator[Any]:
    """An iterator over a `kind` that has come to its end."""
    iterator: Iterator[Any] = iter(kind())
    next(iterator, None)
    return iterator


class ReverseIterator(IteratorValue):
    """`reversed()` of a list or tuple, also live; `index` is where the next item is, -1 at the end."""

    def __init__(self, sequence: SequenceValue, kind: type) -> None:
        self.sequence, self.kind, self.index = sequence, kind, len(sequence.items) - 1

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Iterator[Value]:
        return iter((self.sequence,))

    def next(self, frame: Frame) -> Value:
        if not 0 <= self.index < len(self.sequence.items):
            self.index = -1
            raise Exhausted
        self.index -= 1
        return self.sequence.items[self.index + 1]

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__length_hint__":
            return ConstantValue(self.index + 1 if self.index < len(self.sequence.items) else 0)
        return super().call_method(frame, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(_reversed_at, lambda: (cg.load(self.sequence), cg.em.load_object(self.index)), 2)


def _reversed_at(sequence: Any, index: int) -> Iterator[Any]:
    iterator: Any = reversed(sequence)
    _place(iterator, sequence, index, index + 1)
    if index < 0:
        next(iterator, None)
    return iterator


def _place(iterator: Any, sequence: Any, index: int, length: int) -> None:
    """Put an iterator at an index. A list may be shorter than it was then, or not have all its items yet: __setstate__
    would stop at its end."""
    missing = length - len(sequence) if type(sequence) is list else 0
    if missing > 0:
        sequence.extend([None] * missing)
    iterator.__setstate__(index)
    if missing > 0:
        del sequence[-missing:]


def _advance(iterator: Any, n: int, ended: bool) -> None:
    """Bring an iterator of the program `n` items on, or to its end, whatever its list holds at the moment."""
    if not isinstance(iterator, _LIST_ITERATOR):
        for _ in range(n + ended):
            next(iterator, None)
        return
    sequence, index = iterator_state(iterator)
    if index is not None and ended:
        iterator.__setstate__(len(sequence))
        next(iterator, None)
    elif index is not None:
        _place(iterator, sequence, index + n, index + n)


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
    _place(iterator, sequence, index, index)
    return iterator


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

    def next(self, frame: Frame) -> Value:
        if self.index < 0:
            raise Exhausted
        try:
            with frame.catching():
                item = self.owner.call_method(frame, "__getitem__", [ConstantValue(self.index)], {})
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


class TextIterator(IteratorValue):
    """Over a known str or bytes."""

    def __init__(self, text: str | bytes) -> None:
        self.text, self.index = text, 0

    def python_type(self) -> type:
        return type(iter(self.text))

    def next(self, frame: Frame) -> Value:
        if self.index >= len(self.text):
            raise Exhausted
        self.index += 1
        return ConstantValue(self.text[self.index - 1])

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(_iterator_at, lambda: (cg.em.load_object(self.text), cg.em.load_object(self.index)), 2)


class RangeIterator(IteratorValue):
    """An iterator over what is left of a range."""

    def __init__(self, rest: range) -> None:
        self.rest = rest

    def python_type(self) -> type:
        return type(iter(self.rest))

    def next(self, frame: Frame) -> Value:
        if not self.rest:
            raise Exhausted
        first, self.rest = self.rest[0], self.rest[1:]
        return ConstantValue(first)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(iter, lambda: cg.em.load_object(self.rest))


class OpaqueIterator(IteratorValue):
    """A real iterator from outside the trace: stepping it is left to Python, so a loop over it stays in Python."""

    def __init__(self, obj: Any, source: Any) -> None:
        self.obj, self.source = obj, source

    def python_type(self) -> type:
        return type(self.obj)

    def next(self, frame: Frame) -> Value:
        raise Unsupported(f"stepping a {type(self.obj).__name__} made outside the graph", "FJ150")


ITERATORS.update({str: TextIterator, bytes: TextIterator, range: RangeIterator})
