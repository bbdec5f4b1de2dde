"""Arrays of numpy that captured code makes: of constants, of lists, of other arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from framejit.fakes.elementwise_strides import contiguous
from framejit.signals import NotConstant
from framejit.values.arrays.array_arguments import (
    FUNCTIONS,
    Handler,
    array_of,
    as_tuple,
    bound,
    call_torch,
    copy_of,
    dtype_named,
)
from framejit.values.arrays.array_memory import NUMBERS, torch_dtype
from framejit.values.arrays.constant_arrays import constant_array
from framejit.values.arrays.ndarray import METHODS, ArrayValue, NumberValue, NumpyValue, array_over, refused
from framejit.values.arrays.ufuncs import (
    c_ordered,
    cast,
    checked_result,
    constant_number,
    full,
    number_as,
    plain_operand,
)
from framejit.values.base import Value, deep_realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import plain as plain_copy
from framejit.values.handlers import HANDLERS
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Frame


def _limits(cls: type, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`np.finfo(dtype)`, of which numpy keeps one for each dtype."""
    if len(args) != 1 or kwargs:
        raise refused(f"np.{cls.__name__}() with other arguments than a dtype")
    return from_python(cls(dtype_named(args[0])))


HANDLERS[np.finfo] = partial(_limits, np.finfo)


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
        given = bound(f"np.{function.__name__}()", names, args, kwargs)
        if "order" in given and given["order"].constant() != "C" or "shape" not in given:
            raise refused(f"np.{function.__name__}() in another order")
        shape = given["shape"]
        sizes = (
            frame.constants(frame.iterate(shape))
            if isinstance(shape, (TupleValue, ListValue))
            else list(as_tuple(shape.constant()))
        )
        if not all(type(n) is int and n > 0 for n in sizes):
            raise refused(f"np.{function.__name__}() of an empty array")
        number = {np.zeros: 0, np.ones: 1, np.empty: 0}.get(function)
        if number is None:
            number = plain_operand(given["fill_value"])
            if number is None:
                raise refused("np.full() of what is no number")
        dtype = (
            dtype_named(given["dtype"])
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
        given = bound(
            f"np.{function.__name__}()", "a fill_value dtype" if function is np.full_like else "a dtype", args, kwargs
        )
        array = array_of(frame, given["a"], f"np.{function.__name__}()")
        if not isinstance(array, ArrayValue) or not c_ordered(array.fake):
            raise refused(f"np.{function.__name__}() of {array.describe()}")
        number = {np.zeros_like: 0, np.ones_like: 1, np.empty_like: 0}.get(function)
        number = plain_operand(given["fill_value"]) if number is None else number
        if number is None:
            raise refused("np.full_like() of what is no number")
        dtype = dtype_named(given["dtype"]) if "dtype" in given else array.dtype
        if type(number) is float and dtype.kind in "uib":
            raise refused("np.full_like() of a float as an integer")
        return ArrayValue(full(frame, tuple(int(n) for n in array.fake.shape), number_as(number, dtype), dtype))

    return handler


for _liker in (np.zeros_like, np.ones_like, np.empty_like, np.full_like):
    FUNCTIONS[_liker] = _filled_like(_liker)


def _converted(frame: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name = f"np.{function.__name__}()"
    given = bound(name, "a dtype", args, kwargs)
    value = given["a"]
    dtype = dtype_named(given["dtype"]) if "dtype" in given else None
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
                frame, copy_of(frame, tensor), dtype or value.dtype, tuple(contiguous(value.fake.shape)),
                function.__name__,
            )
        )
    if isinstance(value, NumberValue):
        return ArrayValue(copy_of(frame, cast(frame, value.tensor, dtype or value.dtype)))
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
    made = call_torch(frame, torch.stack, ListValue(tensors))
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
        return NumberValue(copy_of(frame, cast(frame, value.tensor, dtype)))
    number = plain_operand(value)
    if number is None or type(number) is float and dtype.kind in "ui":
        raise refused(f"np.{cls.__name__}() of {value.describe()}")
    return constant_number(frame, dtype.type(number_as(number, dtype)))


def _copied(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    array = array_of(frame, bound("copy()", "a", args, kwargs)["a"], "copy()")
    if isinstance(array, NumberValue):
        raise refused("a copy of a number")
    if not c_ordered(array.fake):
        raise refused("a copy of an array that lies in another order")
    return ArrayValue(
        checked_result(frame, copy_of(frame, array.tensor), array.dtype, tuple(contiguous(array.fake.shape)), "copy")
    )


FUNCTIONS[np.copy] = METHODS["copy"] = METHODS["__copy__"] = _copied


def _as_type(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = bound("astype()", "a dtype", args, kwargs)
    array, dtype = array_of(frame, given["a"], "astype()"), dtype_named(given.get("dtype", NONE))
    if not c_ordered(array.fake):
        raise refused("astype() of an array that lies in another order")
    tensor = cast(frame, array.tensor, dtype)
    if tensor is array.tensor:
        tensor = copy_of(frame, tensor)
    tensor = checked_result(frame, tensor, dtype, tuple(contiguous(array.fake.shape)), "astype")
    return ArrayValue(tensor) if isinstance(array, ArrayValue) else NumberValue(tensor)


METHODS["astype"] = _as_type


for _kind in NUMBERS:
    HANDLERS[_kind] = partial(lambda cls, frame, args, kwargs: call_number_class(frame, cls, args, kwargs), _kind)
