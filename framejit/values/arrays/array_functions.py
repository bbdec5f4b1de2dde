"""Numpy's functions and the methods of arrays, in graphs. What is not here breaks the graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from framejit import _native as native
from framejit.fakes.elementwise_strides import contiguous
from framejit.signals import NotConstant, Unsupported
from framejit.values.arrays import array_indexing
from framejit.values.arrays.array_memory import NUMBERS, torch_dtype
from framejit.values.arrays.constant_arrays import constant_array
from framejit.values.arrays.float_errors import check_finite
from framejit.values.arrays.ndarray import (
    METHODS,
    VIEWS,
    ArrayValue,
    NumberValue,
    NumpyValue,
    array_over,
    refused,
    tensor_from,
)
from framejit.values.arrays.ufuncs import (
    ELEMENTWISE,
    OPERATORS,
    apply,
    c_ordered,
    cast,
    checked_result,
    constant_number,
    full,
    number_as,
    plain_operand,
)
from framejit.values.base import Value, deep_realize, realize
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.sequence import ListValue, TupleValue
from framejit.values.folding import plain as plain_copy
from framejit.values.handlers import HANDLERS
from framejit.values.objects.models import call_model
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import from_python, makes, wraps

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Codegen, Frame

Handler = Callable[["Frame", list[Value], dict[str, Value]], Value]
FUNCTIONS: Final[dict[Any, Handler]] = {}
"""Methods of arrays and numbers, called with their owner first."""
VIEWS["T"] = lambda frame, array: _transposed(frame, array, None)
"""Attributes that are views."""
_NO_VALUE: Final = np._NoValue


def _function(*functions: Any) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        FUNCTIONS.update(dict.fromkeys(functions, handler))
        return handler

    return register


def _bound(what: str, names: str, args: Sequence[Value], kwargs: dict[str, Value]) -> dict[str, Value]:
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


def _dtype(value: Value) -> np.dtype[Any]:
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


def _array(frame: Frame, value: Value, what: str) -> NumpyValue:
    value = realize(frame, value)
    if not isinstance(value, NumpyValue):
        raise refused(f"{what} of {value.describe()}")
    return value


def _limits(cls: type, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`np.finfo(dtype)`, of which numpy keeps one for each dtype."""
    if len(args) != 1 or kwargs:
        raise refused(f"np.{cls.__name__}() with other arguments than a dtype")
    return from_python(cls(_dtype(args[0])))


HANDLERS[np.finfo] = partial(_limits, np.finfo)


def _call(frame: Frame, function: Any, *args: Any, is_method: bool = False) -> TensorValue:
    made = frame.capture.graph.call(
        function, [a if isinstance(a, Value) else ConstantValue(a) for a in args], is_method=is_method
    )
    assert isinstance(made, TensorValue)
    return made


def _copy(frame: Frame, tensor: TensorValue) -> TensorValue:
    return _call(frame, "clone", tensor, is_method=True)


def _made(frame: Frame, tensor: TensorValue, dtype: np.dtype[Any], name: str) -> Value:
    """A result without dimensions is a number."""
    tensor = checked_result(frame, tensor, dtype, tuple(contiguous(tensor.fake.shape)), name)
    return ArrayValue(tensor) if tensor.fake.dim() else NumberValue(tensor)


# ---- arrays from constants, and from other things -----------------------------------------------


def _from_constants(function: Any) -> Handler:
    """A function of numbers alone: numpy's answer is taken, and made anew by each call."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if any(name in kwargs for name in ("like", "device", "out")):
            raise refused(f"np.{function.__name__}() with {', '.join(kwargs)}")
        try:
            given = [plain_copy(frame, a) for a in args]
            named = {name: plain_copy(frame, value) for name, value in kwargs.items()}
        except NotConstant:
            raise refused(f"np.{function.__name__}() of what is not known") from None
        _check_plain((*given, *named.values()), function)
        try:
            return constant_array(frame, function(*given, **named))
        except (TypeError, ValueError, MemoryError, OverflowError):
            raise refused(f"np.{function.__name__}() of these arguments") from None

    return handler


def _check_plain(values: Sequence[Any], function: Any) -> None:
    """Numbers, text, dtypes and lists of these: nothing whose own methods numpy would call."""
    for value in values:
        if type(value) in (list, tuple):
            _check_plain(value, function)
        elif not (
            type(value) in (int, float, bool, str, type(None)) or isinstance(value, np.dtype) or _is_plain_class(value)
        ):
            raise refused(f"np.{function.__name__}() of a {type(value).__name__}")


def _is_plain_class(value: Any) -> bool:
    return isinstance(value, type) and value.__module__ in ("builtins", "numpy")


for _maker in (np.arange, np.eye, np.identity, np.tri):
    FUNCTIONS[_maker] = _from_constants(_maker)


def _filled(function: Any) -> Handler:
    """np.zeros and its like. A large one is not made now."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        names = "shape fill_value dtype order" if function is np.full else "shape dtype order"
        given = _bound(f"np.{function.__name__}()", names, args, kwargs)
        if "order" in given and given["order"].constant() != "C" or "shape" not in given:
            raise refused(f"np.{function.__name__}() in another order")
        shape = given["shape"]
        sizes = (
            frame.constants(frame.iterate(shape))
            if isinstance(shape, (TupleValue, ListValue))
            else list(_as_tuple(shape.constant()))
        )
        if not all(type(n) is int and n > 0 for n in sizes):
            raise refused(f"np.{function.__name__}() of an empty array")
        number = {np.zeros: 0, np.ones: 1, np.empty: 0}.get(function)
        if number is None:
            number = plain_operand(given["fill_value"])
            if number is None:
                raise refused("np.full() of what is no number")
        dtype = (
            _dtype(given["dtype"])
            if "dtype" in given
            else np.asarray(number).dtype
            if function is np.full
            else np.dtype(float)
        )
        return ArrayValue(full(frame, tuple(sizes), number_as(number, dtype), dtype))

    return handler


for _filler in (np.zeros, np.ones, np.empty, np.full):
    FUNCTIONS[_filler] = _filled(_filler)


def _filled_like(function: Any) -> Handler:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = _bound(
            f"np.{function.__name__}()", "a fill_value dtype" if function is np.full_like else "a dtype", args, kwargs
        )
        array = _array(frame, given["a"], f"np.{function.__name__}()")
        if not isinstance(array, ArrayValue) or not c_ordered(array.fake):
            raise refused(f"np.{function.__name__}() of {array.describe()}")
        number = {np.zeros_like: 0, np.ones_like: 1, np.empty_like: 0}.get(function)
        number = plain_operand(given["fill_value"]) if number is None else number
        if number is None:
            raise refused("np.full_like() of what is no number")
        dtype = _dtype(given["dtype"]) if "dtype" in given else array.dtype
        if type(number) is float and dtype.kind in "uib":
            raise refused("np.full_like() of a float as an integer")
        return ArrayValue(full(frame, tuple(int(n) for n in array.fake.shape), number_as(number, dtype), dtype))

    return handler


for _liker in (np.zeros_like, np.ones_like, np.empty_like, np.full_like):
    FUNCTIONS[_liker] = _filled_like(_liker)


def _converted(frame: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name = f"np.{function.__name__}()"
    given = _bound(name, "a dtype", args, kwargs)
    value = given["a"]
    dtype = _dtype(given["dtype"]) if "dtype" in given else None
    if isinstance(value, TensorValue):
        if function is np.asarray and dtype is None:
            return array_over(frame, value)
        raise refused(f"{name} of a tensor")  # which numpy warns of, as Tensor.__array__ does not know what a copy is
    if isinstance(value, ArrayValue):
        if function is np.asarray and dtype in (None, value.dtype) and (dtype is None or dtype is value.dtype):
            return value
        if not c_ordered(value.fake):
            raise refused(f"{name} of an array that lies in another order")
        tensor = cast(frame, value.tensor, dtype or value.dtype)
        return ArrayValue(
            checked_result(
                frame, _copy(frame, tensor), dtype or value.dtype, tuple(contiguous(value.fake.shape)),
                function.__name__,
            )
        )
    if isinstance(value, NumberValue):
        return ArrayValue(_copy(frame, cast(frame, value.tensor, dtype or value.dtype)))
    if isinstance(value, (ListValue, TupleValue)) and value.cls in (list, tuple):
        items = deep_realize(frame, value.items)
        if items and all(isinstance(item, NumpyValue) for item in items):
            return _of_arrays(frame, items, dtype, name)  # type: ignore[arg-type]
    return _from_constants(function)(frame, args, kwargs)


def _of_arrays(frame: Frame, items: list[NumpyValue], dtype: np.dtype[Any] | None, name: str) -> Value:
    shape = items[0].fake.shape
    if any(item.fake.shape != shape or not c_ordered(item.fake) for item in items):
        raise refused(f"{name} of arrays of different shapes")
    common = dtype or np.result_type(*(item.dtype for item in items))
    if torch_dtype(common) is None:
        raise refused(f"{name} in {common}")
    tensors: list[Value] = [cast(frame, item.tensor, common) for item in items]
    made = _call(frame, torch.stack, ListValue(tensors))
    return ArrayValue(checked_result(frame, made, common, tuple(contiguous(made.fake.shape)), "array"))


for _converter in (np.asarray, np.array):
    FUNCTIONS[_converter] = partial(
        lambda function, frame, args, kwargs: _converted(frame, function, args, kwargs), _converter
    )


def call_number_class(frame: Frame, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`np.float32(x)` and its like."""
    if len(args) > 1 or kwargs:
        raise refused(f"np.{cls.__name__}() with more than one argument")
    dtype = np.dtype(cls)
    value: Value = args[0] if args else ConstantValue(0)
    if isinstance(value, NumpyValue):
        if isinstance(value, ArrayValue) and value.fake.dim():
            raise refused(f"np.{cls.__name__}() of an array")
        return NumberValue(_copy(frame, cast(frame, value.tensor, dtype)))
    number = plain_operand(value)
    if number is None or type(number) is float and dtype.kind in "ui":
        raise refused(f"np.{cls.__name__}() of {value.describe()}")
    return constant_number(frame, dtype.type(number_as(number, dtype)))


# ---- reductions -------------------------------------------------------------------------------------


def _as_tuple(axis: Any) -> tuple[Any, ...]:
    return axis if type(axis) is tuple else (axis,)


def _axes(given: dict[str, Value], array: NumpyValue, what: str) -> list[int] | None:
    """The dimensions to reduce, as positive numbers; None for all."""
    if "axis" not in given:
        return None
    axis = given["axis"].constant()
    axes, dims = _as_tuple(axis), array.fake.dim()
    if (
        not all(type(n) is int and -dims <= n < dims for n in axes)
        or len({n % dims for n in axes}) != len(axes)
        or not axes
    ):
        raise refused(f"{what} over axis {axis}")
    return [n % dims for n in axes]


def _keeps(given: dict[str, Value]) -> bool:
    return bool(given["keepdims"].constant()) if "keepdims" in given else False


def _reduced(frame: Frame, name: str, function: Any, given: dict[str, Value]) -> Value:
    array = _array(frame, given["a"], f"np.{name}()")
    if "out" in given or not c_ordered(array.fake):
        raise refused(f"np.{name}() into another array, or of one that lies in another order,")
    dtype = _dtype(given["dtype"]) if "dtype" in given else _reduced_dtype(name, array.dtype)
    axes, keeps = _axes(given, array, f"np.{name}()"), _keeps(given)
    if torch_dtype(dtype) is None:
        raise refused(f"np.{name}() in {dtype}")
    if name in ("mean", "var", "std") and dtype.kind != "f":
        raise refused(f"np.{name}() in {dtype}")
    ddof = given["ddof"].constant() if "ddof" in given else 0
    operand = array.tensor if name in ("any", "all") else cast(frame, array.tensor, dtype)
    every = list(range(array.fake.dim())) if axes is None else axes
    if not every:
        operand, every = _call(frame, "reshape", operand, (1,), is_method=True), [0]
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
    return _made(frame, found, dtype, name)


def _reduced_dtype(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    if name in ("any", "all"):
        return np.dtype(bool)
    if name in ("sum", "prod", "cumsum", "cumprod") and dtype.kind in "bui":
        return np.result_type(dtype, np.uint64 if dtype.kind == "u" else np.int64)
    if name in ("mean", "var", "std") and dtype.kind in "bui":
        return np.dtype(float)
    return dtype


def _over(function: Any) -> Any:
    return lambda frame, tensor, axes, keeps, ddof: _call(
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
            tensor = _call(frame, function, tensor, axis, keeps)
        return tensor

    return reduce


def _both(name: str, functions: tuple[Any, ...], reduce: Any, names: str) -> None:
    """A function of numpy and the method of the same name."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return _reduced(frame, name, reduce, _bound(f"np.{name}()", names, args, kwargs))

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
        given = _bound(f"np.{name}()", "a axis out", args, kwargs)
        array = _array(frame, given["a"], f"np.{name}()")
        if "out" in given or not c_ordered(array.fake) or not array.fake.dim() or array.dtype.kind == "b":
            raise refused(f"np.{name}() of {array.describe()}")
        axes = _axes(given, array, f"np.{name}()")
        if axes is not None and len(axes) != 1:
            raise refused(f"np.{name}() over several axes")
        return _made(
            frame, _call(frame, function, array.tensor, None if axes is None else axes[0]), np.dtype(np.int64), name
        )

    FUNCTIONS[getattr(np, name)] = METHODS[name] = handler


_place("argmax", torch.argmax)
_place("argmin", torch.argmin)


def _running(name: str, function: Any) -> None:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = _bound(f"np.{name}()", "a axis dtype out", args, kwargs)
        array = _array(frame, given["a"], f"np.{name}()")
        dtype = _dtype(given["dtype"]) if "dtype" in given else _reduced_dtype(name, array.dtype)
        axes = _axes(given, array, f"np.{name}()")
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
            tensor, axes = _call(frame, "reshape", tensor, (-1,), is_method=True), [0]
        found = _call(frame, function, tensor, axes[0])
        check_finite(frame, found, (tensor,))
        return _made(frame, found, dtype, name)

    FUNCTIONS[getattr(np, name)] = METHODS[name] = handler


_running("cumsum", torch.cumsum)
_running("cumprod", torch.cumprod)


# ---- shapes ------------------------------------------------------------------------------------------


def _view(frame: Frame, array: ArrayValue, tensor: TensorValue, step: Callable[[Any], Any]) -> Value:
    if tensor is array.tensor:
        tensor = _call(frame, "view_as", tensor, tensor, is_method=True)
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
    return _view(
        frame, array, _call(frame, torch.permute, array.tensor, tuple(order)), operator.methodcaller("transpose", order)
    )


def _ints(frame: Frame, values: list[Value]) -> tuple[int, ...]:
    """Numbers given one by one, or as a tuple or list."""
    if len(values) == 1 and isinstance(values[0], (TupleValue, ListValue)):
        values = list(frame.iterate(values[0]))
    found = frame.constants(values)
    if len(found) == 1 and type(found[0]) is tuple:
        found = list(found[0])
    if not all(type(n) is int for n in found):
        raise refused("sizes or axes that are no ints")
    return tuple(found)


@_function(np.transpose)
def _np_transpose(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = _bound("np.transpose()", "a axes", args, kwargs)
    return _transposed(
        frame, _array(frame, given["a"], "np.transpose()"), _ints(frame, [given["axes"]]) if "axes" in given else None
    )


def _method_transpose(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if kwargs:
        raise refused("transpose() with names")
    rest = [value for value in args[1:] if not is_none(value)]
    return _transposed(frame, _array(frame, args[0], "transpose()"), _ints(frame, rest) if rest else None)


def _swapped(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = _bound("np.swapaxes()", "a axis1 axis2", args, kwargs)
    array = _array(frame, given["a"], "np.swapaxes()")
    dims = array.fake.dim()
    one, two = (given[name].constant() for name in ("axis1", "axis2"))
    if not isinstance(array, ArrayValue) or not all(type(n) is int and -dims <= n < dims for n in (one, two)):
        raise refused("np.swapaxes() of these axes")
    tensor = _call(frame, torch.transpose, array.tensor, one, two)
    return _view(frame, array, tensor, operator.methodcaller("swapaxes", one, two))


FUNCTIONS[np.swapaxes] = METHODS["swapaxes"] = _swapped
METHODS["transpose"] = _method_transpose


def _reshaped(frame: Frame, array: NumpyValue, shape: tuple[int, ...]) -> Value:
    if not isinstance(array, ArrayValue) or not array.fake.is_contiguous():
        raise refused(f"reshape() of {array.describe()}, which may have to be copied")
    if shape.count(-1) > 1 or any(n < -1 or not n for n in shape):
        raise refused(f"reshape() to {shape}")
    return _view(
        frame, array, _call(frame, "view", array.tensor, shape, is_method=True), operator.methodcaller("reshape", shape)
    )


@_function(np.reshape)
def _np_reshape(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = _bound("np.reshape()", "a shape", args, kwargs)
    return _reshaped(frame, _array(frame, given["a"], "np.reshape()"), _ints(frame, [given["shape"]]))


def _method_reshape(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if kwargs or len(args) < 2:
        raise refused("reshape() with names")
    return _reshaped(frame, _array(frame, args[0], "reshape()"), _ints(frame, args[1:]))


METHODS["reshape"] = _method_reshape


def _ravel(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    array = _array(frame, _bound("np.ravel()", "a", args, kwargs)["a"], "np.ravel()")
    if not isinstance(array, ArrayValue) or not array.fake.is_contiguous():
        raise refused(f"np.ravel() of {array.describe()}, which may have to be copied")
    return _view(
        frame, array, _call(frame, "view", array.tensor, (-1,), is_method=True), operator.methodcaller("ravel")
    )


FUNCTIONS[np.ravel] = METHODS["ravel"] = _ravel


def _flatten(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    array = _array(frame, _bound("flatten()", "a", args, kwargs)["a"], "flatten()")
    if not isinstance(array, ArrayValue):
        raise refused(f"flatten() of {array.describe()}")
    return ArrayValue(
        _call(frame, "reshape", _call(frame, "clone", array.tensor, is_method=True), (-1,), is_method=True)
    )


def _squeezed(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = _bound("np.squeeze()", "a axis", args, kwargs)
    array = _array(frame, given["a"], "np.squeeze()")
    axes = _axes(given, array, "np.squeeze()")
    if not isinstance(array, ArrayValue) or axes is not None and any(array.fake.shape[n] != 1 for n in axes):
        raise refused("np.squeeze() of these axes")
    squeezed = [] if axes is None else [ListValue([ConstantValue(n) for n in axes])]
    tensor = _call(frame, torch.squeeze, array.tensor, *squeezed)
    return _view(frame, array, tensor, operator.methodcaller("squeeze", None if axes is None else tuple(axes)))


FUNCTIONS[np.squeeze] = METHODS["squeeze"] = _squeezed


@_function(np.expand_dims)
def _expanded(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = _bound("np.expand_dims()", "a axis", args, kwargs)
    array, axis = _array(frame, given["a"], "np.expand_dims()"), given["axis"].constant()
    if (
        not isinstance(array, ArrayValue)
        or type(axis) is not int
        or not -array.fake.dim() - 1 <= axis <= array.fake.dim()
    ):
        raise refused("np.expand_dims() of these axes")
    return _view(frame, array, _call(frame, torch.unsqueeze, array.tensor, axis), _ExpandDims(axis))


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
        given = _bound(f"np.{name}()", "arrays axis" if name in ("concatenate", "stack") else "arrays", args, kwargs)
        arrays = _arrays_in(frame, given["arrays"], f"np.{name}()")
        common = np.result_type(*(array.dtype for array in arrays))
        if torch_dtype(common) is None:
            raise refused(f"np.{name}() in {common}")
        tensors = ListValue([cast(frame, array.tensor, common) for array in arrays])
        axis = given["axis"].constant() if "axis" in given else 0
        if type(axis) is not int:
            raise refused(f"np.{name}() over {axis}")
        made = (
            _call(frame, function, tensors, axis)
            if name in ("concatenate", "stack")
            else _call(frame, function, tensors)
        )
        return _made(frame, made, common, name)

    FUNCTIONS[getattr(np, name)] = handler


_joined("concatenate", torch.cat)
_joined("stack", torch.stack)
_joined("vstack", torch.vstack)
_joined("hstack", torch.hstack)


# ---- copies, choices, products -----------------------------------------------------------------------


def _copied(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    array = _array(frame, _bound("copy()", "a", args, kwargs)["a"], "copy()")
    if isinstance(array, NumberValue):
        raise refused("a copy of a number")
    if not c_ordered(array.fake):
        raise refused("a copy of an array that lies in another order")
    return ArrayValue(
        checked_result(frame, _copy(frame, array.tensor), array.dtype, tuple(contiguous(array.fake.shape)), "copy")
    )


FUNCTIONS[np.copy] = METHODS["copy"] = METHODS["__copy__"] = _copied


def _as_type(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = _bound("astype()", "a dtype", args, kwargs)
    array, dtype = _array(frame, given["a"], "astype()"), _dtype(given.get("dtype", NONE))
    if not c_ordered(array.fake):
        raise refused("astype() of an array that lies in another order")
    tensor = cast(frame, array.tensor, dtype)
    if tensor is array.tensor:
        tensor = _copy(frame, tensor)
    tensor = checked_result(frame, tensor, dtype, tuple(contiguous(array.fake.shape)), "astype")
    return ArrayValue(tensor) if isinstance(array, ArrayValue) else NumberValue(tensor)


METHODS["astype"] = _as_type
METHODS["flatten"] = _flatten


@_function(np.sort)
def _sorted(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = _bound("np.sort()", "a axis", args, kwargs)
    array = _array(frame, given["a"], "np.sort()")
    if (
        not isinstance(array, ArrayValue)
        or not array.fake.dim()
        or not c_ordered(array.fake)
        or len(args) > 1
        and is_none(args[1])
    ):
        raise refused(f"np.sort() of {array.describe()}")
    axes = _axes(given, array, "np.sort()")
    if "axis" in kwargs and axes is None or axes is not None and len(axes) != 1:
        raise refused("np.sort() of all elements at once")
    pair = frame.capture.graph.call(
        torch.sort,
        [array.tensor],
        {"dim": ConstantValue(-1 if axes is None else axes[0]), "stable": ConstantValue(True)},
    )
    values = next(iter(frame.iterate(pair)))
    assert isinstance(values, TensorValue)
    return _made(frame, values, array.dtype, "sort")


def _by_model(function: Any, fits: Callable[[Sequence[Any], dict[str, Any]], bool]) -> None:
    """A function that has a model, which is right for arrays in C order with at least one dimension and the known
    arguments that fit."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        for value in (*args, *kwargs.values()):
            if not (
                isinstance(value, ArrayValue)
                and value.fake.dim()
                and c_ordered(value.fake)
                or not isinstance(value, NumpyValue)
                and value.is_constant()
            ):
                raise refused(f"np.{function.__name__}() of {value.describe()}")
        plain = [value if isinstance(value, ArrayValue) else value.constant() for value in args]
        if not fits(
            plain,
            {name: value if isinstance(value, ArrayValue) else value.constant() for name, value in kwargs.items()},
        ):
            raise refused(f"np.{function.__name__}() with these arguments")
        return call_model(frame, function, args, kwargs)

    FUNCTIONS[function] = handler


def _rolls(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    array, shift, axis = (
        (*args, kwargs.get("axis"))[:3] if len(args) in (2, 3) and set(kwargs) <= {"axis"} else (None, None, None)
    )
    return (
        isinstance(array, ArrayValue)
        and type(shift) is int
        and (axis is None or type(axis) is int and -array.fake.dim() <= axis < array.fake.dim())
    )


def _tiles(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    if len(args) != 2 or kwargs or not isinstance(args[0], ArrayValue):
        return False
    return type(args[1]) in (int, tuple) and all(type(n) is int and n > 0 for n in _as_tuple(args[1]))


def _meshes(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    known = {"indexing": ("xy", "ij"), "copy": (True,), "sparse": (False, True)}
    fit = all(value in known.get(name, ()) for name, value in kwargs.items())
    return fit and bool(args) and all(isinstance(array, ArrayValue) and array.fake.dim() == 1 for array in args)


def _are_two(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return len(args) == 2 and not kwargs and all(isinstance(array, ArrayValue) for array in args)


_by_model(np.roll, _rolls)
_by_model(np.tile, _tiles)
_by_model(np.meshgrid, _meshes)
_by_model(np.outer, _are_two)


@_function(np.where)
def _where(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 3 or kwargs:
        raise refused("np.where() with one argument, whose result depends on the data,")
    condition, *choices = [realize(frame, a) for a in args]
    if not any(isinstance(v, ArrayValue) and v.fake.dim() for v in (condition, *choices)):
        raise refused("np.where() of numbers")  # whose result is an array without dimensions
    return _chosen(frame, condition, choices)


def _chosen(frame: Frame, condition: Value, choices: list[Value]) -> Value:
    """The first choice where the condition holds, else the second."""
    if not isinstance(condition, NumpyValue):
        raise refused(f"np.where() of {condition.describe()}")
    numbers = [plain_operand(value) for value in choices]
    if any(number is None and not isinstance(value, NumpyValue) for number, value in zip(numbers, choices)):
        raise refused("np.where() of other things than arrays")
    if any(isinstance(value, NumpyValue) and not c_ordered(value.fake) for value in (condition, *choices)):
        raise refused("np.where() of arrays that lie in another order")
    common = np.result_type(
        *(value.dtype if isinstance(value, NumpyValue) else number for value, number in zip(choices, numbers))
    )
    if torch_dtype(common) is None:
        raise refused(f"np.where() in {common}")
    parts = [
        cast(frame, value.tensor, common)
        if isinstance(value, NumpyValue)
        else full(frame, (), number_as(number, common), common)
        for value, number in zip(choices, numbers)
    ]
    chosen = _call(frame, torch.where, cast(frame, condition.tensor, np.dtype(bool)), *parts)
    return _made(frame, chosen, common, "where")


def _clipped(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = _bound(
        "np.clip()", "a min max", args,
        {{"a_min": "min", "a_max": "max"}.get(name, name): value for name, value in kwargs.items()},
    )
    value: Value = _array(frame, given["a"], "np.clip()")
    if "min" not in given and "max" not in given:
        raise refused("np.clip() without bounds")
    numbers = [plain_operand(given[name]) for name in ("min", "max") if name in given]
    if any(number is None or number != number for number in numbers):
        raise refused("np.clip() with other bounds than numbers")
    for name, beyond in (("min", np.less), ("max", np.greater)):
        if name in given:
            value = _chosen(frame, apply(frame, beyond, [value, given[name]]), [given[name], value])
    return value


FUNCTIONS[np.clip] = METHODS["clip"] = _clipped


@_function(np.matmul, np.dot)
def _product(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = _bound("np.dot()", "a b", args, kwargs)
    one, two = (_array(frame, given[name], "a matrix product") for name in ("a", "b"))
    dims = one.fake.dim(), two.fake.dim()
    common = np.result_type(one.dtype, two.dtype)
    if not all(0 < n <= 2 for n in dims) or torch_dtype(common) is None or common.kind == "b":
        raise refused("a matrix product of these arrays")
    made = _call(frame, torch.matmul, cast(frame, one.tensor, common), cast(frame, two.tensor, common))
    check_finite(frame, made)
    return _made(frame, made, common, "matmul")


METHODS["dot"] = _product
METHODS["__getitem__"] = lambda frame, args, kwargs: array_indexing.item(frame, args[0], args[1])  # type: ignore[arg-type]
METHODS["__setitem__"] = lambda frame, args, kwargs: array_indexing.set_item(
    frame, args[0], args[1], realize(frame, args[2])  # type: ignore[arg-type]
)


def _fill(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = _bound("fill()", "a value", args, kwargs)
    return array_indexing.set_item(frame, args[0], ConstantValue(Ellipsis), given.get("value", NONE))  # type: ignore[arg-type]


METHODS["fill"] = _fill


def _length(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    array = args[0]
    if not isinstance(array, ArrayValue):
        raise refused(f"len() of {array.describe()}")
    if not array.fake.dim():
        raise frame.raised(TypeError, "len() of unsized object")
    return from_python(array.fake.shape[0])


METHODS["__len__"] = _length


def _absolute(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return apply(frame, np.absolute, args)


METHODS["__abs__"] = _absolute
METHODS["__array__"] = lambda frame, args, kwargs: (
    args[0] if len(args) == 1 and not kwargs and isinstance(args[0], ArrayValue) else _no_array(args[0])
)


def _no_array(value: Value) -> Value:
    raise refused(f"__array__() of {value.describe()}")


def _needs_data(name: str) -> Handler:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        value = args[0]
        if (
            isinstance(value, NumberValue)
            and (value.known is not None or value.source is not None)
            and len(args) == 1
            and not kwargs
        ):
            number = value.plain(frame)
            return number if name in ("item", "tolist") else number.call_method(frame, name, [], {})
        raise Unsupported(
            f".{name}() of {value.describe()} needs its data",
            "FJ101",
            "work on the array itself, or call it outside the compiled function",
        )

    return handler


for _name in ("item", "tolist", "__int__", "__float__", "__index__", "__complex__"):
    METHODS[_name] = _needs_data(_name)
for _symbol, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}.items():
    METHODS[f"__{_symbol}__"] = partial(lambda ufunc, frame, args, kwargs: apply(frame, ufunc, args), _ufunc)
    METHODS[f"__r{_symbol}__"] = partial(
        lambda ufunc, frame, args, kwargs: apply(frame, ufunc, [args[1], args[0]]), _ufunc
    )


# ---- calling -----------------------------------------------------------------------------------------


class NumpyFunctionValue(Value):
    """A function of numpy that is written in C, or dispatched by it."""

    def __init__(self, function: Any, source: Source | None = None) -> None:
        self.function, self.source = function, source

    def python_type(self) -> type:
        return type(self.function)

    def describe(self) -> str:
        return f"numpy function {self.function.__name__}"

    def constant(self) -> Any:
        return self.function

    def proxy(self) -> Any:
        raise refused(f"a tensor operation with {self.describe()}")

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in ("__name__", "__qualname__", "__module__", "__doc__", "nin", "nout", "nargs"):
            return from_python(getattr(self.function, name))
        raise refused(f"attribute {name!r} of {self.describe()}")

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call_numpy(frame, self.function, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.load_object(self.function)


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
    args, kwargs = deep_realize(frame, args), dict(zip(kwargs, deep_realize(frame, list(kwargs.values()))))
    handler = FUNCTIONS.get(function)
    if handler is not None:
        return handler(frame, args, kwargs)
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


# ---- operators ---------------------------------------------------------------------------------------


def operate(frame: Frame, function: Callable[..., Any], operands: Sequence[Value], in_place: bool = False) -> Value:
    """An operator one of whose operands is an array or number of numpy."""
    ufunc = OPERATORS.get(function)
    if ufunc is None or any(not isinstance(value, NumpyValue) and plain_operand(value) is None for value in operands):
        raise refused(
            f"{getattr(function, '__name__', function)} of {' and '.join(value.describe() for value in operands)}"
        )
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


def _no_default_device(what: str) -> None:
    if torch._C._len_torch_function_stack():
        raise refused(f"{what} under a default device")


def _as_tensor(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """torch.from_numpy(array) and torch.as_tensor(array), which share memory; torch.tensor(array), which does not."""
    if len(args) != 1 or kwargs or not isinstance(args[0], NumpyValue):
        if any(isinstance(value, NumpyValue) for value in (*args, *kwargs.values())):
            raise refused("making a tensor of an array with other arguments")
        return None
    if not isinstance(args[0], ArrayValue):
        raise refused(f"making a tensor of {args[0].describe()}")
    _no_default_device("making a tensor of an array")
    return tensor_from(frame, args[0])


def _copied_to_tensor(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if not args or not isinstance(args[0], NumpyValue):
        return None
    if not isinstance(args[0], ArrayValue) or len(args) != 1 or kwargs or not args[0].fake.is_contiguous():
        raise refused("torch.tensor() of an array with other arguments")
    _no_default_device("torch.tensor() of an array")
    return _copy(frame, args[0].tensor)


HANDLERS[torch.from_numpy] = HANDLERS[torch.as_tensor] = _as_tensor
HANDLERS[torch.tensor] = _copied_to_tensor
for _kind in NUMBERS:
    HANDLERS[_kind] = partial(lambda cls, frame, args, kwargs: call_number_class(frame, cls, args, kwargs), _kind)
for _known in FUNCTIONS:
    if type(_known) is FunctionType:
        HANDLERS[_known] = partial(
            lambda function, frame, args, kwargs: call_numpy(frame, function, args, kwargs), _known
        )
