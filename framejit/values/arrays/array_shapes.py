"""Numpy's functions of shapes: views that transpose, reshape or add dimensions, and arrays that are joined."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from framejit.values.arrays.array_arguments import (
    FUNCTIONS,
    array_of,
    axes_of,
    bound,
    call_torch,
    ints_of,
    registered,
    result,
)
from framejit.values.arrays.array_memory import torch_dtype
from framejit.values.arrays.ndarray import METHODS, VIEWS, ArrayValue, NumpyValue, refused
from framejit.values.arrays.ufuncs import c_ordered, cast
from framejit.values.base import Value, deep_realize
from framejit.values.constant import ConstantValue, is_none
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


def _view(frame: Frame, array: ArrayValue, tensor: TensorValue, step: Callable[[Any], Any]) -> Value:
    if tensor is array.tensor:
        tensor = call_torch(frame, "view_as", tensor, tensor, is_method=True)
    return array.view(tensor, step)


def _transposed(frame: Frame, array: NumpyValue, axes: tuple[int, ...] | None) -> Value:
    if not isinstance(array, ArrayValue):
        return array
    dims = array.fake.dim()
    order = tuple(reversed(range(dims))) if axes is None else axes
    if not all(type(n) is int and -dims <= n < dims for n in order) or sorted(n % dims for n in order) != list(
        range(dims)
    ):
        raise refused("axes that are no order of an array's dimensions")
    tensor = call_torch(frame, torch.permute, array.tensor, tuple(order))
    return _view(frame, array, tensor, operator.methodcaller("transpose", order))


VIEWS["T"] = lambda frame, array: _transposed(frame, array, None)


@registered(np.transpose)
def _np_transpose(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = bound("np.transpose()", "a axes", args, kwargs)
    axes = ints_of(frame, [given["axes"]]) if "axes" in given else None
    return _transposed(frame, array_of(frame, given["a"], "np.transpose()"), axes)


def _method_transpose(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if kwargs:
        raise refused("transpose() with names")
    rest = [value for value in args[1:] if not is_none(value)]
    return _transposed(frame, array_of(frame, args[0], "transpose()"), ints_of(frame, rest) if rest else None)


def _swapped(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = bound("np.swapaxes()", "a axis1 axis2", args, kwargs)
    array = array_of(frame, given["a"], "np.swapaxes()")
    dims = array.fake.dim()
    one, two = (given[name].constant() for name in ("axis1", "axis2"))
    if not isinstance(array, ArrayValue) or not all(type(n) is int and -dims <= n < dims for n in (one, two)):
        raise refused("np.swapaxes() of these axes")
    tensor = call_torch(frame, torch.transpose, array.tensor, one, two)
    return _view(frame, array, tensor, operator.methodcaller("swapaxes", one, two))


FUNCTIONS[np.swapaxes] = METHODS["swapaxes"] = _swapped
METHODS["transpose"] = _method_transpose


def _reshaped(frame: Frame, array: NumpyValue, shape: tuple[int, ...]) -> Value:
    if not isinstance(array, ArrayValue) or not array.fake.is_contiguous():
        raise refused(f"reshape() of {array.describe()}, which may have to be copied")
    if shape.count(-1) > 1 or any(n < -1 or not n for n in shape):
        raise refused(f"reshape() to {shape}")
    tensor = call_torch(frame, "view", array.tensor, shape, is_method=True)
    return _view(frame, array, tensor, operator.methodcaller("reshape", shape))


@registered(np.reshape)
def _np_reshape(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = bound("np.reshape()", "a shape", args, kwargs)
    return _reshaped(frame, array_of(frame, given["a"], "np.reshape()"), ints_of(frame, [given["shape"]]))


def _method_reshape(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if kwargs or len(args) < 2:
        raise refused("reshape() with names")
    return _reshaped(frame, array_of(frame, args[0], "reshape()"), ints_of(frame, args[1:]))


METHODS["reshape"] = _method_reshape


def _ravel(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    array = array_of(frame, bound("np.ravel()", "a", args, kwargs)["a"], "np.ravel()")
    if not isinstance(array, ArrayValue) or not array.fake.is_contiguous():
        raise refused(f"np.ravel() of {array.describe()}, which may have to be copied")
    return _view(
        frame, array, call_torch(frame, "view", array.tensor, (-1,), is_method=True), operator.methodcaller("ravel")
    )


FUNCTIONS[np.ravel] = METHODS["ravel"] = _ravel


def _flatten(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    array = array_of(frame, bound("flatten()", "a", args, kwargs)["a"], "flatten()")
    if not isinstance(array, ArrayValue):
        raise refused(f"flatten() of {array.describe()}")
    return ArrayValue(
        call_torch(frame, "reshape", call_torch(frame, "clone", array.tensor, is_method=True), (-1,), is_method=True)
    )


METHODS["flatten"] = _flatten


def _squeezed(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = bound("np.squeeze()", "a axis", args, kwargs)
    array = array_of(frame, given["a"], "np.squeeze()")
    axes = axes_of(given, array, "np.squeeze()")
    if not isinstance(array, ArrayValue) or axes is not None and any(array.fake.shape[n] != 1 for n in axes):
        raise refused("np.squeeze() of these axes")
    squeezed = [] if axes is None else [ListValue([ConstantValue(n) for n in axes])]
    tensor = call_torch(frame, torch.squeeze, array.tensor, *squeezed)
    return _view(frame, array, tensor, operator.methodcaller("squeeze", None if axes is None else tuple(axes)))


FUNCTIONS[np.squeeze] = METHODS["squeeze"] = _squeezed


@registered(np.expand_dims)
def _expanded(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = bound("np.expand_dims()", "a axis", args, kwargs)
    array, axis = array_of(frame, given["a"], "np.expand_dims()"), given["axis"].constant()
    if (
        not isinstance(array, ArrayValue)
        or type(axis) is not int
        or not -array.fake.dim() - 1 <= axis <= array.fake.dim()
    ):
        raise refused("np.expand_dims() of these axes")
    return _view(frame, array, call_torch(frame, torch.unsqueeze, array.tensor, axis), _ExpandDims(axis))


class _ExpandDims:
    def __init__(self, axis: int) -> None:
        self.axis = axis

    def __call__(self, array: Any) -> Any:
        return np.expand_dims(array, self.axis)


def _arrays_in(frame: Frame, value: Value, what: str) -> list[ArrayValue]:
    items = deep_realize(frame, list(frame.iterate(value))) if isinstance(value, (ListValue, TupleValue)) else []
    if not items or not all(
        isinstance(item, ArrayValue) and item.fake.dim() and c_ordered(item.fake) for item in items
    ):
        raise refused(f"{what} of {value.describe()}")
    return items  # type: ignore[return-value]


def _joined(name: str, function: Any) -> None:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = bound(f"np.{name}()", "arrays axis" if name in ("concatenate", "stack") else "arrays", args, kwargs)
        arrays = _arrays_in(frame, given["arrays"], f"np.{name}()")
        common = np.result_type(*(array.dtype for array in arrays))
        if torch_dtype(common) is None:
            raise refused(f"np.{name}() in {common}")
        tensors = ListValue([cast(frame, array.tensor, common) for array in arrays])
        axis = given["axis"].constant() if "axis" in given else 0
        if type(axis) is not int:
            raise refused(f"np.{name}() over {axis}")
        made = (
            call_torch(frame, function, tensors, axis)
            if name in ("concatenate", "stack")
            else call_torch(frame, function, tensors)
        )
        return result(frame, made, common, name)

    FUNCTIONS[getattr(np, name)] = handler


_joined("concatenate", torch.cat)
_joined("stack", torch.stack)
_joined("vstack", torch.vstack)
_joined("hstack", torch.hstack)
