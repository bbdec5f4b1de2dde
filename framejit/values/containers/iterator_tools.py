"""enumerate, zip, map, filter and itertools, stepped while capturing."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from framejit.guards.sources import static_lookup
from framejit.signals import Exhausted, Unsupported
from framejit.values.base import Value, realize
from framejit.values.builtins.models import make_model_iterator
from framejit.values.constant import ConstantValue
from framejit.values.containers.iterators import IteratorValue, RangeIterator, ReverseIterator, advanced
from framejit.values.containers.sequence import SequenceValue, TupleValue
from framejit.values.objects.user_object import ObjectValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame


class ToolIterator(IteratorValue):
    """enumerate, zip, map, filter and the lazy itertools, as one stepping function over inner iterators.

    `rebuild` gives the callable and arguments that make the real iterator in its present state.
    """

    def __init__(self, kind: type, step: Callable[[Frame], Value], rebuild: Callable[[], tuple[Any, list[Value]]]) -> None:
        self.kind, self.step, self.rebuild = kind, step, rebuild

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Iterator[Value]:
        return iter(self.rebuild()[1])

    def next(self, tx: Frame) -> Value:
        return self.step(tx)

    def reconstruct(self, cg: Codegen) -> None:
        function, args = self.rebuild()
        cg.em.call_object(function, lambda: [cg.load(a) for a in args], len(args))


def make_tool(tx: Frame, kind: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call an iterator class."""
    if kind is reversed:
        return _reversed(tx, args[0])
    if kind is enumerate:
        inner, count = tx.get_iter(args[0]), (args[1] if len(args) > 1 else ConstantValue(0)).constant()
        try:
            enumerate((), count)
        except TypeError as e:
            raise tx.raised_from(e) from None
        state = [count]

        def enumerate_step(tx: Frame) -> Value:
            item = tx.next(inner)
            state[0] += 1
            return TupleValue([ConstantValue(state[0] - 1), item])

        return ToolIterator(enumerate, enumerate_step, lambda: (enumerate, [inner, ConstantValue(state[0])]))
    if kind is zip:
        inners, strict = [tx.get_iter(a) for a in args], "strict" in kwargs and tx.truth(kwargs["strict"])

        def zip_step(tx: Frame) -> Value:
            if not inners:
                raise Exhausted
            items: list[Value] = []
            for i, it in enumerate(inners):
                try:
                    items.append(tx.next(it))
                except Exhausted:
                    if strict and i:
                        raise tx.raised(ValueError, f"zip() argument {i + 1} is shorter than argument{'s 1-' if i > 1 else ' '}{i}") from None
                    if strict:
                        for j, other in enumerate(inners[1:], 2):
                            try:
                                tx.next(other)
                            except Exhausted:
                                continue
                            raise tx.raised(ValueError, f"zip() argument {j} is longer than argument{'s 1-' if j > 2 else ' '}{j - 1}") from None
                    raise
            return TupleValue(items)

        return ToolIterator(zip, zip_step, lambda: (functools.partial(zip, strict=True) if strict else zip, list(inners)))
    if kind is itertools.cycle:
        return _cycle(tx, args[0])
    if kind in (map, filter, itertools.filterfalse, itertools.starmap, itertools.takewhile, itertools.dropwhile):
        return _with_function(tx, kind, args)
    if kind is itertools.chain:
        rest = list(args)
        active: list[Value] = []

        def chain_step(tx: Frame) -> Value:
            while True:
                if not active:
                    if not rest:
                        raise Exhausted
                    active.append(tx.get_iter(rest.pop(0)))
                try:
                    return tx.next(active[0])
                except Exhausted:
                    active.clear()

        return ToolIterator(itertools.chain, chain_step, lambda: (itertools.chain, [*active, *rest]))
    if kind in (itertools.count, itertools.repeat):
        return _endless(tx, kind, args, kwargs)
    if kind in (itertools.product, itertools.combinations, itertools.permutations, itertools.combinations_with_replacement):
        return _choices(tx, kind, args, kwargs)
    raise Unsupported(f"itertools.{kind.__name__}")


def _reversed(tx: Frame, value: Value) -> Value:
    value = realize(tx, value)
    if isinstance(value, SequenceValue):
        return value.reverse_iterator(tx)
    if isinstance(value, ConstantValue) and isinstance(value.value, range):
        return RangeIterator(value.value[::-1])
    if isinstance(value, ConstantValue) and isinstance(value.value, (str, bytes)):
        return ReverseIterator(TupleValue(list(value.iterate(tx))), reversed)
    cls = value.python_type()
    own = static_lookup(cls, "__reversed__", None)
    if isinstance(own, types.FunctionType) or own is not None and not isinstance(value, ConstantValue):
        return value.call_method(tx, "__reversed__", [], {})
    lacks = any(static_lookup(cls, name, None) is None for name in ("__getitem__", "__len__"))
    if own is not None or lacks or static_lookup(cls, "__reversed__", 0) is None or not isinstance(value, ObjectValue) or value.base is not None:
        raise Unsupported(f"reversed() of {value.describe()}", "FJ161")
    return make_model_iterator(tx, reversed, [value], {})


def _with_function(tx: Frame, kind: Any, args: list[Value]) -> Value:
    function, inners = args[0], [tx.get_iter(a) for a in args[1:]]
    dropping = [True]

    def test(tx: Frame, item: Value) -> bool:
        return tx.truth(item if function.is_constant() and function.constant() is None else tx.call(function, [item], {}))

    def step(tx: Frame) -> Value:
        if kind is map:
            return tx.call(function, [tx.next(i) for i in inners], {})
        if kind is itertools.starmap:
            return tx.call(function, list(tx.iterate(tx.next(inners[0]))), {})
        if kind is itertools.takewhile:
            item = tx.next(inners[0])
            if test(tx, item):
                return item
            inners[0] = tx.get_iter(TupleValue([]))
            raise Exhausted
        while True:
            item = tx.next(inners[0])
            if kind in (filter, itertools.filterfalse) and test(tx, item) == (kind is filter):
                return item
            if kind is itertools.dropwhile and not (dropping[0] and test(tx, item)):
                dropping[0] = False
                return item

    return ToolIterator(kind, step, lambda: (kind, [function, *inners]) if kind is not itertools.dropwhile or dropping[0] else (iter, inners))


def _cycle(tx: Frame, iterable: Value) -> Value:
    inner, saved, at = tx.get_iter(iterable), list[Value](), [-1]  # the position in `saved` once `inner` has ended

    def cycle_step(tx: Frame) -> Value:
        if at[0] < 0:
            try:
                saved.append(tx.next(inner))
                return saved[-1]
            except Exhausted:
                at[0] = 0
        if not saved:
            raise Exhausted
        at[0] = (at[0] + 1) % len(saved)
        return saved[at[0] - 1]

    def rebuild() -> tuple[Any, list[Value]]:
        if at[0] < 0:
            return _cycle_after, [TupleValue(saved), inner]
        return itertools.cycle, [TupleValue(saved[at[0] :] + saved[: at[0]])]

    return ToolIterator(itertools.cycle, cycle_step, rebuild)


def _cycle_after(done: tuple[Any, ...], rest: Iterator[Any]) -> Iterator[Any]:
    return advanced(itertools.cycle(itertools.chain(done, rest)), len(done))


def _endless(tx: Frame, kind: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if kind is itertools.count:
        start, stride = tx.constants([args[0] if args else ConstantValue(0), args[1] if len(args) > 1 else kwargs.get("step", ConstantValue(1))])
        try:
            itertools.count(start, stride)
        except TypeError as e:
            raise tx.raised_from(e) from None
        at = [start]

        def count_step(tx: Frame) -> Value:
            now = at[0]
            try:
                at[0] = now + stride
            except TypeError as e:
                raise tx.raised_from(e) from None
            return ConstantValue(now)

        return ToolIterator(kind, count_step, lambda: (kind, [ConstantValue(at[0]), ConstantValue(stride)]))
    times = args[1] if len(args) > 1 else kwargs.get("times")
    left = [None if times is None else times.constant()]
    if times is not None:
        try:
            itertools.repeat(None, left[0])  # type: ignore[arg-type]
        except (TypeError, OverflowError) as e:
            raise tx.raised_from(e) from None

    def repeat_step(tx: Frame) -> Value:
        if left[0] is not None:
            if left[0] <= 0:
                raise Exhausted
            left[0] -= 1
        return args[0]

    return ToolIterator(kind, repeat_step, lambda: (kind, [args[0]] + ([ConstantValue(left[0])] if left[0] is not None else [])))


def _choices(tx: Frame, kind: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Combinatoric itertools: the real one runs over the items, each standing for its value."""
    n_pools = len(args) if kind is itertools.product else 1
    pools = [list(tx.iterate(a)) for a in args[:n_pools]]
    options, names = tx.constants(args[n_pools:]), dict(zip(kwargs, tx.constants(list(kwargs.values()))))
    try:
        real = kind(*pools, *options, **names)
    except Exception as e:
        raise tx.raised_from(e) from None
    steps = [0]

    def step(tx: Frame) -> Value:
        try:
            found = next(real)
        except StopIteration:
            raise Exhausted from None
        steps[0] += 1
        return TupleValue(list(found))

    def rebuild() -> tuple[Any, list[Value]]:
        return functools.partial(_chosen, kind, tuple(options), names), [ConstantValue(steps[0]), *(TupleValue(p) for p in pools)]

    return ToolIterator(kind, step, rebuild)


def _chosen(kind: Any, options: tuple[Any, ...], names: dict[str, Any], steps: int, *pools: Any) -> Iterator[Any]:
    return advanced(kind(*pools, *options, **names), steps)
