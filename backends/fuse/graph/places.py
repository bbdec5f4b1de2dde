"""Operations that are told a place in a tensor's storage, rather than one that counts from the tensor's own first
element."""

from __future__ import annotations

from typing import Final

import torch

_PLACES: Final = {
    torch.ops.aten.as_strided.default: 3,
    torch.ops.aten.as_strided_copy.default: 3,
    torch.ops.aten.as_strided_scatter.default: 4,
}


def place_of_offset(operation: torch._ops.OpOverload) -> int | None:
    """The position of the argument that says where in the storage a view begins; None where an operation has none."""
    return _PLACES.get(operation)
