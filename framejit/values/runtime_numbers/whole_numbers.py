"""`tensor.item()`, `int(tensor)` and `tensor.tolist()`, where one graph is asked for: ints that data decides, as sizes
are that it decides. In other graphs, and of floats, they are read numbers (`read_number.py`).

Arithmetic with such an int and comparisons that are only asserted stay in the graph. Operations take it for a size: the
graph asserts that it is not negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.runtime_numbers.read_number import MOST_LISTED, listed, read_int, read_item, read_list
from framejit.values.sym_int import SymIntValue
from framejit.values.tensors.tensor import METHODS, TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _can_be_read(frame: Frame, tensor: TensorValue) -> bool:
    fake = tensor.fake
    if not frame.capture.graph.metadata.finds_sizes() or frame.capture.transforms or tensor.cls is not torch.Tensor:
        return False
    if fake.dtype not in _WHOLE or fake.device.type != "cpu" or fake.layout != torch.strided or fake.is_inference():
        return False
    return not fake._has_symbolic_sizes_strides and getattr(fake, "constant", None) is None


def _read(frame: Frame, tensor: TensorValue) -> Value:
    graph = frame.capture.graph
    number = graph.call("reshape", [tensor, ConstantValue(())], is_method=True) if tensor.fake.dim() else tensor
    copied = graph.call("to", [number, ConstantValue(torch.int64)], {"copy": ConstantValue(True)}, is_method=True)
    sizes = graph.metadata.let_data_decide()
    assert sizes is not None
    return SymIntValue(sizes.number_in(copied))


def _item(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    tensor = args[0]
    if not isinstance(tensor, TensorValue) or len(args) > 1 or kwargs:
        return None
    return _size(frame, tensor) or read_item(frame, tensor)


def _int(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    tensor = args[0]
    if not isinstance(tensor, TensorValue) or len(args) > 1 or kwargs:
        return None
    return _size(frame, tensor) or read_int(frame, tensor)


def _index(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    tensor = args[0]
    return None if not isinstance(tensor, TensorValue) or len(args) > 1 or kwargs else _size(frame, tensor)


def _size(frame: Frame, tensor: TensorValue) -> Value | None:
    """The int in a tensor, where sizes may depend on it."""
    return _read(frame, tensor) if _can_be_read(frame, tensor) and tensor.fake.numel() == 1 else None


def _to_list(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    tensor = args[0]
    if not isinstance(tensor, TensorValue) or len(args) > 1 or kwargs:
        return None
    if _can_be_read(frame, tensor) and tensor.fake.numel() <= MOST_LISTED:
        return listed(frame, tensor, lambda number: _read(frame, number))
    return read_list(frame, tensor)


METHODS["item"] = _item
METHODS["__int__"] = _int
METHODS["__index__"] = _index
METHODS["tolist"] = _to_list
