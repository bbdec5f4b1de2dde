"""Numpy's functions that choose or repeat elements: `np.where`, `np.clip`, and those that have a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from framejit.values.arrays.array_arguments import FUNCTIONS, array_of, as_tuple, bound, call_torch, registered, result
from framejit.values.arrays.array_memory import torch_dtype
from framejit.values.arrays.ndarray import METHODS, ArrayValue, NumpyValue, refused
from framejit.values.arrays.ufuncs import apply, c_ordered, cast, full, number_as, plain_operand
from framejit.values.base import Value, realize
from framejit.values.objects.functions.model_values import call_model

if TYPE_CHECKING:
    from framejit.values.context import Frame


@registered(np.where)
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
    chosen = call_torch(frame, torch.where, cast(frame, condition.tensor, np.dtype(bool)), *parts)
    return result(frame, chosen, common, "where")


def _clipped(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = bound(
        "np.clip()", "a min max", args,
        {{"a_min": "min", "a_max": "max"}.get(name, name): value for name, value in kwargs.items()},
    )
    value: Value = array_of(frame, given["a"], "np.clip()")
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
    return type(args[1]) in (int, tuple) and all(type(n) is int and n > 0 for n in as_tuple(args[1]))


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
