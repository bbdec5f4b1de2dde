"""The backward of a segment, compiled: gradients are brought into the layout that it takes, and those that go out are
what eager's would be to the program."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from framejit.backends.fuse.cache.plan_key import SymbolicSizes
from framejit.backends.fuse.sizes.symbolic_size import concrete
from framejit.backends.fuse.training.half import Compiles, Half, Sizes
from framejit.backends.fuse.training.partition import BackwardPart
from framejit.symbols.conditions import Condition
from framejit.symbols.expression import Symbol


class Backward:
    """The compiled backward of one segment: from what was kept, and the gradients that come in, to those that go
    out."""

    def __init__(
        self, part: BackwardPart, leaving: Sequence[int], compiles: Compiles, symbolic_sizes: SymbolicSizes | None
    ) -> None:
        """`leaving`: which gradients go out."""
        gradients = [part.backward.gradients[place] for place in leaving]
        order = {
            value: place for place, value in enumerate(dict.fromkeys(value for value in gradients if value is not None))
        }
        self.places = [None if value is None else order[value] for value in gradients]
        """Where each gradient stands among the results."""
        self.alone = frozenset(place for value, place in order.items() if value.storage.first is value)
        """The results that in eager lie in memory of their own, as gradients show. From the first run of the plan on,
        those that it puts elsewhere."""
        self.pieces = [
            place
            for value, place in order.items()
            if value.base is not None and value.numel() < value.storage.first.numel()
        ]
        """The results that are pieces of longer memory. In eager they are views, which keeps autograd from adding to
        them in place."""
        self.is_planned = False
        tangents = [value.storage for value in part.backward.tangents]
        self.parts = {
            place: tangents.index(value.storage) for value, place in order.items() if value.storage in tangents
        }
        """The results that are parts of gradients that came in, with the positions of these."""
        self.passed = {place for value, place in order.items() if value in part.backward.tangents}
        """The results that are gradients as they came in."""
        self.passed_on = {self.parts[place] for place in self.passed}
        self.symbolic_strides = [value.strides for value in part.backward.tangents]
        self._have(Half(part.graph, part.nodes, compiles, part.backward.segment, symbolic_sizes))

    def _have(self, half: Half) -> None:
        self.half = half
        self.strides = concrete(self.symbolic_strides, half.sizes)

    def at(self, sizes: Sizes) -> Backward:
        """A copy of the backward for other sizes."""
        made = copy.copy(self)
        made._have(self.half.at(sizes))
        return made

    def __call__(self, saved: list[torch.Tensor], tangents: list[torch.Tensor]) -> list[torch.Tensor | None]:
        """Empties both lists."""
        # What is a part of a gradient that came in is, in eager, no part of a copy of it.
        copied = {
            position: tangent if position in self.passed_on else None  # else it is not held besides its copy
            for position, (tangent, strides) in enumerate(zip(tangents, self.strides))
            if tangent.stride() != strides
        }
        saved += [
            _laid_out(tangent, self.strides[position]) if position in copied else tangent
            for position, tangent in enumerate(tangents)
        ]
        tangents.clear()
        by_plan = self.half.trial.is_over or self.half.is_repeatable
        results = self.half.run(saved)
        gradients = [*results]
        for place in self.pieces:
            gradients[place] = gradients[place].view_as(gradients[place])
        for place in self.alone:
            gradients[place] = _alone(gradients[place])
        if by_plan and not self.is_planned:
            self.alone = frozenset(place for place in self.alone if gradients[place] is not results[place])
            self.is_planned = True
        for place, position in self.parts.items():
            if position in copied:
                gradients[place] = copied[position] if place in self.passed else gradients[place].clone()
        return [None if place is None else gradients[place] for place in self.places]


@dataclass(frozen=True)
class SymbolicBackward:
    """A backward of a segment for gradients that come otherwise than usual, and for all sizes that meet conditions."""

    orders: tuple[tuple[int, tuple[int, ...] | None], ...]
    """The outputs that gradients come to, by their places, and how the dimensions of these lie in memory; None for as
    usual."""
    symbols: tuple[Symbol, ...]
    conditions: tuple[Condition, ...]
    backward: Backward


def is_permuted(tensor: torch.Tensor, strides: Sequence[int]) -> bool:
    """Whether a gradient fills its memory in another order than what it is the gradient of; gradients of an input then
    lie so, too."""
    return tensor.stride() != strides and _is_dense(tensor)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill their memory, each in a place of its own."""
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != step:
            return False
        step *= size
    return tensor.numel() > 0


def order_of(strides: Sequence[int]) -> tuple[int, ...]:
    """The dimensions as they lie in memory, the outermost first."""
    return tuple(sorted(range(len(strides)), key=lambda dim: (-strides[dim], dim)))


def strides_in(order: Sequence[int], shape: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of a tensor that fills its memory, with its dimensions in this order."""
    strides: list[Any] = [1] * len(order)
    for outer, inner in zip(order[-2::-1], order[:0:-1]):
        strides[outer] = strides[inner] * shape[inner]
    return tuple(strides)


def _laid_out(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A gradient in the memory layout of what it is the gradient of."""
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in memory that is no longer than it."""
    return (
        tensor
        if tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size() or not _is_dense(tensor)
        else tensor.clone()
    )
