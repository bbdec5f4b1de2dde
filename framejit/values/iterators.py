"""Iterators stepped while capturing: over sequences, and those of builtins and itertools."""
from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, Callable, Iterator

from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.sequence import SequenceValue, TupleValue
from framejit.values.signals import Exhausted, NotConstant, Raised, Unsupported

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.capture.codegen import Codegen
    from framejit.interpreter.frame import Frame


class IteratorValue(Value):
    """Something with `next`; raises Exhausted at the end."""

    mutable = True

    def next(self, tx: "Frame") -> Value:
        raise NotImplementedError

    def iterate(self, tx: "Frame") -> Iterator[Value]:
        return iter(list(tx.drain(self)))

    def iterator(self, tx: "Frame") -> Value:
        return self

    def call_method(self, tx: "Frame", name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__iter__":
            return self
        if name == "__next__":
            try:
                return tx.next(self)
            except Exhausted:
                raise self.stop(tx) from None
        return super().call_method(tx, name, args, kwargs)


    def stop(self, tx: "Frame") -> Raised:
        """The StopIteration that `next()` raises at the end."""
        return tx.raised(StopIteration)


class ItemsIterator(IteratorValue):
    """Over a list (live, as Python's own list iterator) or over items fixed at its creation."""

    def __init__(self, sequence: SequenceValue, kind: type, index: int = 0, source: "Source | None" = None) -> None:
        self.sequence, self.kind, self.index, self.source = sequence, kind, index, source
        self._began_at = index

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Iterator[Value]:
        return iter((self.sequence,))

    def next(self, tx: "Frame") -> Value:
        if self.index >= len(self.sequence.items):
            raise Exhausted
        tx.capture.effects.changed(self)
        self.index += 1
        return self.sequence.items[self.index - 1]

    def reconstruct(self, cg: "Codegen") -> None:
        if isinstance(self.sequence, TupleValue) and self.sequence.source is None:
            rest: Value = TupleValue(self.sequence.items[self.index :])
            cg.em.call_object(iter, lambda: cg.load(rest))
            return
        cg.em.call_object(_iterator_at, lambda: (cg.load(self.sequence), cg.em.load_object(self.index)), 2)


    def replay(self, cg: "Codegen") -> None:
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
    iterator.__setstate__(index)  # type: ignore[attr-defined]
    return iterator


class KeyedIterator(IteratorValue):
    """Over a dict, one of its views, or a set: values are read when it gets there, and changed sizes noticed."""

    def __init__(self, tx: "Frame", iterable: Value, container: Any, kind: str) -> None:
        self.iterable, self.container, self.kind, self.made_at = iterable, container, kind, tx.seq
        self.keys, self.order = list(container.items), list(container.iterate(tx))
        self.made_from = self.seen = container.items
        self.index = 0

    def python_type(self) -> type:
        return type(iter(set())) if not hasattr(self.container, "keys_and_values") else type(iter(getattr({}, self.kind)()))

    def children(self) -> Iterator[Value]:
        return iter((self.iterable,))

    def next(self, tx: "Frame") -> Value:
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

    def reconstruct(self, cg: "Codegen") -> None:
        if self.container.items is not self.made_from and self.index <= len(self.order):
            cg.capture.break_at(self.made_at, Unsupported(f"an iterator over {self.container.describe()} leaves captured code", "FJ151"))
        cg.em.call_object(_advanced, lambda: (cg.load(self.iterable), cg.em.load_object(self.index)), 2)


def _advanced(iterable: Any, steps: int) -> Iterator[Any]:
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

    def next(self, tx: "Frame") -> Value:
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

    def reconstruct(self, cg: "Codegen") -> None:
        if self.index < 0:
            cg.em.call_object(iter, lambda: cg.em.load_object(()))
        else:
            cg.em.call_object(_iterator_at, lambda: (cg.load(self.owner), cg.em.load_object(self.index)), 2)


class RangeIterator(IteratorValue):
    def __init__(self, rest: range) -> None:
        self.rest = rest

    def python_type(self) -> type:
        return type(iter(range(0)))

    def next(self, tx: "Frame") -> Value:
        if not self.rest:
            raise Exhausted
        first, self.rest = self.rest[0], self.rest[1:]
        return ConstantValue(first)

    def reconstruct(self, cg: "Codegen") -> None:
        cg.em.call_object(iter, lambda: cg.em.load_object(self.rest))


class ToolIterator(IteratorValue):
    """enumerate, zip, map, filter and the lazy itertools, as one stepping function over inner iterators.

    `rebuild` gives the callable and arguments that make the real iterator in its present state.
    """

    def __init__(self, kind: type, step: "Callable[[Frame], Value]", rebuild: Callable[[], tuple[Any, list[Value]]]) -> None:
        self.kind, self.step, self.rebuild = kind, step, rebuild

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Iterator[Value]:
        return iter(self.rebuild()[1])

    def next(self, tx: "Frame") -> Value:
        return self.step(tx)

    def reconstruct(self, cg: "Codegen") -> None:
        function, args = self.rebuild()
        cg.em.call_object(function, lambda: [cg.load(a) for a in args], len(args))


def make_tool(tx: "Frame", kind: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call an iterator class."""
    if kind is reversed:
        return _reversed(tx, args[0])
    if kind is enumerate:
        inner, count = tx.get_iter(args[0]), (args[1] if len(args) > 1 else kwargs.get("start", ConstantValue(0))).constant()
        state = [count]

        def enumerate_step(tx: "Frame") -> Value:
            item = tx.next(inner)
            state[0] += 1
            return TupleValue([ConstantValue(state[0] - 1), item])

        return ToolIterator(enumerate, enumerate_step, lambda: (enumerate, [inner, ConstantValue(state[0])]))
    if kind is zip:
        inners, strict = [tx.get_iter(a) for a in args], "strict" in kwargs and tx.truth(kwargs["strict"])

        def zip_step(tx: "Frame") -> Value:
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

        def chain_step(tx: "Frame") -> Value:
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
    if kind is itertools.islice:
        return _islice(tx, args)
    if kind in (itertools.count, itertools.repeat):
        return _endless(tx, kind, args, kwargs)
    return _eager(tx, kind, args, kwargs)


def _reversed(tx: "Frame", value: Value) -> Value:
    value = realize(tx, value)
    if isinstance(value, SequenceValue):
        return ItemsIterator(TupleValue(value.items[::-1]), reversed)
    return tx.get_iter(value.call_method(tx, "__reversed__", [], {})) if not value.is_constant() else ItemsIterator(TupleValue(list(value.iterate(tx))[::-1]), reversed)


def _with_function(tx: "Frame", kind: Any, args: list[Value]) -> Value:
    function, inners = args[0], [tx.get_iter(a) for a in args[1:]]
    dropping = [True]

    def test(tx: "Frame", item: Value) -> bool:
        return tx.truth(item if function.is_constant() and function.constant() is None else tx.call(function, [item], {}))

    def step(tx: "Frame") -> Value:
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


def _cycle(tx: "Frame", iterable: Value) -> Value:
    inner, saved, at = tx.get_iter(iterable), list[Value](), [-1]  # the position in `saved` once `inner` has ended

    def cycle_step(tx: "Frame") -> Value:
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
    return _advanced(itertools.cycle(itertools.chain(done, rest)), len(done))


def _islice(tx: "Frame", args: list[Value]) -> Value:
    inner, bounds = tx.get_iter(args[0]), slice(*tx.constants(args[1:]))
    start, stop, stride = bounds.start or 0, bounds.stop, bounds.step or 1
    state = [0, start]

    def step(tx: "Frame") -> Value:
        if stop is not None and state[1] >= stop:
            raise Exhausted
        while state[0] < state[1]:
            tx.next(inner)
            state[0] += 1
        item = tx.next(inner)
        state[0] += 1
        state[1] += stride
        return item

    def rebuild() -> tuple[Any, list[Value]]:
        return itertools.islice, [inner, ConstantValue(state[1] - state[0]), ConstantValue(None if stop is None else max(stop - state[0], 0)), ConstantValue(stride)]

    return ToolIterator(itertools.islice, step, rebuild)


def _endless(tx: "Frame", kind: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if kind is itertools.count:
        start = (args[0] if args else kwargs.get("start", ConstantValue(0))).constant()
        stride = (args[1] if len(args) > 1 else kwargs.get("step", ConstantValue(1))).constant()
        at = [start]

        def count_step(tx: "Frame") -> Value:
            at[0] += stride
            return ConstantValue(at[0] - stride)

        return ToolIterator(kind, count_step, lambda: (kind, [ConstantValue(at[0]), ConstantValue(stride)]))
    times = args[1] if len(args) > 1 else kwargs.get("times")
    left = [None if times is None else times.constant()]

    def repeat_step(tx: "Frame") -> Value:
        if left[0] is not None:
            if left[0] <= 0:
                raise Exhausted
            left[0] -= 1
        return args[0]

    return ToolIterator(kind, repeat_step, lambda: (kind, [args[0]] + ([ConstantValue(left[0])] if left[0] is not None else [])))


def _eager(tx: "Frame", kind: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Combinatoric itertools: run the real one over the items, each standing for its value."""
    if kind in (itertools.product, itertools.combinations, itertools.permutations, itertools.combinations_with_replacement, itertools.pairwise, itertools.zip_longest, itertools.compress, itertools.batched if hasattr(itertools, "batched") else None):
        n_iterables = len(args) if kind in (itertools.product, itertools.zip_longest) else 1
        pools = [list(tx.iterate(a)) for a in args[:n_iterables]]
        rest = [bool(tx.truth(v)) for v in tx.iterate(args[1])] if kind is itertools.compress else tx.constants(args[n_iterables:])
        extra: dict[str, Any] = {k: (v if k == "fillvalue" else v.constant()) for k, v in kwargs.items()}
        if kind is itertools.zip_longest:
            extra.setdefault("fillvalue", NONE)
        made = list(kind(*pools, *([rest] if kind is itertools.compress else rest), **extra))
        return ItemsIterator(TupleValue([m if isinstance(m, Value) else TupleValue(list(m)) for m in made]), kind)
    if kind is itertools.accumulate:
        function = args[1] if len(args) > 1 else kwargs.get("func", NONE)
        total = kwargs.get("initial")
        made_values: list[Value] = [] if total is None else [total]
        for item in tx.iterate(args[0]):
            if total is None:
                total = item
            elif function.is_constant() and function.constant() is None:
                total = tx.binary("+", total, item)
            else:
                total = tx.call(function, [total, item], {})
            made_values.append(total)
        return ItemsIterator(TupleValue(made_values), kind)
    if kind is itertools.groupby:
        key = args[1] if len(args) > 1 else kwargs.get("key", NONE)
        groups: list[tuple[Value, list[Value]]] = []
        for item in tx.iterate(args[0]):
            k = item if key.is_constant() and key.constant() is None else tx.call(key, [item], {})
            if groups and tx.equal(groups[-1][0], k):
                groups[-1][1].append(item)
            else:
                groups.append((k, [item]))
        return ItemsIterator(TupleValue([TupleValue([k, ItemsIterator(TupleValue(g), kind)]) for k, g in groups]), kind)
    raise Unsupported(f"itertools.{kind.__name__}")


def sort_values(tx: "Frame", items: list[Value], kwargs: dict[str, Value]) -> list[Value]:
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

    def next(self, tx: "Frame") -> Value:
        raise Unsupported(f"stepping a {type(self.obj).__name__} made outside the graph", "FJ150")


class CallIterator(IteratorValue):
    """iter(callable, sentinel), and objects with `__next__` written in Python."""

    def __init__(self, owner: Value, sentinel: Value | None = None) -> None:
        self.owner, self.sentinel = owner, sentinel

    def children(self) -> Iterator[Value]:
        return iter((self.owner,) if self.sentinel is None else (self.owner, self.sentinel))

    def next(self, tx: "Frame") -> Value:
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

    def reconstruct(self, cg: "Codegen") -> None:
        if self.sentinel is None:
            cg.load(self.owner)
        else:
            cg.em.call_object(iter, lambda: (cg.load(self.owner), cg.load(self.sentinel)), 2)


