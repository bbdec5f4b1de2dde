"""Which operations are lowered, and by what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

Lowering = Callable[..., Any]
"""Takes the builder, the fake or fakes that the operation gave, and its arguments with Tensors for fakes. Gives a
Tensor, a tuple of Tensors or None, or NotImplemented where ATen is to do it."""

LOWERINGS: Final[dict[str, Lowering]] = {}
"""By the name of the ATen operation, or by name and overload where one overload is meant."""

FUSED_DTYPES: Final = frozenset(
    (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32,
        torch.int64, torch.uint8, torch.bool,
    )
)


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Register a function as the lowering of operations."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            if name in LOWERINGS:
                raise ValueError(f"{name} is lowered twice")
            LOWERINGS[name] = function
        return function

    return register


def lowering_of(name: str, overload: str = "") -> Lowering | None:
    """The lowering of an operation, if it has one."""
    return LOWERINGS.get(f"{name}.{overload}") or LOWERINGS.get(name)


def functional_name(name: str) -> str:
    """The name of what an operation that writes its first argument computes."""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name
