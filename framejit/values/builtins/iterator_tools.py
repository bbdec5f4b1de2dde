"""enumerate, zip, map, filter and the iterators of itertools that are simple or hot: a class each, stepped while
capturing.

The others of itertools are Python code that is inlined (`framejit/models/itertools_iterators.py`).
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from framejit.guards.sources import static_lookup
from framejit.signals import Exhausted, Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.iterator_values import IteratorValue, RangeIterator, ReverseIterator, advanced
from framejit.values.containers.sequence import SequenceValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import handles
from framejit.values.objects.functions.model_values import make_model_iterator
from framejit.values.objects.user_object import ObjectValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame


class ToolIterator(IteratorValue):
    """An iterator of a C class over values that it holds."""

    kind: type

    def python_type(self) -> type:
        return self.kind

    def rebuilt(self) -> tuple[Any, list[Value]]:
        """The callable and the arguments that make the real iterator in its present state."""
        raise NotImplementedError

    def children(self) -> Iterator[Value]:
        return iter(self.rebuilt()[1])

    def reconstruct(self, cg: Codegen) -> None:
        function, args = self.rebuilt()
        cg.em.call_object(function, lambda: [cg.load(a) for a in args], len(args))


class EnumerateIterator(ToolIterator):
    kind = enumerate

    def __init__(self, inner: Value, count: Any) -> None:
        self.inner, self.count = inner, count

    def next(self, frame: Frame) -> Value:
        item = frame.next(self.inner)
        self.count += 1
        return TupleValue([ConstantValue(self.count - 1), item])

    def rebuilt(self) -> tuple[Any, list[Value]]:
        return enumerate, [self.inner, ConstantValue(self.count)]


@handles(enumerate)
def _enumerate(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    inner, count = frame.get_iter(args[0]), (args[1] if len(args) > 1 else ConstantValue(0)).constant()
    _tried(frame, lambda: enumerate((), count))
    return EnumerateIterator(inner, count)


class ZipIterator(ToolIterator):
    kind = zip

    def __init__(self, inners: list[Value], strict: bool) -> None:
        self.inners, self.strict = inners, strict

    def next(self, frame: Frame) -> Value:
        if not self.inners:
            raise Exhausted
        items: list[Value] = []
        for inner in self.inners:
            try:
                items.append(frame.next(inner))
            except Exhausted:
                if self.strict:
                    self._check_lengths(frame, len(items))
                raise
        return TupleValue(items)

    def _check_lengths(self, frame: Frame, ended: int) -> None:
        """Raise what `strict=True` asks for, where the one at a position ended and those before it did not."""
        if ended:
            raise frame.raised(
                ValueError, f"zip() argument {ended + 1} is shorter than argument{'s 1-' if ended > 1 else ' '}{ended}"
            ) from None
        for position, inner in enumerate(self.inners[1:], 2):
            try:
                frame.next(inner)
            except Exhausted:
                continue
            raise frame.raised(
                ValueError,
                f"zip() argument {position} is longer than argument{'s 1-' if position > 2 else ' '}{position - 1}",
            ) from None

    def rebuilt(self) -> tuple[Any, list[Value]]:
        return functools.partial(zip, strict=True) if self.strict else zip, list(self.inners)


@handles(zip)
def _zip(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ZipIterator([frame.get_iter(a) for a in args], "strict" in kwargs and frame.truth(kwargs["strict"]))


class MapIterator(ToolIterator):
    kind = map

    def __init__(self, function: Value, inners: list[Value]) -> None:
        self.function, self.inners = function, inners

    def next(self, frame: Frame) -> Value:
        return frame.call(self.function, [frame.next(i) for i in self.inners], {})

    def rebuilt(self) -> tuple[Any, list[Value]]:
        return map, [self.function, *self.inners]


@handles(map)
def _map(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return MapIterator(args[0], [frame.get_iter(a) for a in args[1:]])


class FunctionIterator(ToolIterator):
    """One that calls a function for each item of another."""

    def __init__(self, function: Value, inner: Value) -> None:
        self.function, self.inner = function, inner

    def test(self, frame: Frame, item: Value) -> bool:
        function = self.function
        return frame.truth(
            item if function.is_constant() and function.constant() is None else frame.call(function, [item], {})
        )

    def rebuilt(self) -> tuple[Any, list[Value]]:
        return self.kind, [self.function, self.inner]


class FilterIterator(FunctionIterator):
    kind: type = filter
    keeps = True

    def next(self, frame: Frame) -> Value:
        while True:
            item = frame.next(self.inner)
            if self.test(frame, item) == self.keeps:
                return item


class FilterFalseIterator(FilterIterator):
    kind = itertools.filterfalse
    keeps = False


class StarmapIterator(FunctionIterator):
    kind = itertools.starmap

    def next(self, frame: Frame) -> Value:
        return frame.call(self.function, list(frame.iterate(frame.next(self.inner))), {})


class TakewhileIterator(FunctionIterator):
    kind = itertools.takewhile

    def next(self, frame: Frame) -> Value:
        item = frame.next(self.inner)
        if self.test(frame, item):
            return item
        self.inner = frame.get_iter(TupleValue([]))
        raise Exhausted


class DropwhileIterator(FunctionIterator):
    kind = itertools.dropwhile
    dropping = True

    def next(self, frame: Frame) -> Value:
        while True:
            item = frame.next(self.inner)
            if not (self.dropping and self.test(frame, item)):
                self.dropping = False
                return item

    def rebuilt(self) -> tuple[Any, list[Value]]:
        return super().rebuilt() if self.dropping else (iter, [self.inner])


def _with_function(cls: type[FunctionIterator]) -> None:
    @handles(cls.kind)
    def make(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return cls(args[0], frame.get_iter(args[1]))


for _cls in (FilterIterator, FilterFalseIterator, StarmapIterator, TakewhileIterator, DropwhileIterator):
    _with_function(_cls)


class ChainIterator(ToolIterator):
    kind = itertools.chain

    def __init__(self, rest: list[Value]) -> None:
        self.rest = rest
        self.active: Value | None = None

    def next(self, frame: Frame) -> Value:
        while True:
            if self.active is None:
                if not self.rest:
                    raise Exhausted
                self.active = frame.get_iter(self.rest.pop(0))
            try:
                return frame.next(self.active)
            except Exhausted:
                self.active = None

    def rebuilt(self) -> tuple[Any, list[Value]]:
        return itertools.chain, [*(() if self.active is None else (self.active,)), *self.rest]


@handles(itertools.chain)
def _chain(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ChainIterator(list(args))


class CycleIterator(ToolIterator):
    kind = itertools.cycle

    def __init__(self, inner: Value) -> None:
        self.inner = inner
        self.saved: list[Value] = []
        self.place: int | None = None  # in `saved`, once `inner` has ended

    def next(self, frame: Frame) -> Value:
        if self.place is None:
            try:
                self.saved.append(frame.next(self.inner))
                return self.saved[-1]
            except Exhausted:
                self.place = 0
        if not self.saved:
            raise Exhausted
        self.place = (self.place + 1) % len(self.saved)
        return self.saved[self.place - 1]

    def rebuilt(self) -> tuple[Any, list[Value]]:
        if self.place is None:
            return _cycle_after, [TupleValue(self.saved), self.inner]
        return itertools.cycle, [TupleValue(self.saved[self.place :] + self.saved[: self.place])]


@handles(itertools.cycle)
def _cycle(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return CycleIterator(frame.get_iter(args[0]))


def _cycle_after(done: tuple[Any, ...], rest: Iterator[Any]) -> Iterator[Any]:
    return advanced(itertools.cycle(itertools.chain(done, rest)), len(done))


class CountIterator(ToolIterator):
    kind = itertools.count

    def __init__(self, number: Any, step: Any) -> None:
        self.number, self.step = number, step

    def next(self, frame: Frame) -> Value:
        now = self.number
        self.number = _tried(frame, lambda: now + self.step)
        return ConstantValue(now)

    def rebuilt(self) -> tuple[Any, list[Value]]:
        return itertools.count, [ConstantValue(self.number), ConstantValue(self.step)]


@handles(itertools.count)
def _count(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    start, step = frame.constants(
        [args[0] if args else ConstantValue(0), args[1] if len(args) > 1 else kwargs.get("step", ConstantValue(1))]
    )
    _tried(frame, lambda: itertools.count(start, step))
    return CountIterator(start, step)


class RepeatIterator(ToolIterator):
    kind = itertools.repeat

    def __init__(self, item: Value, left: Any) -> None:
        self.item, self.left = item, left  # None: without end

    def next(self, frame: Frame) -> Value:
        if self.left is not None:
            if self.left <= 0:
                raise Exhausted
            self.left -= 1
        return self.item

    def rebuilt(self) -> tuple[Any, list[Value]]:
        return itertools.repeat, [self.item, *(() if self.left is None else (ConstantValue(self.left),))]


@handles(itertools.repeat)
def _repeat(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    times = args[1] if len(args) > 1 else kwargs.get("times")
    if times is None:
        return RepeatIterator(args[0], None)
    left = times.constant()
    _tried(frame, lambda: itertools.repeat(None, left))
    return RepeatIterator(args[0], left)


class ChoiceIterator(ToolIterator):
    """An iterator of a combinatoric class (product, permutations, ...): the real one runs over the values, each
    standing for itself."""

    def __init__(self, kind: type, pools: list[list[Value]], options: list[Any], names: dict[str, Any]) -> None:
        self.kind, self.pools, self.options, self.names = kind, pools, options, names
        self.real: Any = kind(*pools, *options, **names)
        self.steps = 0

    def next(self, frame: Frame) -> Value:
        try:
            found = next(self.real)
        except StopIteration:
            raise Exhausted from None
        self.steps += 1
        return TupleValue(list(found))

    def rebuilt(self) -> tuple[Any, list[Value]]:
        make = functools.partial(_chosen, self.kind, tuple(self.options), self.names)
        return make, [ConstantValue(self.steps), *(TupleValue(p) for p in self.pools)]


def _chosen(kind: Any, options: tuple[Any, ...], names: dict[str, Any], steps: int, *pools: Any) -> Iterator[Any]:
    return advanced(kind(*pools, *options, **names), steps)


def _choices(kind: type) -> None:
    @handles(kind)
    def make(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        n_pools = len(args) if kind is itertools.product else 1
        pools = [list(frame.iterate(a)) for a in args[:n_pools]]
        options, names = frame.constants(args[n_pools:]), dict(zip(kwargs, frame.constants(list(kwargs.values()))))
        return _tried(frame, lambda: ChoiceIterator(kind, pools, options, names))


for _kind in (
    itertools.product, itertools.combinations, itertools.permutations, itertools.combinations_with_replacement,
):
    _choices(_kind)


@handles(reversed)
def _reversed(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = realize(frame, args[0])
    if isinstance(value, SequenceValue):
        return value.reverse_iterator(frame)
    if isinstance(value, ConstantValue) and isinstance(value.value, range):
        return RangeIterator(value.value[::-1])
    if isinstance(value, ConstantValue) and isinstance(value.value, (str, bytes)):
        return ReverseIterator(TupleValue(list(value.iterate(frame))), reversed)
    cls = value.python_type()
    own = static_lookup(cls, "__reversed__", None)
    if isinstance(own, types.FunctionType) or own is not None and not isinstance(value, ConstantValue):
        return value.call_method(frame, "__reversed__", [], {})
    lacks = any(static_lookup(cls, name, None) is None for name in ("__getitem__", "__len__"))
    if (
        own is not None
        or lacks
        or static_lookup(cls, "__reversed__", 0) is None
        or not isinstance(value, ObjectValue)
        or value.base is not None
    ):
        raise Unsupported(f"reversed() of {value.describe()}", "FJ161")
    return make_model_iterator(frame, reversed, [value], {})


def _tried(frame: Frame, make: Callable[[], Any]) -> Any:
    """What C gives or raises for constants."""
    try:
        return make()
    except Exception as e:
        raise frame.raised_from(e) from None
