"""`torch.allclose`: a bool that the graph computes as torch does, of which elements are close."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from framejit.values.base import Value
from framejit.values.handlers import handles
from framejit.values.runtime_numbers.read_number import read_item
from framejit.values.tensors.tensor import METHODS, TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


@handles(torch.allclose)
def _all_close(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, TensorValue)]
    if len(tensors) != 2 or any(tensor.cls not in _PLAIN for tensor in tensors) or frame.capture.overrides.modes:
        return None
    graph = frame.capture.graph
    close = graph.call(torch.isclose, args, kwargs)
    found = graph.call("all", [close], is_method=True)
    return read_item(frame, found) if isinstance(found, TensorValue) else None


_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
METHODS["allclose"] = _all_close
