"""Joint graphs of functions, as they would be on a GPU of which nothing is asked (`standing_in("cpu", AbsentGpu)`):
autograd records nothing on devices that are not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from framejit.backends.fuse.graph.entrances import Entrance
from framejit.backends.fuse.targets.cuda import CudaTarget
from framejit.backends.fuse.training.joint import JointGraph, Recorded
from framejit.fakes.light_torch import light


class AbsentGpu(CudaTarget):
    """A GPU of which nothing is asked."""

    is_there = False


def joint_graph(function: Callable[..., Any], leaves: Sequence[torch.Tensor]) -> JointGraph:
    """Forward and backward of a function of leaves that lie as these tensors do."""
    with light(), FakeTensorMode(allow_fallback_kernels=False):
        fakes = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).requires_grad_() for x in leaves]
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{position}") for position in range(len(fakes))]
    for node, fake in zip(nodes, fakes):
        node.meta["val"] = fake
    graph.output((graph.call_function(function, tuple(nodes)),))
    return Recorded(fx.GraphModule(torch.nn.Module(), graph), [Entrance.LEAF] * len(fakes)).joint()
