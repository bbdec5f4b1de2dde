"""What operations refuse by their arguments, and torch's rules for fakes do not: a graph that holds such an operation
would be cut off where it raises, or not raise at all."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch


def _check_filled_with(_: torch.Tensor, value: torch.Tensor) -> None:
    if value.dim():
        raise RuntimeError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {value.dim()} dimensions."
        )


def _check_source(
    self: Any, src: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> None:
    with self.fake_mode:
        part = torch.ops.aten.slice.Tensor(self, dim, start, end, step)
    if [*src.shape] != [*part.shape]:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {[*src.shape]}, slice size = "
            f"{[*part.shape]}"
        )


def _check_dimension(self: torch.Tensor, dim: int, _: Any) -> None:
    if dim < -self.dim():
        raise IndexError(f"Dimension out of range ({dim} of a tensor with {self.dim()} dimensions)")


def _check_selected(self: Any, src: torch.Tensor, dim: int, index: Any) -> None:
    sizes = [*self.shape]
    del sizes[dim]
    if [*src.shape] != sizes:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {[*src.shape]}, slice size = {sizes}"
        )


def _check_added_to_product(self: torch.Tensor, one: torch.Tensor, other: torch.Tensor, **_: Any) -> None:
    sizes = (*one.shape[:-1], *other.shape[1:])
    fits = all(size == wanted or size == 1 for size, wanted in zip(reversed(self.shape), reversed(sizes)))
    if self.dim() > len(sizes) or not fits:
        raise RuntimeError(f"a tensor of sizes {[*self.shape]} does not expand to those of a product, {[*sizes]}")


def _check_group_norm(self: torch.Tensor, weight: Any, bias: Any, N: Any, C: Any, *_: Any) -> None:  # noqa: N803
    _check_channels(C, weight=weight, bias=bias)


def _check_batch_norm(
    self: torch.Tensor, weight: Any, bias: Any, running_mean: Any = None, running_var: Any = None, *_: Any, **__: Any
) -> None:
    if self.dim() < 2 or isinstance(running_mean, bool):  # which is `training`: it has no statistics
        return
    _check_channels(self.shape[1], running_mean=running_mean, running_var=running_var)
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.numel() != self.shape[1]:
            raise RuntimeError(f"{name} should have {self.shape[1]} elements, but has {tensor.numel()}")


def _check_channels(channels: Any, **given: Any) -> None:
    for name, tensor in given.items():
        if tensor is not None and (tensor.dim() != 1 or tensor.shape[0] != channels):
            raise RuntimeError(f"{name} should have {channels} elements, but has sizes {[*tensor.shape]}")


CHECKS: Final[dict[Any, Callable[..., None]]] = {
    torch.ops.aten.fill.Tensor: _check_filled_with,  # since 2.13 by torch's rule, too
    torch.ops.aten.fill_.Tensor: _check_filled_with,
    torch.ops.aten.slice_scatter.default: _check_source,
    torch.ops.aten.select.int: _check_dimension,
    torch.ops.aten.select_scatter.default: _check_selected,
    **dict.fromkeys(
        (
            torch.ops.aten.addmm.default, torch.ops.aten.addmm_.default, torch.ops.aten.addmv.default,
            torch.ops.aten.addmv_.default,
        ),
        _check_added_to_product,
    ),
    torch.ops.aten.native_group_norm.default: _check_group_norm,
    torch.ops.aten.native_batch_norm.default: _check_batch_norm,
    torch.ops.aten._native_batch_norm_legit.default: _check_batch_norm,
}
"""By operations of ATen what raises, given their arguments, where their kernels do."""
