"""Built-in functions over iterables: iter, next, any, all, sum, min, max, sorted, reduce."""
from __future__ import annotations

import functools
import itertools
import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.guards.sources import static_lookup
from framejit.models.absent import message
from framejit.signals import Exhausted, Raised, Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.iterator_values import IteratorValue
from framejit.values.containers.length_hints import gathered
from framejit.values.containers.lists import ListValue
from framejit.values.containers.sequence import SequenceValue
from framejit.values.containers.sorting import sort_values
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import plain
from framejit.values.handlers import HANDLERS, Handler, handles
from framejit.values.objects.functions.model_values import ModelIterator, call_model, make_model_iterator
from framejit.values.objects.user_object import ObjectValue
from framejit.values.operators import binary
from framejit.values.runtime_numbers.read_arithmetic import choose
from framejit.values.runtime_numbers.summed_numbers import KEEPS_WHAT_ROUNDING_LOSES, sum_of
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


_NOT_CALLABLE = message(iter, 0, 0)


@handles(iter)
def _iter(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) == 1:
        return frame.get_iter(args[0])
    if static_lookup(args[0].python_type(), "__call__", None) is None:
        raise frame.raised(TypeError, _NOT_CALLABLE)
    return make_model_iterator(frame, type(iter(int, 1)), args, kwargs)


@handles(next)
def _next(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not isinstance(args[0], IteratorValue):
        if not (isinstance(args[0], ObjectValue) and static_lookup(args[0].cls, "__next__", None) is not None):
            raise frame.raised(TypeError, f"{native.type_name(args[0].python_type())!r} object is not an iterator")
        try:
            with frame.catching():
                return args[0].call_method(frame, "__next__", [], {})
        except Raised as e:
            if len(args) > 1 and issubclass(e.value.cls, StopIteration):
                return args[1]
            raise
    try:
        return frame.next(args[0])
    except Exhausted:
        if len(args) > 1:
            return args[1]
        raise args[0].stop(frame) from None


_TEE: Any = type(itertools.tee([])[0])
# the first of the iterators of a tee's iterator
_GIVES_ITSELF = (lambda one: itertools.tee(one)[0] is one)(itertools.tee([])[0])


@handles(itertools.tee)
def _tee(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    n = frame.constants([args[1]])[0] if len(args) > 1 else 2
    try:
        itertools.tee((), n)
    except Exception as e:
        raise frame.raised_from(e) from None
    if not n:
        return TupleValue([])
    given = frame.get_iter(args[0])
    first = given if isinstance(given, ModelIterator) and given.kind is _TEE else None
    if first is None and static_lookup(given.python_type(), "__copy__", None) is not None:
        raise Unsupported(f"tee() of {given.describe()}, which copies itself")
    if first is None or not _GIVES_ITSELF:
        first = _tee_of(frame, given)
    return TupleValue([first, *(first.copy(frame) for _ in range(operator.index(n) - 1))])


@handles(_TEE)
def _make_tee(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _tee_of(frame, frame.get_iter(args[0]))


def _tee_of(frame: Frame, given: Value) -> ModelIterator:
    """An iterator of its own over what another one gives: beside it, if that is of a tee, too."""
    if isinstance(given, ModelIterator) and given.kind is _TEE:
        return given.copy(frame)
    if given.python_type() is _TEE:
        raise Unsupported(f"a tee of {given.describe()}, which goes on by itself")
    return make_model_iterator(frame, _TEE, [given], {})


@handles(any, all)
def _any(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _short_circuit(frame, args[0], True)


def _short_circuit(frame: Frame, iterable: Value, stop: bool) -> Value:
    if isinstance(iterable, TensorValue):
        raise Unsupported(
            "any() or all() over a tensor needs its data", "FJ106", "use tensor.any() or tensor.all() with torch.where"
        )
    for item in frame.drain(frame.get_iter(iterable)):
        if frame.truth(item) == stop:
            return ConstantValue(stop)
    return ConstantValue(not stop)


HANDLERS[all] = lambda frame, args, kwargs: _short_circuit(frame, args[0], False)


def _on_data(function: Any) -> Handler:
    """`function` itself where all it works on is known numbers and text, else its model. What it gives is a number or
    text then: a list or tuple may be one of those that it was given, which the model finds and `function`, called with
    copies, does not."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if all(_is_data(frame, v) for v in (*args, *kwargs.values())):
            try:
                result = function(*(plain(frame, a) for a in args), **{k: plain(frame, v) for k, v in kwargs.items()})
            except Exception as e:
                raise frame.raised_from(e) from None
            if type(result) in _DATA:
                return ConstantValue(result)
        return call_model(frame, function, args, kwargs)

    return handler


def _is_data(frame: Frame, value: Value) -> bool:
    if isinstance(value, SequenceValue):
        return value.python_type() in (list, tuple, torch.Size) and all(
            _is_data(frame, realize(frame, i)) for i in value.items
        )
    return isinstance(value, ConstantValue) and type(value.value) in _DATA


_NUMBERS = (int, bool, float, complex)


def _sum_of_grown(frame: Frame, items: Value) -> Value | None:
    """The sum of a list of numbers that grows from call to call; None of others."""
    if not isinstance(items, ListValue):
        return None
    appended = [realize(frame, item) for item in items.appended()]
    if KEEPS_WHAT_ROUNDING_LOSES and appended:  # the sum is not that of those before, and these
        before = items.numbers_before(frame)
        if before is None:
            return None
        if any(type(number) is float for number in before[0]) or any(i.python_type() is float for i in appended):
            return sum_of(frame.capture, appended, before)
    numbers = items.folded(frame, sum)
    return None if numbers is None else functools.reduce(functools.partial(binary, frame, "+"), numbers)


@handles(sum)
def _sum(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Numbers that are known, by `sum` itself; those that are not, by additions where that comes to the same."""
    iterable, total = args[0], [*args[1:], *kwargs.values(), ConstantValue(0)][0]
    grown = _sum_of_grown(frame, iterable) if len(args) == 1 and not kwargs else None
    if grown is not None:
        return grown
    if not isinstance(iterable, SequenceValue) or iterable.python_type() not in (list, tuple) or any(
        realize(frame, v).python_type() not in _NUMBERS for v in (*iterable.items, total)
    ) or _is_data(frame, iterable) and _is_data(frame, total):
        found: Value = _SUM_OF_ANYTHING(frame, args, kwargs)
        return found
    items = [realize(frame, item) for item in iterable.items]
    whole = sum(1 for _ in itertools.takewhile(lambda v: v.python_type() in (int, bool), [total, *items]))
    if KEEPS_WHAT_ROUNDING_LOSES and len(items) - whole > 1:  # what the last addition alone loses makes no difference
        summed = sum_of(frame.capture, items) if len(args) == 1 and not kwargs else None
        if summed is None:
            raise Unsupported("sum() of more than two floats that are not assumed, which CPython rounds once")
        return summed
    for item in items:
        total = binary(frame, "+", total, item)
    return total


_DATA = (int, float, complex, bool, str, bytes, type(None), range)
HANDLERS[math.prod] = _on_data(math.prod)
_SUM_OF_ANYTHING: Any = _on_data(sum)


def _extreme(function: Any) -> Handler:
    """`min` or `max`; of numbers that are read from tensors, in the graph."""
    of_anything: Any = _on_data(function)

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) == 1 and isinstance(args[0], ListValue) and not kwargs:
            grown = args[0].folded(frame, function)
            if grown is not None and len(grown) == 1:
                return grown[0]
            args = grown or args
        given = args[0].items if len(args) == 1 and isinstance(args[0], SequenceValue) else args
        found = None if kwargs or len(given) < 2 else choose(frame, function, [realize(frame, v) for v in given])
        made: Value = of_anything(frame, args, kwargs) if found is None else found
        return made

    return handler


HANDLERS.update({function: _extreme(function) for function in (min, max)})


@handles(sorted)
def _sorted(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if isinstance(args[0], ListValue):
        args[0].refuse_if_open(frame, "sorted")
    items = list(gathered(frame, args[0]))
    sort_values(frame, items, kwargs)
    return ListValue(items)
