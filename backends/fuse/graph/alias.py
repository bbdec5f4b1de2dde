"""A tensor over other memory than the one that autograd takes it to be made of."""
from __future__ import annotations

from typing import Any

import torch


def alias(tensor: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """A tensor over the memory of `memory`: for autograd made of `tensor`, but not holding it. Both have the same
    sizes. To be called with gradients on; `memory` is no tensor that autograd knows anything of."""
    made: torch.Tensor = _Alias.apply(tensor, [memory])
    return made


class _Alias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, memory: list[torch.Tensor]) -> torch.Tensor:
        """`memory`: in a list, where autograd takes it for no argument."""
        return memory[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None
