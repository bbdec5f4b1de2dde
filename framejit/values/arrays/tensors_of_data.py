"""`torch.tensor(data)` and the like, of arrays, whose memory is read or shared, and of lists with tensors without
dimensions: torch reads a number of each, and takes the tensors' dtypes for those of the numbers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from framejit.values.arrays.array_arguments import copy_of
from framejit.values.arrays.array_functions import no_default_device
from framejit.values.arrays.ndarray import ArrayValue, NumberValue, alias, refused, tensor_from
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.lists import ListValue
from framejit.values.containers.sequence import SequenceValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import HANDLERS, Handler, handles
from framejit.values.tensors.tensor import TensorValue
from framejit.values.tensors.torch_functions import CLASSES

if TYPE_CHECKING:
    from framejit.values.context import Frame, Graph

_DTYPES: Final = {bool: torch.bool, int: torch.int64}


@handles(torch.tensor)
def _tensor(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if args and isinstance(args[0], ArrayValue):
        if len(args) != 1 or not kwargs.keys() <= {"dtype", "device"}:
            raise refused("torch.tensor() of an array with other arguments")
        given = {name: value for name, value in kwargs.items() if not is_none(value)}
        if "device" not in given:
            no_default_device("torch.tensor() of an array")
        copied = alias(frame, args[0].tensor)
        return frame.capture.graph.call("to", [copied], {**given, "copy": ConstantValue(True)}, is_method=True)
    return _of_numbers(torch.tensor, frame, args, kwargs)


@handles(torch.as_tensor)
def _as_tensor(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Of an array it shares memory where there is any."""
    if args and isinstance(args[0], ArrayValue):
        if len(args) != 1 or not kwargs.keys() <= {"dtype"}:
            raise refused("making a tensor of an array with other arguments")
        no_default_device("making a tensor of an array")
        dtype = kwargs.get("dtype", NONE)
        return _over(frame, args[0], args[0].tensor.fake.dtype if is_none(dtype) else dtype.constant())
    return _of_numbers(torch.as_tensor, frame, args, kwargs)


@handles(torch.asarray)
def _asarray(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    return _of_numbers_in_lists(torch.asarray, frame, args, kwargs)


def _of_numbers(function: Any, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A tensor of a number of numpy, or of lists with such, or with tensors."""
    if not args or not isinstance(args[0], NumberValue):
        found = _of_list(frame, args[0], kwargs) if len(args) == 1 else None
        return _of_numbers_in_lists(function, frame, args, kwargs) if found is None else found
    number = args[0]
    if len(args) != 1 or not kwargs.keys() <= {"dtype"}:
        raise refused("making a tensor of a number of numpy with other arguments")
    no_default_device("making a tensor of a number of numpy")
    wanted = kwargs.get("dtype", NONE)
    if is_none(wanted):
        return copy_of(frame, number.tensor)
    if wanted.constant() is torch.float64:
        return frame.capture.graph.call("to", [number.tensor, wanted], {"copy": ConstantValue(True)}, is_method=True)
    if number.known is None or not wanted.constant().is_floating_point:
        raise refused("torch.tensor() of a number that may not fit into another dtype")
    return frame.capture.graph.call(torch.tensor, [number.plain(frame)], {"dtype": wanted})


def _of_numbers_in_lists(function: Any, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Torch takes numbers of numpy in lists for Python's own, but for the dtype that it finds where none is asked
    for."""
    if not args or "dtype" in kwargs or not isinstance(args[0], SequenceValue):
        return None
    alike = _alike(frame, args[0])
    if not _has_number_of_numpy(alike):
        return None
    try:
        dtype = torch.tensor(alike, device="cpu").dtype
    except (TypeError, ValueError, RuntimeError):
        raise refused("making a tensor of a list with numbers of numpy") from None
    return frame.capture.graph.call(function, args, {**kwargs, "dtype": ConstantValue(dtype)})


def _alike(frame: Frame, value: Value) -> Any:
    """What torch finds the same dtype for; None in the place of what is no number, nor a list of numbers."""
    value = realize(frame, value)
    if isinstance(value, SequenceValue) and value.python_type() in (list, tuple):
        return [_alike(frame, part) for part in value.items]
    if isinstance(value, NumberValue):
        return value.dtype.type(1)
    cls = value.python_type()
    return cls(1) if cls in (bool, int, float, complex) else None


def _has_number_of_numpy(alike: Any) -> bool:
    return any(map(_has_number_of_numpy, alike)) if type(alike) is list else isinstance(alike, np.generic)


def _over(frame: Frame, array: ArrayValue, dtype: torch.dtype) -> Value:
    """A tensor over the memory of an array, or a copy in another dtype."""
    if array.tensor.fake.dtype is dtype:
        return tensor_from(frame, array)
    return frame.capture.graph.call("to", [alias(frame, array.tensor), ConstantValue(dtype)], is_method=True)


def _by_class(
    plain: Handler, dtype: torch.dtype | None, frame: Frame, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    if len(args) == 1 and not kwargs and isinstance(args[0], ArrayValue) and args[0].fake.dim():
        return _over(frame, args[0], dtype or torch.get_default_dtype())
    return plain(frame, args, kwargs)


for _class, _dtype in CLASSES.items():
    HANDLERS[_class] = functools.partial(_by_class, HANDLERS[_class], _dtype)


def _of_list(frame: Frame, data: Value, kwargs: dict[str, Value]) -> Value | None:
    """A tensor of a list, or of lists of lists, with tensors among the numbers."""
    if not isinstance(data, ListValue | TupleValue):
        return None
    found = _numbers_in(frame, data)
    if found is None or not any(isinstance(item, TensorValue) for item in found[0]):
        return None
    items, shape = found
    given = {name: value.constant() for name, value in kwargs.items() if value.is_constant() and not is_none(value)}
    if not kwargs.keys() <= {"dtype", "device"} or not all(map(Value.is_constant, kwargs.values())):
        return None
    dtype = functools.reduce(torch.promote_types, map(_dtype_of, items))
    wanted, device = given.get("dtype", dtype), given.get("device")
    if not isinstance(wanted, torch.dtype) or wanted != dtype and not wanted.is_floating_point:
        return None
    if device is not None and str(device) != "cpu":
        return None
    dtype = wanted
    if device is None:
        no_default_device("making a tensor of tensors")
    graph = frame.capture.graph
    parts = [_number(graph, item, dtype) for item in items]
    for size in reversed(shape):
        parts = [graph.call(torch.stack, [ListValue(parts[at : at + size])]) for at in range(0, len(parts), size)]
    return parts[0]


def _numbers_in(frame: Frame, data: SequenceValue) -> tuple[list[Value], tuple[int, ...]] | None:
    """What lists, in lists that are alike, hold, and the sizes of these; None where it is not numbers alone."""
    items = [realize(frame, item) for item in data.iterate(frame)]
    if items and all(map(_is_number, items)):
        return items, (len(items),)
    parts = [_numbers_in(frame, item) if isinstance(item, ListValue | TupleValue) else None for item in items]
    known = [part for part in parts if part is not None]
    if not parts or len(known) != len(parts) or len({shape for _, shape in known}) != 1:
        return None
    return [item for part, _ in known for item in part], (len(parts), *known[0][1])


def _is_number(value: Value) -> bool:
    """A number, or a tensor that is read without a warning."""
    if isinstance(value, TensorValue):
        fake = value.fake
        if value.cls not in (torch.Tensor, torch.nn.Parameter) or fake.is_complex() or fake.device.type != "cpu":
            return False
        return fake.dim() == 0 and not fake.requires_grad
    return isinstance(value, ConstantValue) and type(value.value) in (bool, int, float)


def _dtype_of(value: Value) -> torch.dtype:
    if isinstance(value, TensorValue):
        return value.fake.dtype
    return _DTYPES.get(value.python_type(), torch.get_default_dtype())


def _number(graph: Graph, value: Value, dtype: torch.dtype) -> Value:
    if not isinstance(value, TensorValue):
        return graph.call(torch.tensor, [value], {"dtype": ConstantValue(dtype)})
    if value.fake.dtype is torch.int64 and dtype.is_floating_point:
        value = graph.call("double", [value], is_method=True)  # as Python's numbers are, before they are rounded again
    return graph.call("to", [value, ConstantValue(dtype)], is_method=True)
