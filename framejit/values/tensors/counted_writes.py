"""Writes that count, and change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.values.constant import ConstantValue

if TYPE_CHECKING:
    from framejit.values.context import Frame
    from framejit.values.tensors.tensor import TensorValue


def count_a_write(frame: Frame, tensor: TensorValue) -> None:
    """Have autograd count one more write of a tensor: one into none of its elements."""
    zero = ConstantValue(0)
    rows = tensor.call_method(frame, "unsqueeze", [zero], {})
    rows.call_method(frame, "narrow", [zero, zero, zero], {}).call_method(frame, "zero_", [], {})
