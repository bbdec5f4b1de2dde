"""Sizes, truth and numbers: len, abs, round, pow, bool, int, float, complex, slice."""

from __future__ import annotations

import math
import operator
import sys
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit import _native as native
from framejit.guards.sources import static_lookup
from framejit.late_dataclass import dataclass
from framejit.signals import Unsupported
from framejit.values.arrays.ndarray import NumpyValue
from framejit.values.base import Value, deep_realize, realize
from framejit.values.complaints import refused
from framejit.values.constant import NONE, ConstantValue, SliceValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import fold
from framejit.values.handlers import HANDLERS, Handler, handles
from framejit.values.objects.classes import ClassValue
from framejit.values.objects.user_object import ObjectValue, length_by_method
from framejit.values.operators import by_special_methods
from framejit.values.runtime_numbers.number_calls import call_on_read
from framejit.values.runtime_numbers.read_arithmetic import compute
from framejit.values.runtime_numbers.read_number import ReadNumberValue, read_bool, read_float
from framejit.values.runtime_numbers.size_number import as_float
from framejit.values.sym_int import SymIntValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.overrides import handed_over
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Frame


@handles(len)
def _len(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args[0].is_constant() and isinstance(args[0], ConstantValue):
        return fold(frame, len, args, {})
    if static_lookup(args[0].python_type(), "__len__", None) is None:
        raise frame.raised(TypeError, f"object of type {native.type_name(args[0].python_type())!r} has no len()")
    if isinstance(args[0], ObjectValue | ClassValue):
        return length_by_method(frame, args[0])
    return args[0].call_method(frame, "__len__", [], {})


def _divmod(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if isinstance(args[0], TensorValue):
        return frame.capture.graph.call(divmod, args, kwargs)
    if any(isinstance(a, ObjectValue) for a in args):
        return by_special_methods(
            frame, divmod, "divmod", args[0], args[1],
            f"unsupported operand type(s) for divmod(): {args[0].python_type().__name__!r}",
        )
    if any(isinstance(a, ReadNumberValue) for a in args):
        return TupleValue([frame.binary(symbol, args[0], args[1]) for symbol in ("//", "%")])
    return fold(frame, divmod, args, kwargs)


def _of_number(frame: Frame, function: Any, value: Value) -> Value | None:
    """A number of one that is not assumed: rounded, made positive, or as another type; None where that must be
    known."""
    if isinstance(value, SymIntValue) and not value.is_of_data():
        if function is float:
            return as_float(frame.capture, value)
        return from_python(-value.size) if function is abs and value.size < 0 else value
    if not isinstance(value, SymNumberValue):
        return None
    return value.as_float() if function is float else value.absolute() if function is abs else value.whole(function)


def _trunc(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    number = _of_number(frame, math.trunc, args[0]) if len(args) == 1 and not kwargs else None
    if len(args) == 1 and isinstance(args[0], ReadNumberValue):
        number = args[0].rounded(_ROUNDING[math.trunc])
    return fold(frame, math.trunc, args, kwargs) if number is None else number


def _special_or_fold(function: Any, method: str) -> Handler:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if isinstance(args[0], TensorValue):
            made = handed_over(frame, function, args, kwargs)
            return frame.capture.graph.call(function, args, kwargs) if made is None else made
        if isinstance(args[0], NumpyValue):
            return args[0].call_method(frame, method, args[1:], kwargs)
        number = _of_number(frame, function, args[0]) or compute(frame, function, *args) if len(args) == 1 else None
        if number is None and len(args) == 1 and function in _ROUNDING and isinstance(args[0], ReadNumberValue):
            number = args[0].rounded(_ROUNDING[function])
        if number is None and function is round and not kwargs and args[0].python_type() is float:
            number = _rounded_to(args) or call_on_read(round, "round", args)
        if number is not None:
            return number
        if isinstance(args[0], ObjectValue) and static_lookup(args[0].cls, method, None) is None:
            raise refused(frame, function, [args[0]], f"{args[0].cls.__name__!r} object has no {method}")
        if isinstance(args[0], ObjectValue):
            return frame.call(args[0].special(frame, method), args[1:], {})  # type: ignore[arg-type]
        return fold(frame, function, args, kwargs)

    return handler


@dataclass(frozen=True)
class _RoundedTo:
    """`round(number, digits)`."""

    digits: int

    def __call__(self, number: float) -> float:
        return round(number, self.digits)


def _rounded_to(args: list[Value]) -> Value | None:
    """A float that is not assumed, rounded to some digits behind the point, for which Python raises for none."""
    if len(args) != 2 or not isinstance(args[0], SymNumberValue) or not isinstance(args[1], ConstantValue):
        return None
    digits = args[1].value
    return args[0].called(_RoundedTo(digits)) if type(digits) is int and digits >= 0 else None


_ROUNDING: Final = {round: torch.round, math.ceil: torch.ceil, math.floor: torch.floor, math.trunc: torch.trunc}
"""As the graph rounds a number that was read from a tensor to an int."""
HANDLERS.update(
    {
        abs: _special_or_fold(abs, "__abs__"),
        round: _special_or_fold(round, "__round__"),
        divmod: _divmod,
        math.ceil: _special_or_fold(math.ceil, "__ceil__"),
        math.floor: _special_or_fold(math.floor, "__floor__"),
        math.trunc: _trunc,
    }
)


@handles(math.fsum)
def _fsum(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if isinstance(args[0], (ListValue, TupleValue)):
        args = [TupleValue(deep_realize(frame, list(args[0].items)))]
    return fold(frame, math.fsum, args, {})


@handles(pow)
def _pow(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return frame.binary("**", args[0], args[1]) if len(args) == 2 else fold(frame, pow, args, kwargs)


@handles(bool)
def _bool(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    read = read_bool(frame, args[0]) if len(args) == 1 and not kwargs else None
    return read or ConstantValue(frame.truth(args[0]) if args else False)


def _number(cls: type, method: str) -> Handler:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args and isinstance(args[0], ObjectValue):
            return _converted(frame, cls, method, args)
        found = _of_number(frame, cls, args[0]) if cls is not complex and len(args) == 1 and not kwargs else None
        if found is not None:
            return found
        if cls is float and len(args) == 1 and isinstance(args[0], TensorValue):
            read = read_float(frame, args[0])
            if read is not None:
                return read
        converts = (
            (TensorValue, NumpyValue, ReadNumberValue, SymIntValue)
            if cls is int
            else (TensorValue, NumpyValue, ReadNumberValue)
        )
        if len(args) == 1 and isinstance(args[0], converts):
            return args[0].call_method(frame, method, [], {})
        return fold(frame, cls, args, kwargs)

    return handler


_BY_TRUNC = ("__trunc__",) if sys.version_info < (3, 14) else ()  # which newer ones do not call
_OTHERS = {
    int: ("__int__", "__index__", *_BY_TRUNC),
    float: ("__float__", "__index__"),
    complex: ("__complex__", "__float__", "__index__"),
}


def _converted(frame: Frame, cls: type, method: str, args: list[Value]) -> Value:
    """An object as a number, by the first of its special methods."""
    owner = args[0]
    assert isinstance(owner, ObjectValue)
    if len(args) > 1:
        raise Unsupported(f"{cls.__name__}() of {owner.describe()} and more", "FJ161")
    found = next((name for name in _OTHERS[cls] if static_lookup(owner.cls, name, None) is not None), None)
    if found is None and (issubclass(owner.cls, str) or native.is_buffer_type(owner.cls)):
        raise Unsupported(f"{cls.__name__}() of the text of {owner.describe()}", "FJ161")
    if found is None:
        given = native.type_name(owner.cls)
        raise refused(frame, cls, [owner], f"{cls.__name__}() argument must be a number, not {given!r}")
    if found == "__trunc__":
        raise Unsupported(f"int() of {owner.describe()} by its __trunc__, which warns", "FJ161")
    result = realize(frame, owner.call_method(frame, found, [], {}))
    if found != method or result.python_type() is not cls:
        if not isinstance(result, ConstantValue) or type(result.value) not in (int, float):
            raise Unsupported(f"{found} that returns {result.describe()}", "FJ161")
        return fold(frame, cls, [result], {})
    return result


HANDLERS[operator.truth] = HANDLERS[bool]
HANDLERS.update(
    {int: _number(int, "__int__"), float: _number(float, "__float__"), complex: _number(complex, "__complex__")}
)


@handles(slice)
def _slice(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    parts = [NONE, args[0], NONE] if len(args) == 1 else [*args, NONE][:3]
    return (
        ConstantValue(slice(*frame.constants(parts)))
        if all(p.is_constant() for p in parts)
        else SliceValue(list(parts))
    )
