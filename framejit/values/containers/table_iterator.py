"""Iterators over dicts, their views, and sets: Python's own ones, over the stand-ins."""

from __future__ import annotations

import collections
import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from framejit.signals import Exhausted, Unsupported
from framejit.values.base import Value
from framejit.values.containers.hashing import asking, key_value
from framejit.values.containers.iterator_values import IteratorValue, advanced
from framejit.values.containers.tuples import TupleValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame


class TableIterator(IteratorValue):
    """Over `iterable`: `table` itself, or its view of `kind` (keys, values or items)."""

    def __init__(self, frame: Frame, iterable: Value, table: Any, kind: str, backwards: bool = False) -> None:
        self.iterable, self.table, self.kind, self.backwards = iterable, table, kind, backwards
        self._real = table.real_iterator(frame, kind, backwards)
        self._kind_of_iterator = (
            type(self._real) if not isinstance(self._real, types.GeneratorType) else type(iter(set()))
        )
        self._made_at, self._taken, self._finished = frame.seq, 0, False
        self._shape = table.reshaped

    def python_type(self) -> type:
        return self._kind_of_iterator

    def children(self) -> Iterator[Value]:
        return iter((self._loaded,))

    @property
    def _loaded(self) -> Value:
        return getattr(self.iterable, "whole", self.iterable)

    def next(self, frame: Frame) -> Value:
        try:
            with asking():
                found = next(self._real)
        except StopIteration:
            self._finished = True
            raise Exhausted from None
        except RuntimeError as e:  # the table was changed
            raise frame.raised_from(e) from None
        self._taken += 1
        if self.kind == "values":
            return found
        return key_value(found) if self.kind == "keys" else TupleValue([key_value(found[0]), found[1]])

    def reconstruct(self, cg: Codegen) -> None:
        if self._finished:
            cg.em.call_object(ended_iterator, lambda: cg.em.load_object(self._kind_of_iterator))
            return
        replayed = self.table.source is not None and cg.capture.effects.has_changed(self.table)
        filled_later = self.table.source is None and (self.table.owner is not None or cg.holds_itself(self.table))
        if replayed or filled_later or self.table.reshaped != self._shape:
            cg.capture.break_at(
                self._made_at, Unsupported(f"an iterator over {self.table.describe()} leaves captured code", "FJ151")
            )
        make = advanced_backwards if self.backwards else advanced
        cg.em.call_object(make, lambda: (cg.load(self._loaded), cg.em.load_object(self._taken)), 2)


def advanced_backwards(iterable: Any, steps: int) -> Iterator[Any]:
    iterator = reversed(iterable)
    for _ in range(steps):
        next(iterator, None)
    return iterator


def ended_iterator(kind: type) -> Iterator[Any]:
    """An iterator of this class over nothing, which has said so: it holds no table any more."""
    iterator: Iterator[Any] = next(iter(empty) for empty in _nothing() if type(iter(empty)) is kind)
    next(iterator, None)
    return iterator


def _nothing() -> Iterator[Iterable[Any]]:
    tables: tuple[dict[Any, Any], ...] = ({}, collections.OrderedDict())
    for table in tables:
        yield from (
            table.keys(), table.values(), table.items(), reversed(table.keys()), reversed(table.values()),
            reversed(table.items()),
        )
    yield set()
