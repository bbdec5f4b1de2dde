"""Gradients that come in, taken from autograd, which would hold them until the node that they came to is done.

Eager's nodes are small, and what came to one goes before the next. The node of a whole graph is the whole backward. So
the memory of a gradient that surely nobody but autograd holds goes into a tensor that the backward alone has. How many
references the way from autograd to a backward holds, of Python's and of torch's, is measured once, on a gradient that
nobody holds. (Nodes of Python's hold what comes to them until their backward is over in a torch before 2.13.)
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch

from framejit import _native
from framejit.environment.own_thread import asked_apart

SMALL: Final = 1 << 16
"""Bytes of gradients that are left where they are."""

References = tuple[int, int]
"""How many there are to a gradient: of Python's, and of torch's, which are 0 where others may hold its memory."""


def take(tangents: list[torch.Tensor | None], usual: References | None) -> None:
    """Put in place of gradients that nobody else holds tensors that have taken over their memory. `usual`: the
    references to such a gradient, as `references` counts them."""
    for position in range(len(tangents)):
        if _is_takeable(tangents[position]) and references(tangents, position) == usual:
            tangents[position] = _emptied(tangents[position])


def _is_takeable(tangent: torch.Tensor | None) -> bool:
    """Whether it is worth while, and nothing of torch's but autograd can tell."""
    return (
        type(tangent) is torch.Tensor
        and tangent.layout is torch.strided
        and tangent.numel() * tangent.itemsize >= SMALL
        and not tangent.requires_grad
        and not weakref.getweakrefcount(tangent)
    )


def references(tangents: list[torch.Tensor | None], position: int) -> References:
    """The references to a gradient, with that of the list."""
    return sys.getrefcount(tangents[position]), _native.owners(tangents[position])


def _emptied(tangent: Any) -> torch.Tensor:
    taken: torch.Tensor = tangent.detach()
    tangent.data = torch.empty(0, dtype=tangent.dtype, device=tangent.device)
    return taken


@cache
def usual_references(node: Callable[..., Any]) -> References | None:
    """The references to a gradient that nobody holds, in the `backward` of a segment given to the node of autograd that
    is made by `node(segment, call, inputs, made, *taken)`; None where that cannot be told."""
    counts = asked_apart(lambda: (_counted(node), _counted(node)))
    return counts[0] if counts is not None and counts[0] == counts[1] and all(counts[0]) else None


def _counted(node: Callable[..., Any]) -> References:
    probe = _Probe()
    (result,) = node(probe, None, (), (), torch.zeros(2, requires_grad=True))
    result.exp().sum().backward()
    return probe.count


class _Probe:
    """A segment that counts the references to the gradient that comes to it."""

    saved: Final[list[Any]] = []
    watched: Final[list[Any]] = []
    written: Final[list[int]] = []
    unneeded: Final[list[None]] = []
    keeps: Final = False
    count = 0, 0

    def given(self, made: Any) -> tuple[torch.Tensor, ...]:
        return (torch.zeros(2),)

    def backward(
        self, call: None, saved: list[torch.Tensor], tangents: list[torch.Tensor | None]
    ) -> list[torch.Tensor]:
        self.count = references(tangents, 0)
        return [torch.zeros(2)]
