"""Copies of the inputs that a graph writes into, for when it raises."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Copied = tuple[torch.Tensor, torch.Tensor, int]
"""An input, a copy of it, and its version; -1 for one that has none."""


def copies_of(tensors: Sequence[torch.Tensor]) -> list[Copied]:
    """Copies of tensors as they are now, with their version counters, for `put_back`."""
    with torch._C.DisableTorchFunctionSubclass():
        return [
            (tensor, _without_repetitions(tensor).clone(), -1 if tensor.is_inference() else tensor._version)
            for tensor in tensors
        ]


def memory_of(tensor: torch.Tensor) -> int:
    """The memory of a tensor, of those that are alive; that of one without a storage is its own."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def share_memory(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether any two tensors may lie in the same memory."""
    with torch._C.DisableTorchFunctionSubclass():
        return len({memory_of(tensor) for tensor in tensors}) < len(tensors)


def copies_where_shared(tensors: Sequence[torch.Tensor], always: int, where_shared: Sequence[int]) -> list[Copied]:
    """Copies of so many of the first tensors, and of those at some positions besides if any two share memory."""
    more = where_shared if where_shared and share_memory(tensors) else ()
    return copies_of([*tensors[:always], *(tensors[position] for position in more)])


def put_back(copies: Sequence[Copied]) -> None:
    """Give the tensors the numbers and versions that they had."""
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        for tensor, copy, version in copies:
            _without_repetitions(tensor).copy_(copy)
            if version >= 0:
                torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def _without_repetitions(tensor: torch.Tensor) -> torch.Tensor:
    """Each number that an expanded tensor shows several times, once."""
    alone = tensor.detach()
    if tensor.layout is torch.strided:
        for dim, stride in enumerate(tensor.stride()):
            alone = alone.narrow(dim, 0, 1) if stride == 0 and tensor.shape[dim] > 1 else alone
    return alone
