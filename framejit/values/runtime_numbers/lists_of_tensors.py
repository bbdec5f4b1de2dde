"""`torch.tensor([a, b])` of tensors without dimensions: torch reads a number of each, and takes the tensors' dtypes for
those of the numbers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

import torch

from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.sequence import ListValue, TupleValue
from framejit.values.handlers import handles
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame, Graph

_DTYPES: Final = {bool: torch.bool, int: torch.int64}


@handles(torch.tensor, torch.as_tensor)
def _tensor(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if len(args) != 1 or kwargs or not isinstance(args[0], ListValue | TupleValue):
        return None
    items = [realize(frame, item) for item in args[0].iterate(frame)]
    if not any(isinstance(item, TensorValue) for item in items) or not all(map(_is_number, items)):
        return None
    graph, dtype = frame.capture.graph, functools.reduce(torch.promote_types, map(_dtype_of, items))
    return graph.call(torch.stack, [ListValue([_number(graph, item, dtype) for item in items])])


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
