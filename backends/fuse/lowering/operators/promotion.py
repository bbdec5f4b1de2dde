"""The dtype in which an elementwise operation computes: ATen's rules for tensors, 0-d tensors and Python numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from framejit.backends.fuse.lowering.lowered_tensor import Tensor
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize


def result_type(operands: Iterable[Any]) -> torch.dtype:
    """The dtype that `torch.result_type` gives for Tensors and numbers: tensors with dimensions outrank 0-d ones,
    and those outrank numbers."""
    shaped: torch.dtype | None = None
    single: torch.dtype | None = None
    number: torch.dtype | None = None
    for operand in operands:
        if isinstance(operand, Tensor):
            if operand.sizes:
                shaped = _promote(shaped, operand.dtype)
            else:
                single = _promote(single, operand.dtype)
        elif operand is not None:
            number = _promote(number, _dtype_of(operand))
    found = _outrank(shaped, _outrank(single, number))
    assert found is not None
    return found


def _dtype_of(number: bool | int | float | SymbolicSize) -> torch.dtype:
    if isinstance(number, bool):
        return torch.bool
    return torch.int64 if isinstance(number, (int, SymbolicSize)) else torch.get_default_dtype()


def _promote(a: torch.dtype | None, b: torch.dtype) -> torch.dtype:
    return b if a is None or a == b else torch.promote_types(a, b)


def _outrank(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None or lower is None:
        return higher or lower
    if higher.is_floating_point:
        return higher
    return torch.promote_types(higher, lower) if higher == torch.bool or lower.is_floating_point else higher
