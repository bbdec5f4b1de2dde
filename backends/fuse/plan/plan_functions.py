"""What plans call besides ATen's operations."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from framejit.backends.fuse.plan.attention import attention_of_varying_sizes

CREATIONS: Final = {creation.value: creation for creation in torch._C._autograd.CreationMeta.__members__.values()}
"""Autograd's kinds of views by their numbers."""


def view_of(
    tensor: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int, creation: int | None
) -> torch.Tensor:
    """A view as eager's would be: it knows what it is a view of. `offset` counts from the tensor's own first element.

    `creation` says what autograd allows to be done to it, which depends on how and in which mode eager makes it. None
    where autograd has no say.
    """
    return _allowing(creation, torch.as_strided(tensor, sizes, strides, tensor.storage_offset() + offset))


def view_in_another_dtype(
    tensor: torch.Tensor, dtype: torch.dtype, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int,
    creation: int | None
) -> torch.Tensor:
    """A view of complex numbers as real ones, or of real ones as complex; of other dtypes there are no views. `offset`
    counts bytes."""
    skipped = offset // tensor.itemsize
    before = (offset - skipped * tensor.itemsize) // dtype.itemsize
    extent = before + (sum((size - 1) * stride for size, stride in zip(sizes, strides)) + 1 if 0 not in sizes else 0)
    if dtype.is_complex:
        pairs = torch.as_strided(tensor, (extent, 2), (2, 1), tensor.storage_offset() + skipped)
        seen = torch.view_as_complex(pairs)
    else:
        seen = torch.view_as_real(
            torch.as_strided(tensor, ((extent + 1) // 2,), (1,), tensor.storage_offset() + skipped)
        )
    return _allowing(creation, seen.as_strided(sizes, strides, seen.storage_offset() + before))


def _allowing(creation: int | None, view: torch.Tensor) -> torch.Tensor:
    if creation is not None and view._is_view():
        torch._C._autograd._set_creation_meta(view, CREATIONS[creation])
    return view


def detached_view(tensor: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> torch.Tensor:
    """The memory of such a view, but for autograd it is none."""
    return tensor.as_strided(sizes, strides, tensor.storage_offset() + offset).detach()


def counted_apart(tensor: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> torch.Tensor:
    """The memory of such a view, whose writes autograd counts apart."""
    return tensor.as_strided(sizes, strides, tensor.storage_offset() + offset).data


def reinterpreted(
    base: torch.Tensor, dtype: torch.dtype, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> torch.Tensor:
    """A tensor of another dtype over the storage of `base`; `offset` counts bytes from its first element."""
    start = base.storage_offset() * base.itemsize + offset
    made = torch.empty(0, dtype=dtype, device=base.device)
    made.set_(base.untyped_storage(), start // dtype.itemsize, sizes, strides)
    shared: torch.Tensor = base.detach()  # the writes of one are counted for the other
    shared.data = made
    return shared


def scattered(
    tensor: torch.Tensor, part: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int
) -> torch.Tensor:
    """A copy with a part of it replaced; `offset` counts from the tensor's own first element."""
    return torch.as_strided_scatter(tensor, part, sizes, strides, tensor.storage_offset() + offset)


def strided_copy(tensor: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    """A copy of a part; `offset` counts from the tensor's own first element."""
    return torch.as_strided_copy(tensor, sizes, strides, tensor.storage_offset() + offset)


def count_back(tensors: Sequence[torch.Tensor], numbers: Sequence[int]) -> None:
    """Take so many writes off the version counter of each tensor that has one: those that autograd is not to know
    of."""
    counted = [
        (tensor, tensor._version - number)
        for tensor, number in zip(tensors, numbers, strict=True)
        if not tensor.is_inference()
    ]
    torch._C._autograd._unsafe_set_version_counter(
        tuple(tensor for tensor, _ in counted), tuple(version for _, version in counted)
    )


def count_exactly(tensors: Sequence[torch.Tensor], versions: Sequence[int]) -> None:
    """Have autograd count so many writes of each tensor. Some may share a counter, and some be counted already."""
    for tensor, version in zip(tensors, versions, strict=True):
        if not tensor.is_inference() and tensor._version != version:
            torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


@functools.cache
def laid_out_as(sizes: tuple[int, ...], strides: tuple[int, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that copies a tensor to memory of these strides: for when ATen chose another layout than its fake."""

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)

    return copied


NAMED: Final[dict[str, Callable[..., Any]]] = {
    "view_of": view_of,
    "detached_view": detached_view,
    "counted_apart": counted_apart,
    "view_in_another_dtype": view_in_another_dtype,
    "reinterpreted": reinterpreted,
    "scattered": scattered,
    "strided_copy": strided_copy,
    "detach": torch.Tensor.detach,
    "to": torch.Tensor.to,
    "count_back": count_back,
    "count_exactly": count_exactly,
    "attention_of_varying_sizes": attention_of_varying_sizes,
    "increment_version": torch._C._increment_version,
    "embedding": torch._C._VariableFunctions.embedding,
}
"""Functions that a graph may need whatever its operations are, by the names they have in records of plans."""
