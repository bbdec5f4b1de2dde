"""Built-in functions over iterables: iter, next, any, all, sum, min, max, sorted, reduce."""
from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from framejit.guards.sources import static_lookup
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.handlers import HANDLERS, Handler, handles
from framejit.values.iterators import CallIterator, IteratorValue, sort_values
from framejit.values.sequence import ListValue
from framejit.values.signals import Exhausted, Raised, Unsupported
from framejit.values.tensor import TensorValue
from framejit.values.user_object import ObjectValue

if TYPE_CHECKING:
    from framejit.interpreter.frame import Frame


@handles(iter)
def _iter(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return CallIterator(args[0], args[1]) if len(args) == 2 else tx.get_iter(args[0])


@handles(next)
def _next(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not isinstance(args[0], IteratorValue):
        if not (isinstance(args[0], ObjectValue) and static_lookup(args[0].cls, "__next__", None)):
            raise tx.raised(TypeError, f"{args[0].python_type().__name__!r} object is not an iterator")
        try:
            with tx.catching():
                return args[0].call_method(tx, "__next__", [], {})
        except Raised as e:
            if len(args) > 1 and issubclass(e.value.cls, StopIteration):
                return args[1]
            raise
    try:
        return tx.next(args[0])
    except Exhausted:
        if len(args) > 1:
            return args[1]
        raise args[0].stop(tx) from None


@handles(any, all)
def _any(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _short_circuit(tx, args[0], True)


def _short_circuit(tx: Frame, iterable: Value, stop: bool) -> Value:
    if isinstance(iterable, TensorValue):
        raise Unsupported("any() or all() over a tensor needs its data", "FJ106", "use tensor.any() or tensor.all() with torch.where")
    for item in tx.drain(tx.get_iter(iterable)):
        if tx.truth(item) == stop:
            return ConstantValue(stop)
    return ConstantValue(not stop)


HANDLERS[all] = lambda tx, args, kwargs: _short_circuit(tx, args[0], False)


@handles(sum)
def _sum(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    total = args[1] if len(args) > 1 else kwargs.get("start", ConstantValue(0))
    for item in tx.iterate(args[0]):
        total = tx.binary("+", total, realize(tx, item))
    return total


@handles(math.prod)
def _prod(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    total = kwargs.get("start", ConstantValue(1))
    for item in tx.iterate(args[0]):
        total = tx.binary("*", total, realize(tx, item))
    return total


def _extreme(name: str) -> Handler:
    def handler(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        items = [realize(tx, i) for i in (tx.iterate(args[0]) if len(args) == 1 else args)]
        key = kwargs.get("key", NONE)
        if not items:
            if "default" in kwargs:
                return kwargs["default"]
            raise tx.raised(ValueError, f"{'max' if name == 'gt' else 'min'}() iterable argument is empty")
        plain = key.is_constant() and key.constant() is None
        best, best_key = items[0], items[0] if plain else realize(tx, tx.call(key, [items[0]], {}))
        for item in items[1:]:
            k = item if plain else realize(tx, tx.call(key, [item], {}))
            if tx.truth(tx.compare(name, k, best_key)):
                best, best_key = item, k
        return best

    return handler


HANDLERS.update({max: _extreme("gt"), min: _extreme("lt")})


@handles(sorted)
def _sorted(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ListValue(sort_values(tx, list(tx.iterate(args[0])), kwargs))


@handles(functools.reduce)
def _reduce(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    items = list(tx.iterate(args[1]))
    if len(args) > 2:
        items.insert(0, args[2])
    if not items:
        raise tx.raised(TypeError, "reduce() of empty iterable with no initial value")
    total = items[0]
    for item in items[1:]:
        total = tx.call(args[0], [total, item], {})
    return total
