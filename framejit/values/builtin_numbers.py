"""Sizes, truth and numbers: len, abs, round, pow, bool, int, float, complex, slice."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from framejit.guards.sources import static_lookup
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue, SliceValue
from framejit.values.folding import fold
from framejit.values.handlers import HANDLERS, Handler, handles
from framejit.values.iterator_tools import make_tool
from framejit.values.size import SizeValue
from framejit.values.tensor import TensorValue
from framejit.values.user_object import ObjectValue

if TYPE_CHECKING:
    from framejit.interpreter.frame import Frame


@handles(len)
def _len(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args[0].is_constant() and isinstance(args[0], ConstantValue):
        return fold(tx, len, args, {})
    if static_lookup(args[0].python_type(), "__len__", None) is None:
        raise tx.raised(TypeError, f"object of type {args[0].python_type().__name__!r} has no len()")
    if isinstance(args[0], ObjectValue):
        return ConstantValue(args[0].length(tx))
    return args[0].call_method(tx, "__len__", [], {})


def _special_or_fold(function: Any, method: str) -> Handler:
    def handler(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if isinstance(args[0], TensorValue):
            return tx.capture.graph.call(function, args, kwargs)
        if isinstance(args[0], ObjectValue):
            return args[0].call_method(tx, method, args[1:], {})
        return fold(tx, function, args, kwargs)

    return handler


HANDLERS.update(
    {
        abs: _special_or_fold(abs, "__abs__"),
        round: _special_or_fold(round, "__round__"),
        reversed: lambda tx, a, k: make_tool(tx, reversed, a, k),
        divmod: _special_or_fold(divmod, "__divmod__"),
        math.ceil: _special_or_fold(math.ceil, "__ceil__"),
        math.floor: _special_or_fold(math.floor, "__floor__"),
    }
)


@handles(pow)
def _pow(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return tx.binary("**", args[0], args[1]) if len(args) == 2 else fold(tx, pow, args, kwargs)


@handles(bool)
def _bool(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(tx.truth(args[0]) if args else False)


def _number(cls: type, method: str) -> Handler:
    def handler(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args and (isinstance(args[0], (TensorValue, ObjectValue)) or (cls is int and isinstance(args[0], SizeValue) and len(args) == 1)):
            return args[0].call_method(tx, method, [], {})
        return fold(tx, cls, args, kwargs)

    return handler


HANDLERS[operator.truth] = HANDLERS[bool]
HANDLERS.update({int: _number(int, "__int__"), float: _number(float, "__float__"), complex: _number(complex, "__complex__")})


@handles(slice)
def _slice(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    parts = [NONE, args[0], NONE] if len(args) == 1 else [*args, NONE][:3]
    return ConstantValue(slice(*tx.constants(parts))) if all(p.is_constant() for p in parts) else SliceValue(list(parts))
