"""What inputs are to autograd, which fakes that stand for them have to be, too: what is computed from leaves may be
written in place where gradients are wanted, and leaves may not."""

from __future__ import annotations

import enum

import torch

from framejit.backends.fuse.graph.alias import alias


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
                return alias(torch.empty_like(fake).requires_grad_(), fake)
        return fake.requires_grad_(self is Entrance.LEAF)
