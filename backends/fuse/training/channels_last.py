"""Convolutions of half precision on a GPU, forward and backward, in channels-last memory.

They run on tensor cores in no other, and would copy everything there and back in each: in a step of a ResNet-50 on an
H200 a fifth of the time. What lies between two convolutions then stays as they leave it. Outputs and gradients keep the
strides that eager gives them.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.passes.layouts import HALF, in_channels_last
from framejit.backends.fuse.graph.replay import recorded_again
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.fuse.training.recorder import TrainingRecorder

CONVOLUTIONS: Final = {torch.ops.aten.convolution.default: 2, torch.ops.aten.convolution_backward.default: 3}
"""How many of the first arguments are images and weights."""
CONTIGUOUS: Final = {
    torch.ops.aten.native_group_norm.default: 1, torch.ops.aten.native_group_norm_backward.default: 2,
}
"""Operations that eager gives contiguous images on GPUs, whose kernels there take no others: how many come first."""


def channels_last(graph: Graph) -> tuple[Graph, dict[Value, Value]]:
    """The graph with its convolutions in channels-last memory, where that is quicker and nothing stands against it;
    what was copied into that, by the copy."""
    if not any(_prefers_channels_last(node.operation, node.args) for node in graph.nodes):
        return graph, {}
    recorders: list[_ChannelsLast] = []

    def recorder(new: Graph) -> _ChannelsLast:
        recorders.append(_ChannelsLast(new))
        return recorders[-1]

    try:
        return recorded_again(graph, recorder), recorders[-1].copied()
    except NotFusable:
        return graph, {}


def _prefers_channels_last(operation: Any, args: Any) -> bool:
    tensors = args[: CONVOLUTIONS.get(operation, 0)]
    return bool(tensors) and all(
        tensor.dim() == 4 and tensor.dtype in HALF and target_of(tensor.device).prefers_layouts for tensor in tensors
    )


class _ChannelsLast(TrainingRecorder):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """Fakes with their copies, by the ids of the former. No graph that comes here writes into what it has read."""

    def carry_out(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.is_backward = self.origin.is_backward
        if _prefers_channels_last(func, args):
            count = CONVOLUTIONS[func]
            args = (*map(self._copy, args[:count]), *args[count:])
        elif func in CONTIGUOUS:
            count = CONTIGUOUS[func]
            with self:
                args = (*map(_contiguous, args[:count]), *args[count:])
        return super().carry_out(func, args, kwargs)

    def copied(self) -> dict[Value, Value]:
        """What was copied, by the copy."""
        return {self.value(copy): self.value(tensor) for tensor, copy in self._copies.values() if copy is not tensor}

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        known = self._copies.get(id(tensor))
        if known is None:
            with self:
                known = self._copies[id(tensor)] = tensor, in_channels_last(tensor)
        return known[1]


def _contiguous(image: torch.Tensor) -> torch.Tensor:
    return image if image.is_contiguous() else image.clone(memory_format=torch.contiguous_format)
