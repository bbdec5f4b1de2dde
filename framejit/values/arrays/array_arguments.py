"""The table of what numpy's functions are in graphs, and what their handlers share: arguments by name, results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from framejit.fakes.elementwise_strides import contiguous
from framejit.values.arrays.array_memory import torch_dtype
from framejit.values.arrays.ndarray import ArrayValue, NumberValue, NumpyValue, refused
from framejit.values.arrays.ufuncs import checked_result
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue, is_none
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


Handler = Callable[["Frame", list[Value], dict[str, Value]], Value]
FUNCTIONS: Final[dict[Any, Handler]] = {}
"""What each function of numpy does in a graph."""
_NO_VALUE: Final = np._NoValue


def registered(*functions: Any) -> Callable[[Handler], Handler]:
    """A decorator that enters a handler for these functions of numpy."""

    def register(handler: Handler) -> Handler:
        FUNCTIONS.update(dict.fromkeys(functions, handler))
        return handler

    return register


def bound(what: str, names: str, args: Sequence[Value], kwargs: dict[str, Value]) -> dict[str, Value]:
    """The arguments by name, of which those given as None, or as numpy's own mark for nothing, are left out."""
    order = names.split()
    if len(args) > len(order) or not set(kwargs) <= set(order[len(args) :]):
        raise refused(f"{what} with other arguments than it is known with")
    given = dict(zip(order, args)) | kwargs
    return {
        name: value
        for name, value in given.items()
        if not is_none(value) and not (value.is_constant() and value.constant() is _NO_VALUE)
    }


def dtype_named(value: Value) -> np.dtype[Any]:
    """The dtype that an argument names."""
    if not value.is_constant():
        raise refused(f"{value.describe()} as a dtype")
    named = value.constant()
    known = (
        isinstance(named, (np.dtype, str))
        or named in (bool, int, float)
        or (isinstance(named, type) and issubclass(named, np.generic))
    )
    try:
        dtype = np.dtype(named) if known else None
    except TypeError:
        dtype = None
    if dtype is None or torch_dtype(dtype) is None:
        raise refused(f"{value.describe()} as a dtype")
    return dtype


def array_of(frame: Frame, value: Value, what: str) -> NumpyValue:
    """The array or number of numpy that an argument is. Of anything else `what` breaks the graph."""
    value = realize(frame, value)
    if not isinstance(value, NumpyValue):
        raise refused(f"{what} of {value.describe()}")
    return value


def call_torch(frame: Frame, function: Any, *args: Any, is_method: bool = False) -> TensorValue:
    """The tensor that a function, or a method by its name, of torch gives for values and constants."""
    made = frame.capture.graph.call(
        function, [a if isinstance(a, Value) else ConstantValue(a) for a in args], is_method=is_method
    )
    assert isinstance(made, TensorValue)
    return made


def copy_of(frame: Frame, tensor: TensorValue) -> TensorValue:
    return call_torch(frame, "clone", tensor, is_method=True)


def result(frame: Frame, tensor: TensorValue, dtype: np.dtype[Any], name: str) -> Value:
    """The array that a function of this name returns; one without dimensions is a number."""
    tensor = checked_result(frame, tensor, dtype, tuple(contiguous(tensor.fake.shape)), name)
    return ArrayValue(tensor) if tensor.fake.dim() else NumberValue(tensor)


def as_tuple(axis: Any) -> tuple[Any, ...]:
    return axis if type(axis) is tuple else (axis,)


def axes_of(given: dict[str, Value], array: NumpyValue, what: str) -> list[int] | None:
    """The dimensions to reduce, as positive numbers; None for all."""
    if "axis" not in given:
        return None
    axis = given["axis"].constant()
    axes, dims = as_tuple(axis), array.fake.dim()
    if (
        not all(type(n) is int and -dims <= n < dims for n in axes)
        or len({n % dims for n in axes}) != len(axes)
        or not axes
    ):
        raise refused(f"{what} over axis {axis}")
    return [n % dims for n in axes]


def ints_of(frame: Frame, values: list[Value]) -> tuple[int, ...]:
    """Numbers given one by one, or as a tuple or list."""
    if len(values) == 1 and isinstance(values[0], (TupleValue, ListValue)):
        values = list(frame.iterate(values[0]))
    found = frame.constants(values)
    if len(found) == 1 and type(found[0]) is tuple:
        found = list(found[0])
    if not all(type(n) is int for n in found):
        raise refused("sizes or axes that are no ints")
    return tuple(found)
