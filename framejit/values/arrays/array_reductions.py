"""Numpy's functions along dimensions: sums and their like, running ones, places of extremes, sorting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from framejit.values.arrays.array_arguments import (
    FUNCTIONS,
    array_of,
    axes_of,
    bound,
    call_torch,
    dtype_named,
    registered,
    result,
)
from framejit.values.arrays.array_memory import torch_dtype
from framejit.values.arrays.float_errors import check_finite
from framejit.values.arrays.ndarray import METHODS, ArrayValue, refused
from framejit.values.arrays.ufuncs import c_ordered, cast
from framejit.values.base import Value
from framejit.values.constant import ConstantValue, is_none
from framejit.values.containers.lists import ListValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


def _keeps(given: dict[str, Value]) -> bool:
    return bool(given["keepdims"].constant()) if "keepdims" in given else False


def _reduced(frame: Frame, name: str, function: Any, given: dict[str, Value]) -> Value:
    array = array_of(frame, given["a"], f"np.{name}()")
    if "out" in given or not c_ordered(array.fake):
        raise refused(f"np.{name}() into another array, or of one that lies in another order,")
    dtype = dtype_named(given["dtype"]) if "dtype" in given else _reduced_dtype(name, array.dtype)
    axes, keeps = axes_of(given, array, f"np.{name}()"), _keeps(given)
    if torch_dtype(dtype) is None:
        raise refused(f"np.{name}() in {dtype}")
    if name in ("mean", "var", "std") and dtype.kind != "f":
        raise refused(f"np.{name}() in {dtype}")
    ddof = given["ddof"].constant() if "ddof" in given else 0
    operand = array.tensor if name in ("any", "all") else cast(frame, array.tensor, dtype)
    every = list(range(array.fake.dim())) if axes is None else axes
    if not every:
        operand, every = call_torch(frame, "reshape", operand, (1,), is_method=True), [0]
        keeps = False
    count = 1
    for n in every:
        count *= int(operand.fake.shape[n])
    if type(ddof) is not int or count - ddof <= 0:
        raise refused(f"np.{name}() with ddof={ddof}")
    found: Value = function(frame, operand, every, keeps, ddof)
    assert isinstance(found, TensorValue)
    if name in ("sum", "prod", "mean", "var", "std"):
        check_finite(frame, found, (operand,))
    return result(frame, found, dtype, name)


def _reduced_dtype(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    if name in ("any", "all"):
        return np.dtype(bool)
    if name in ("sum", "prod", "cumsum", "cumprod") and dtype.kind in "bui":
        return np.result_type(dtype, np.uint64 if dtype.kind == "u" else np.int64)
    if name in ("mean", "var", "std") and dtype.kind in "bui":
        return np.dtype(float)
    return dtype


def _over(function: Any) -> Any:
    return lambda frame, tensor, axes, keeps, ddof: call_torch(
        frame, function, tensor, ListValue([ConstantValue(n) for n in axes]), keeps
    )


def _spread(function: Any) -> Any:
    def reduce(frame: Frame, tensor: TensorValue, axes: list[int], keeps: bool, ddof: int) -> Value:
        dims = ListValue([ConstantValue(n) for n in axes])
        return frame.capture.graph.call(
            function, [tensor, dims], {"correction": ConstantValue(ddof), "keepdim": ConstantValue(keeps)}
        )

    return reduce


def _one_by_one(function: Any) -> Any:
    """For a function of torch that takes one dimension at a time."""

    def reduce(frame: Frame, tensor: TensorValue, axes: list[int], keeps: bool, ddof: int) -> Value:
        for axis in sorted(axes, reverse=True):
            tensor = call_torch(frame, function, tensor, axis, keeps)
        return tensor

    return reduce


def _both(name: str, functions: tuple[Any, ...], reduce: Any, names: str) -> None:
    """A function of numpy and the method of the same name."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return _reduced(frame, name, reduce, bound(f"np.{name}()", names, args, kwargs))

    FUNCTIONS.update(dict.fromkeys(functions, handler))
    METHODS[name] = handler


_both("sum", (np.sum,), _over(torch.sum), "a axis dtype out keepdims")
_both("mean", (np.mean,), _over(torch.mean), "a axis dtype out keepdims")
_both("prod", (np.prod,), _one_by_one(torch.prod), "a axis dtype out keepdims")
_both("max", (np.max, np.amax), _over(torch.amax), "a axis out keepdims")
_both("min", (np.min, np.amin), _over(torch.amin), "a axis out keepdims")
_both("any", (np.any,), _one_by_one(torch.any), "a axis out keepdims")
_both("all", (np.all,), _one_by_one(torch.all), "a axis out keepdims")
_both("var", (np.var,), _spread(torch.var), "a axis dtype out ddof keepdims")
_both("std", (np.std,), _spread(torch.std), "a axis dtype out ddof keepdims")


def _place(name: str, function: Any) -> None:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = bound(f"np.{name}()", "a axis out", args, kwargs)
        array = array_of(frame, given["a"], f"np.{name}()")
        if "out" in given or not c_ordered(array.fake) or not array.fake.dim() or array.dtype.kind == "b":
            raise refused(f"np.{name}() of {array.describe()}")
        axes = axes_of(given, array, f"np.{name}()")
        if axes is not None and len(axes) != 1:
            raise refused(f"np.{name}() over several axes")
        places = call_torch(frame, function, array.tensor, None if axes is None else axes[0])
        return result(frame, places, np.dtype(np.int64), name)

    FUNCTIONS[getattr(np, name)] = METHODS[name] = handler


_place("argmax", torch.argmax)
_place("argmin", torch.argmin)


def _running(name: str, function: Any) -> None:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = bound(f"np.{name}()", "a axis dtype out", args, kwargs)
        array = array_of(frame, given["a"], f"np.{name}()")
        dtype = dtype_named(given["dtype"]) if "dtype" in given else _reduced_dtype(name, array.dtype)
        axes = axes_of(given, array, f"np.{name}()")
        if (
            "out" in given
            or not c_ordered(array.fake)
            or not array.fake.dim()
            or torch_dtype(dtype) is None
            or axes is not None
            and len(axes) != 1
        ):
            raise refused(f"np.{name}() of {array.describe()}")
        tensor = cast(frame, array.tensor, dtype)
        if axes is None:
            tensor, axes = call_torch(frame, "reshape", tensor, (-1,), is_method=True), [0]
        found = call_torch(frame, function, tensor, axes[0])
        check_finite(frame, found, (tensor,))
        return result(frame, found, dtype, name)

    FUNCTIONS[getattr(np, name)] = METHODS[name] = handler


_running("cumsum", torch.cumsum)
_running("cumprod", torch.cumprod)


@registered(np.sort)
def _sorted(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = bound("np.sort()", "a axis", args, kwargs)
    array = array_of(frame, given["a"], "np.sort()")
    if (
        not isinstance(array, ArrayValue)
        or not array.fake.dim()
        or not c_ordered(array.fake)
        or len(args) > 1
        and is_none(args[1])
    ):
        raise refused(f"np.sort() of {array.describe()}")
    axes = axes_of(given, array, "np.sort()")
    if "axis" in kwargs and axes is None or axes is not None and len(axes) != 1:
        raise refused("np.sort() of all elements at once")
    pair = frame.capture.graph.call(
        torch.sort,
        [array.tensor],
        {"dim": ConstantValue(-1 if axes is None else axes[0]), "stable": ConstantValue(True)},
    )
    values = next(iter(frame.iterate(pair)))
    assert isinstance(values, TensorValue)
    return result(frame, values, array.dtype, "sort")
