"""The backward of a segment, compiled: gradients are brought into the layout that it takes, and those that go out are
what eager's would be to the program."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from framejit.backends.fuse.autograd_nodes.half import Half, Sizes
from framejit.backends.fuse.sizes.symbolic_size import concrete
from framejit.late_dataclass import dataclass

Given = tuple[tuple[int, tuple[int, ...]], ...]
"""The outputs of a segment that gradients come to, by their places, and the strides of these gradients."""


@dataclass(frozen=True)
class Outgoing:
    """Which results of a backward's plan the gradients are that go out of it, and what these are to the program in
    eager."""

    places: list[int | None]
    """Where each gradient stands among the results."""
    alone: frozenset[int]
    """The results that lie in memory of their own, as gradients show."""
    pieces: list[int]
    """The results that are pieces of longer memory. In eager they are views, which keeps autograd from adding to them
    in place."""
    parts: dict[int, int]
    """The results that are parts of gradients that came in, with the positions of these."""
    passed: frozenset[int]
    """The results that are gradients as they came in."""


class Backward:
    """The compiled backward of one segment: from what was kept, and the gradients that come in, to those that go
    out."""

    def __init__(self, half: Half, outgoing: Outgoing, strides: Sequence[tuple[Any, ...]]) -> None:
        """`strides`: those of the gradients that come in."""
        self.outgoing = outgoing
        self.alone = outgoing.alone
        """Of these, from the first run of the plan on, those that it puts elsewhere."""
        self.is_planned = False
        self.passed_on = {outgoing.parts[place] for place in outgoing.passed}
        self.symbolic_strides = strides
        self._have(half)

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
        for place in self.outgoing.pieces:
            gradients[place] = gradients[place].view_as(gradients[place])
        for place in self.alone:
            gradients[place] = _alone(gradients[place])
        if by_plan and not self.is_planned:
            self.alone = frozenset(place for place in self.alone if gradients[place] is not results[place])
            self.is_planned = True
        for place, position in self.outgoing.parts.items():
            if position in copied:
                is_passed = place in self.outgoing.passed
                gradients[place] = copied[position] if is_passed else gradients[place].clone()
        return [None if place is None else gradients[place] for place in self.outgoing.places]


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
