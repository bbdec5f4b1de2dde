"""Iterators of itertools that call back or look ahead.

A class without `rebuild`, or one that says it is not `resumable`, can't leave captured code once it was stepped.
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Iterator
from typing import Any

from framejit.models.absent import Absent, message
from framejit.models.model_registry import iterates_as


@iterates_as(itertools.accumulate)
class Accumulate:
    fields = ("rest", "function", "total", "started")

    def __init__(self, iterable: Any, func: Any = None, *, initial: Any = None) -> None:
        self.rest, self.function, self.total, self.started = iter(iterable), func, initial, False

    def __next__(self) -> Any:
        if not self.started:
            self.started = True
            if self.total is None:
                self.total = next(self.rest)
            return self.total
        item = next(self.rest)
        self.total = self.total + item if self.function is None else self.function(self.total, item)
        return self.total

    @staticmethod
    def rebuild(rest: Iterator[Any], function: Any, total: Any, started: bool) -> Iterator[Any]:
        if not started:
            return itertools.accumulate(rest, function, initial=total)
        made = itertools.accumulate(itertools.chain((total,), rest), function)
        next(made)
        return made


@iterates_as(itertools.zip_longest)
class ZipLongest:
    fields = ("iterators", "fillvalue")

    def __init__(self, *iterables: Any, fillvalue: Any = None) -> None:
        self.iterators, self.fillvalue = [iter(i) for i in iterables], fillvalue

    def __next__(self) -> Any:
        left, found = len([i for i in self.iterators if i is not None]), []
        if not left:
            raise StopIteration
        for at, iterator in enumerate(self.iterators):
            item = Absent if iterator is None else next(iterator, Absent)
            if item is Absent:
                if iterator is not None:
                    self.iterators[at] = None
                    left -= 1
                    if not left:
                        raise StopIteration
                item = self.fillvalue
            found.append(item)
        return tuple(found)

    @staticmethod
    def rebuild(iterators: list[Iterator[Any] | None], fillvalue: Any) -> Iterator[Any]:
        return itertools.zip_longest(*(iter(()) if i is None else i for i in iterators), fillvalue=fillvalue)


@iterates_as(itertools.pairwise)
class Pairwise:
    fields = ("rest", "last", "started")

    def __init__(self, iterable: Any, /) -> None:
        self.rest, self.last, self.started = iter(iterable), None, False

    def __next__(self) -> Any:
        if not self.started:
            self.last = next(self.rest)
            self.started = True
        before, self.last = self.last, next(self.rest)
        return before, self.last

    @staticmethod
    def rebuild(rest: Iterator[Any], last: Any, started: bool) -> Iterator[Any]:
        return itertools.pairwise(itertools.chain((last,), rest) if started else rest)


@iterates_as(itertools.compress)
class Compress:
    fields = ("data", "selectors")

    def __init__(self, data: Any, selectors: Any) -> None:
        self.data, self.selectors = iter(data), iter(selectors)

    def __next__(self) -> Any:
        while True:
            item = next(self.data)
            if next(self.selectors):
                return item

    @staticmethod
    def rebuild(data: Iterator[Any], selectors: Iterator[Any]) -> Iterator[Any]:
        return itertools.compress(data, selectors)


_BAD_STOP, _BAD_INDEX, _BAD_STEP = (
    message(itertools.islice, (), -1), message(itertools.islice, (), -1, 1), message(itertools.islice, (), 0, 1, 0),
)


def _bound(value: Any, text: str) -> Any:
    try:
        value = operator.index(value)
    except Exception:
        raise ValueError(text)  # noqa: B904  C code does not chain either
    if not 0 <= value <= sys.maxsize:
        raise ValueError(text)
    return value


@iterates_as(itertools.islice)
class Slice:
    """`at` counts what was read, `target` is the place of the next item to give."""

    fields = ("rest", "at", "target", "stop", "step")

    def __init__(self, iterable: Any, start: Any, stop: Any = Absent, step: Any = None, /) -> None:
        if stop is Absent:
            start, stop = None, None if start is None else _bound(start, _BAD_STOP)
        else:
            stop = None if stop is None else _bound(stop, _BAD_STOP)
        self.target = 0 if start is None else _bound(start, _BAD_INDEX)
        self.stop = stop
        self.step = 1 if step is None else _bound(step, _BAD_STEP)
        if self.step < 1:
            raise ValueError(_BAD_STEP)
        self.rest, self.at = iter(iterable), 0

    def __next__(self) -> Any:
        rest = self.rest
        if rest is None:
            raise StopIteration
        while self.at < self.target:
            self.read(rest)
        if self.stop is not None and self.at >= self.stop:
            self.rest = None
            raise StopIteration
        item = self.read(rest)
        self.target += self.step
        if self.stop is not None and self.target > self.stop:
            self.target = self.stop
        return item

    def read(self, rest: Any) -> Any:
        try:
            item = next(rest)
        except StopIteration:
            self.rest = None
            raise
        self.at += 1
        return item

    @staticmethod
    def rebuild(rest: Any, at: int, target: int, stop: Any, step: int) -> Iterator[Any]:
        if rest is None:
            return itertools.islice((), 0)
        return itertools.islice(rest, target - at, None if stop is None else max(stop - at, 0), step)


@iterates_as(itertools.groupby)
class GroupBy:
    """`current` and `value` are what was read last, `target` the key of the group that was given last, `turn` its
    number."""

    fields, resumable = ("rest", "key"), False

    def __init__(self, iterable: Any, key: Any = None) -> None:
        self.rest, self.key = iter(iterable), key
        self.target = self.current = self.value = Absent
        self.turn = 0

    def __next__(self) -> Any:
        self.turn += 1
        while (
            self.current is Absent
            or self.target is not Absent
            and (self.target is self.current or self.target == self.current)
        ):
            self.step()
        self.target = self.current
        return self.current, Group(self, self.target, self.turn)

    def step(self) -> None:
        value = next(self.rest)
        self.current = value if self.key is None else self.key(value)
        self.value = value

    @staticmethod
    def rebuild(rest: Iterator[Any], key: Any) -> Iterator[Any]:
        return itertools.groupby(rest, key)


@iterates_as(itertools._grouper)  # type: ignore[attr-defined]
class Group:
    fields, resumable = (), False

    def __init__(self, parent: Any, target: Any, turn: int) -> None:
        self.parent, self.target, self.turn = parent, target, turn

    def __next__(self) -> Any:
        parent = self.parent
        if parent.turn != self.turn:
            raise StopIteration
        if parent.value is Absent:
            parent.step()
        if self.target is not parent.current and not self.target == parent.current:
            raise StopIteration
        value, parent.value = parent.value, Absent
        return value


@iterates_as(itertools._tee)  # type: ignore[attr-defined]
class Tee:
    """One of the iterators of a `tee()`. They have all but `at` in common, which counts what this one has given; in
    `real` are those made so far."""

    fields = ("rest", "items", "at", "real")

    def __init__(self, iterable: Any, /) -> None:
        self.rest, self.at = iter(iterable), 0
        self.items: list[Any] = []
        self.real: list[Any] = []
        self.running: list[bool] = []

    def __next__(self) -> Any:
        if self.at == len(self.items):
            if self.running:
                raise RuntimeError("cannot re-enter the tee iterator")
            self.running.append(True)
            try:
                self.items.append(next(self.rest))
            finally:
                self.running.clear()
        self.at += 1
        return self.items[self.at - 1]

    @staticmethod
    def rebuild(rest: Iterator[Any], items: list[Any], at: int, real: list[Any]) -> Iterator[Any]:
        if not real:
            real.append(itertools.tee(itertools.chain(items, rest), 1)[0])
        made: Iterator[Any] = real[0].__copy__()
        for _ in range(at):
            next(made)
        return made


@iterates_as(type(iter(int, 1)))
class CallUntil:
    """`iter(function, sentinel)`; both are gone once it has ended."""

    fields = ("function", "sentinel")

    def __init__(self, function: Any, sentinel: Any) -> None:
        self.function, self.sentinel = function, sentinel

    def __next__(self) -> Any:
        if self.function is Absent:
            raise StopIteration
        try:
            result = self.function()
        except StopIteration:
            self.function = self.sentinel = Absent
            raise
        if self.function is Absent:
            raise StopIteration
        if self.sentinel is result or self.sentinel == result:
            self.function = self.sentinel = Absent
            raise StopIteration
        return result

    @staticmethod
    def rebuild(function: Any, sentinel: Any) -> Iterator[Any]:
        if function is not Absent:
            return iter(function, sentinel)
        ended: Iterator[Any] = iter(int, 0)
        next(ended, None)
        return ended


@iterates_as(reversed)
class Reversed:
    """Over an object with `__len__` and `__getitem__`. Making another would ask for the length again."""

    fields = ("sequence", "index")
    resumable = False

    def __init__(self, sequence: Any) -> None:
        self.sequence, self.index = sequence, len(sequence) - 1

    def __next__(self) -> Any:
        if self.index >= 0:
            try:
                item = self.sequence[self.index]
            except (IndexError, StopIteration):
                self.index = -1
            else:
                self.index -= 1
                return item
        raise StopIteration
