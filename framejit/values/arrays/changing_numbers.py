"""Functions of numpy of numbers of Python's that are not assumed, as `np.cos(np.pi * step / steps)`.

Replacement code calls numpy's own function, and what comes of it is a float that is followed as any other. Beside such
numbers numpy computes as Python does; it would warn where Python has inf or nan, so that such are not followed.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from framejit.signals import NotConstant
from framejit.values.arrays.ndarray import NumberValue
from framejit.values.arrays.ufuncs import constant_number, full
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.folding import plain
from framejit.values.runtime_numbers.number_functions import EXPONENT, FunctionOfNumber
from framejit.values.runtime_numbers.size_number import GREATEST, SizeNumberValue, is_moderate
from framejit.values.sym_int import SymIntValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_DTYPE: Final = np.dtype(np.float64)
_COMPARED: Final = frozenset((operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne))
_SYMBOLS: Final = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/"}


class ChangingNumberValue(NumberValue):
    """An np.float64 that replacement code computes, `number` as a float of Python's."""

    def __init__(self, frame: Frame, number: SymNumberValue) -> None:
        self.number, self.source, self.known = number, None, None
        self.one_of_each = False
        self._frame = frame

    @property
    def tensor(self) -> TensorValue:  # type: ignore[override]
        """The number in the graph, where something else than numbers computes with it."""
        made = self.number.in_dtype(torch.float64)
        if made is None:
            return full(self._frame, (), self.number.constant(), _DTYPE)
        assert isinstance(made, TensorValue)
        return made

    @property
    def dtype(self) -> np.dtype[Any]:
        return _DTYPE

    def children(self) -> Iterator[Value]:
        return iter((self.number,))

    def plain(self, frame: Frame) -> Value:
        return self.number

    def truth(self, frame: Frame) -> bool:
        return self.number.truth(frame)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(np.float64, lambda: cg.load(self.number))


def called(function: Callable[..., Any], *args: Any) -> float:
    """What a function of numpy gives, as Python's float; called by replacement code."""
    return float(function(*args))


def clipped(low: float, high: float, number: float) -> float:
    """`np.clip()` of a number, its bounds first; called by replacement code."""
    return float(np.clip(number, low, high))


def interpolated(places: tuple[float, ...], numbers: tuple[float, ...], number: float) -> float:
    """`np.interp()` of a number, the points first; called by replacement code."""
    return float(np.interp(number, places, numbers))


def _named(ufunc: Any) -> Callable[[float], float]:
    """A function of this module's for one of numpy's, by whose name another process finds it."""

    def compute(number: float) -> float:
        return float(ufunc(number))

    compute.__name__ = compute.__qualname__ = f"{ufunc.__name__}_of_a_number"
    globals()[compute.__name__] = compute
    return compute


@cache
def _of_one(ufunc: Any) -> FunctionOfNumber | None:
    compute = _COMPUTED.get(ufunc)
    if compute is None:
        return None
    if ufunc in _POSITIVE:
        return FunctionOfNumber(compute, positive=True)
    if ufunc in _EXPONENTIAL:
        return FunctionOfNumber(compute, most=EXPONENT)
    if ufunc in _SPANS:
        return FunctionOfNumber(compute, span=_SPANS[ufunc])
    return FunctionOfNumber(compute)


@cache
def _of_bound(ufunc: Any, bound: float) -> FunctionOfNumber:
    return FunctionOfNumber(partial(called, ufunc, bound))


@cache
def _power(base: float) -> FunctionOfNumber:
    return FunctionOfNumber(partial(called, np.power, base), positive=True, span=(0.0, 1.0))


@cache
def _clip(low: float, high: float) -> FunctionOfNumber:
    return FunctionOfNumber(partial(clipped, low, high))


@cache
def _interpolation(places: tuple[float, ...], numbers: tuple[float, ...]) -> FunctionOfNumber:
    return FunctionOfNumber(partial(interpolated, places, numbers), span=(min(numbers), max(numbers)))


_POSITIVE: Final = frozenset((np.sqrt, np.log, np.log2, np.log10, np.log1p))
_EXPONENTIAL: Final = frozenset((np.exp, np.expm1))
_SPANS: Final = {np.cos: (-1.0, 1.0), np.sin: (-1.0, 1.0)}
_RISING: Final = frozenset((np.tanh, np.arctan, np.radians, np.degrees, np.deg2rad, np.rad2deg))
_COMPUTED: Final = {ufunc: _named(ufunc) for ufunc in (*_POSITIVE, *_EXPONENTIAL, *_SPANS, *_RISING)}


def of_changing_numbers(
    frame: Frame, function: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """The result of a function of numpy of one number that is not assumed, and known ones; None where it has to be
    known."""
    given = [*map(_plain, args)]
    place = next((p for p, value in enumerate(given) if _is_open(value)), None)
    if place is None or kwargs:
        return None
    number, others = given[place], [*given[:place], *given[place + 1 :]]
    found = _function(frame, function, place, others)
    made = None if found is None else found.of_open(frame, number)
    return ChangingNumberValue(frame, made) if isinstance(made, SymNumberValue) else None


def _function(frame: Frame, function: Any, place: int, others: list[Value]) -> FunctionOfNumber | None:
    if not others:
        return _of_one(function) if isinstance(function, np.ufunc) else None
    if function is np.interp:
        points = [_floats(frame, other) for other in others]
        if place or len(points) != 2 or not points[0] or points[0] is None or points[1] is None:
            return None
        return _interpolation(points[0], points[1]) if len(points[0]) == len(points[1]) else None
    numbers = [value.value for value in others if isinstance(value, ConstantValue) and type(value.value) is float]
    if len(numbers) < len(others) or not all(map(is_moderate, numbers)):
        return None
    if function in (np.minimum, np.maximum) and len(numbers) == 1:
        return _of_bound(function, numbers[0])
    if function is np.power and place == 1 and 0 < numbers[0] <= 1:
        return _power(numbers[0])
    return _clip(*numbers) if function is np.clip and place == 0 and len(numbers) == 2 else None


def _floats(frame: Frame, value: Value) -> tuple[float, ...] | None:
    """The numbers in a list that is known, as floats."""
    try:
        items = plain(frame, value)
    except NotConstant:
        return None
    if type(items) not in (list, tuple) or not all(type(n) in (int, float) and is_moderate(n) for n in items):
        return None
    return tuple(map(float, items))


def on_changing_numbers(frame: Frame, function: Callable[..., Any], operands: Sequence[Value]) -> Value | None:
    """An operator of such a number, and of others of Python's or numpy's; None where the graph computes it."""
    if not any(isinstance(value, ChangingNumberValue) for value in operands):
        return None
    numbers = [*map(_plain, operands)]
    if not all(_is_open(value) or _is_moderate(value) for value in numbers):
        return None
    if function is operator.neg:
        found = frame.unary("-", numbers[0])
    elif function in _SYMBOLS:
        found = frame.binary(_SYMBOLS[function], numbers[0], numbers[1])
    elif function in _COMPARED:
        return constant_number(frame, np.bool_(frame.compare(function.__name__, numbers[0], numbers[1]).constant()))
    else:
        return None
    if isinstance(found, SymNumberValue):
        bounded = isinstance(found, SizeNumberValue) or found.surely("ge", -GREATEST) and found.surely("le", GREATEST)
        return ChangingNumberValue(frame, found) if bounded else None
    return constant_number(frame, np.float64(found.constant()))


def _plain(value: Value) -> Value:
    """A number of numpy's as Python's."""
    if isinstance(value, ChangingNumberValue):
        return value.number
    if isinstance(value, NumberValue) and type(value.known) is np.float64:
        return ConstantValue(float(value.known))
    return value


def _is_open(value: Value) -> bool:
    return isinstance(value, SymNumberValue) or isinstance(value, SymIntValue) and not value.is_of_data()


def _is_moderate(value: Value) -> bool:
    number = value.value if isinstance(value, ConstantValue) else None
    return isinstance(number, (int, float)) and type(number) is not bool and abs(number) < GREATEST
