"""The methods of arrays and numbers of numpy that are no functions of numpy's."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from framejit.signals import Unsupported
from framejit.values.arrays import array_indexing
from framejit.values.arrays.array_arguments import Handler, bound
from framejit.values.arrays.ndarray import METHODS, ArrayValue, NumberValue, refused
from framejit.values.arrays.ufuncs import apply
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.handlers import HANDLERS
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Frame


METHODS["__getitem__"] = lambda frame, args, kwargs: array_indexing.item(frame, args[0], args[1])  # type: ignore[arg-type]
METHODS["__setitem__"] = lambda frame, args, kwargs: array_indexing.set_item(
    frame, args[0], args[1], realize(frame, args[2])  # type: ignore[arg-type]
)


def _fill(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = bound("fill()", "a value", args, kwargs)
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
        if isinstance(value, NumberValue) and len(args) == 1 and not kwargs:
            number = value.plain(frame)
            return number if name in ("item", "tolist") else number.call_method(frame, name, [], {})
        if isinstance(value, ArrayValue) and name == "tolist" and value.tensor.known_result(frame) is not None:
            return value.tensor.call_method(frame, name, args[1:], kwargs)
        raise Unsupported(
            f".{name}() of {value.describe()} needs its data",
            "FJ101",
            "work on the array itself, or call it outside the compiled function",
        )

    return handler


for _name in ("item", "tolist", "__int__", "__float__", "__index__", "__complex__"):
    METHODS[_name] = _needs_data(_name)


def _whole(function: Callable[..., int]) -> Handler:
    """What `math.floor` and the like give: one of Python's ints."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        value = args[0]
        if not isinstance(value, NumberValue) or value.dtype.kind not in "iuf":
            raise refused(f"{function.__name__}() of {value.describe()}")
        found = HANDLERS[function](frame, [value.plain(frame)], kwargs)
        assert found is not None
        return found

    return handler


for _function in (math.floor, math.ceil):
    METHODS[f"__{_function.__name__}__"] = _whole(_function)
for _symbol, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}.items():
    METHODS[f"__{_symbol}__"] = partial(lambda ufunc, frame, args, kwargs: apply(frame, ufunc, args), _ufunc)
    METHODS[f"__r{_symbol}__"] = partial(
        lambda ufunc, frame, args, kwargs: apply(frame, ufunc, [args[1], args[0]]), _ufunc
    )
