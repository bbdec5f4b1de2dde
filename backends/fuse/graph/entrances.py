"""What inputs are to autograd, which fakes that stand for them have to be, too: what is computed from leaves may be
written in place where gradients are wanted, and leaves may not."""

from __future__ import annotations

import enum
from typing import Any

import torch


class Entrance(enum.Enum):
    """The place of an input in autograd's graph."""

    CONSTANT = enum.auto()
    LEAF = enum.auto()
    INNER = enum.auto()
    """Something that was computed from leaves."""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Entrance:
        """The entrance that a tensor is as an input."""
        return cls.CONSTANT if not tensor.requires_grad else cls.LEAF if tensor.is_leaf else cls.INNER

    def made(self, fake: torch.Tensor) -> torch.Tensor:
        """A new fake without gradients, or one in its place, that is such an input. To be called where fakes are
        operated on."""
        if self is Entrance.INNER:
            with torch.enable_grad():
                inner: torch.Tensor = _Entering.apply(torch.empty_like(fake).requires_grad_(), [fake])
            return inner
        return fake.requires_grad_(self is Entrance.LEAF)


class _Entering(torch.autograd.Function):
    """What an inner input's fake comes out of."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, made: list[torch.Tensor]) -> torch.Tensor:
        return made[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None
