"""Calls of numpy's functions and operators in graphs. What no handler is known for breaks the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from framejit import _native as native
from framejit.values.arrays import (  # they register what they know  # noqa: F401
    array_choices,
    array_creation,
    array_methods,
    array_reductions,
    array_shapes,
)
from framejit.values.arrays.array_arguments import FUNCTIONS, array_of, bound, call_torch, registered, result
from framejit.values.arrays.array_memory import torch_dtype
from framejit.values.arrays.changing_numbers import of_changing_numbers, on_changing_numbers
from framejit.values.arrays.float_errors import check_finite
from framejit.values.arrays.known_numbers import KNOWN_BY_NUMBERS, of_known_arrays, of_known_numbers
from framejit.values.arrays.ndarray import METHODS, ArrayValue, NumpyValue, refused, tensor_from
from framejit.values.arrays.ufuncs import ELEMENTWISE, OPERATORS, apply, cast, plain_operand
from framejit.values.base import Value, deep_realize
from framejit.values.constant import NONE, is_none
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import HANDLERS
from framejit.values.objects.functions.c_function import CFunctionValue
from framejit.values.wrap import from_python, makes, wraps

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Frame


class NumpyFunctionValue(CFunctionValue):
    """A function of numpy that is written in C, or dispatched by it."""

    def describe(self) -> str:
        return f"numpy function {self.function.__name__}"

    def proxy(self) -> Any:
        raise refused(f"a tensor operation with {self.describe()}")

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in ("__name__", "__qualname__", "__module__", "__doc__", "nin", "nout", "nargs"):
            return from_python(getattr(self.function, name))
        raise refused(f"attribute {name!r} of {self.describe()}")

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call_numpy(frame, self.function, args, kwargs)


@wraps(np.ufunc, type(np.sum))
def _existing_function(capture: Capture, obj: Any, source: Source) -> Value:
    """A function of numpy that is no Python function."""
    capture.add_guard(source, native.C_ID, obj)
    return NumpyFunctionValue(obj, source)


@wraps(type(np.zeros), first=True)
def _existing_c_function(capture: Capture, obj: Any, source: Source) -> Value | None:
    return _existing_function(capture, obj, source) if _is_numpys(obj) else None


makes(np.ufunc, type(np.sum))(NumpyFunctionValue)


@makes(type(np.zeros), first=True)
def _made_c_function(obj: Any) -> Value | None:
    return NumpyFunctionValue(obj) if _is_numpys(obj) else None


def _is_numpys(obj: Any) -> bool:
    return str(obj.__module__).partition(".")[0] == "numpy"


def call_numpy(frame: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The result of a function of numpy."""
    for value in args:
        if isinstance(value, ListValue):
            value.refuse_if_open(frame, f"np.{function.__name__}")
    args, kwargs = deep_realize(frame, args), dict(zip(kwargs, deep_realize(frame, list(kwargs.values()))))
    known = of_changing_numbers(frame, function, args, kwargs) or of_known_numbers(frame, function, args, kwargs)
    if known is not None:
        return known
    handler = FUNCTIONS.get(function)
    if handler is not None:
        return handler(frame, args, kwargs)
    known = of_known_arrays(frame, function, args, kwargs)
    if known is not None:
        return known
    if function not in ELEMENTWISE:
        raise refused(f"np.{function.__name__}()")
    out = kwargs.pop("out", NONE)
    if len(args) == function.nin + 1:
        *args, out = args
    if isinstance(out, TupleValue) and len(out.items) == 1:
        out = out.items[0]
    if kwargs or not (is_none(out) or isinstance(out, ArrayValue)):
        raise refused(f"np.{function.__name__}() with {', '.join(kwargs) or 'out'}")
    return apply(frame, function, args, out if isinstance(out, ArrayValue) else None)


@registered(np.dot)
def _dot(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _multiplied(frame, args, kwargs, 2)  # of more dimensions it makes something else


@registered(np.matmul)
def _product(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _multiplied(frame, args, kwargs, 64)


def _multiplied(frame: Frame, args: list[Value], kwargs: dict[str, Value], most_dims: int) -> Value:
    given = bound("np.dot()", "a b", args, kwargs)
    one, two = (array_of(frame, given[name], "a matrix product") for name in ("a", "b"))
    dims = one.fake.dim(), two.fake.dim()
    common = np.result_type(one.dtype, two.dtype)
    if not all(0 < n <= most_dims for n in dims) or torch_dtype(common) is None or common.kind == "b":
        raise refused("a matrix product of these arrays")
    made = call_torch(frame, torch.matmul, cast(frame, one.tensor, common), cast(frame, two.tensor, common))
    check_finite(frame, made)
    return result(frame, made, common, "matmul")


METHODS["dot"] = _dot


# ---- operators ---------------------------------------------------------------------------------------


def operate(frame: Frame, function: Callable[..., Any], operands: Sequence[Value], in_place: bool = False) -> Value:
    """An operator one of whose operands is an array or number of numpy."""
    followed = on_changing_numbers(frame, function, operands)
    if followed is not None:
        return followed
    ufunc = OPERATORS.get(function)
    if ufunc is None or any(not isinstance(value, NumpyValue) and plain_operand(value) is None for value in operands):
        raise refused(
            f"{getattr(function, '__name__', function)} of {' and '.join(value.describe() for value in operands)}"
        )
    known = of_known_numbers(frame, ufunc, operands, {})
    if known is not None:
        return known
    target = operands[0]
    if in_place and isinstance(target, ArrayValue):
        return apply(frame, ufunc, operands, target)
    if ufunc is np.matmul:
        return _product(frame, list(operands), {})
    if ufunc is np.power and isinstance(target, NumpyValue):
        number = plain_operand(operands[1])
        if type(number) in (int, float) and isinstance(target, ArrayValue):  # the methods of arrays take a shorter way
            if number == 2:
                return apply(frame, np.square, [target])
            if number == 0.5 and target.dtype.kind == "f":
                return apply(frame, np.sqrt, [target])
            if number == -1 and target.dtype.kind == "f":
                return apply(frame, np.reciprocal, [target])
    return apply(frame, ufunc, operands)


# ---- from tensors, and back --------------------------------------------------------------------------


def no_default_device(what: str) -> None:
    if torch._C._len_torch_function_stack():
        raise refused(f"{what} under a default device")


def _from_numpy(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """torch.from_numpy(array), which shares memory."""
    if len(args) != 1 or kwargs or not isinstance(args[0], ArrayValue):
        if any(isinstance(value, NumpyValue) for value in (*args, *kwargs.values())):
            raise refused("making a tensor of an array with other arguments")
        return None
    no_default_device("making a tensor of an array")
    return tensor_from(frame, args[0])


HANDLERS[torch.from_numpy] = _from_numpy
for _known in FUNCTIONS.keys() | KNOWN_BY_NUMBERS:
    if type(_known) is FunctionType:
        HANDLERS[_known] = partial(
            lambda function, frame, args, kwargs: call_numpy(frame, function, args, kwargs), _known
        )
