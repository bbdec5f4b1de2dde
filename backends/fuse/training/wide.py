"""The dtype that ATen's kernels compute in, for what is recorded in the place of operations of ATen's."""

from __future__ import annotations

import torch

aten = torch.ops.aten


def wide_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the dtype that ATen's kernels compute in."""
    return in_dtype(tensor, torch.float32) if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def in_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor if tensor.dtype == dtype else aten._to_copy.default(tensor, dtype=dtype)


def is_plain(*tensors: torch.Tensor | None) -> bool:
    """Whether elementwise results lie as ATen's norms lay them out."""
    return all(
        tensor is None or (tensor.is_floating_point() and tensor.is_contiguous() and tensor.numel() > 0)
        for tensor in tensors
    )
