"""Zeros without memory (`torch._efficientzerotensor`), which some derivatives are, and which forward-mode
differentiation begins with: kernels are given plain zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from framejit.backends.fuse.not_fusable import NotFusable
from framejit.fakes.arguments import tensors_in
from framejit.fakes.fake_mode import WITHOUT_MEMORY
from framejit.fakes.storages import storage_of

_STAYING_ZERO: Final = frozenset(("mul", "dot", "vdot", "linalg_cross"))
"""Operations that give such zeros if an argument is one, whatever the others hold, be it inf or nan (ATen's kernels for
the dispatch key ZeroTensor). Of `div` only the first argument counts."""

Call = tuple[torch._ops.OpOverload, tuple[Any, ...], dict[str, Any]]


class ZeroTensors:
    """Those of a graph that is recorded, by their storages."""

    def __init__(self) -> None:
        self._storages: set[int] = set()

    def instead(self, func: torch._ops.OpOverload, args: Sequence[Any], result: Any) -> Call | None:
        """The call that gives plain zeros where an operation has given such zeros; None where it has not."""
        if func is not WITHOUT_MEMORY and not (self._storages and self._stays_zero(func, args)):
            return None
        self._storages.add(storage_of(result))
        given = {"dtype": result.dtype, "device": result.device}
        if result.is_contiguous():
            return torch.ops.aten.zeros.default, ([*result.shape],), given
        for like in tensors_in(args):
            if (like.shape, like.stride()) == (result.shape, result.stride()):
                return torch.ops.aten.zeros_like.default, (like,), given
        raise NotFusable(f"{func.name()} gives zeros without memory, in an order of their own")

    def _stays_zero(self, func: torch._ops.OpOverload, args: Sequence[Any]) -> bool:
        if func._opname not in _STAYING_ZERO and func._opname != "div":
            return False
        counting = args[:1] if func._opname == "div" else args
        return any(storage_of(tensor) in self._storages for tensor in tensors_in(counting))
