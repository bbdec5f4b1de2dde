"""Truths that are known only when the graph runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.tensors.override_state import has_override
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.interpreter.frame import Frame
    from framejit.values.context import Graph


def can_decide(frame: Frame, value: Value) -> bool:
    """Whether a graph can go by the truth of a value: a number read from a tensor, or a tensor of one element."""
    if frame.hidden or frame.whole or frame.shown is not None or frame.capture.transforms:
        return False
    if isinstance(value, ReadNumberValue):
        return True
    if not isinstance(value, TensorValue) or value.cls not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return False
    fake = value.fake
    if has_override(value.cls) or fake.layout != torch.strided or getattr(fake, "constant", None) is not None:
        return False
    return not fake._has_symbolic_sizes_strides and fake.numel() == 1


def condition_of(graph: Graph, value: Value) -> TensorValue:
    """The truth of a value that `can_decide` as a tensor, a bool without dimensions."""
    tensor = value.tensor if isinstance(value, ReadNumberValue) else value
    assert isinstance(tensor, TensorValue)
    made: Value = tensor
    if tensor.fake.dim():
        made = graph.call("reshape", [made, ConstantValue(())], is_method=True)
    if tensor.fake.dtype != torch.bool:
        made = graph.call(torch.ne, [made, ConstantValue(0)])
    assert isinstance(made, TensorValue)
    return made
