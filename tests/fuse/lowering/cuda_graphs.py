"""Functions of tensors that are said to be on a GPU, as kernels; no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from framejit.backends.fuse.loop_ir.nodes import ExternNode, Kernel, LoweredGraph
from framejit.backends.fuse.schedule.make_kernels import schedule
from framejit.fakes.light_torch import light
from tests.fuse.stages import lower


def scheduled_for_cuda(f: Callable[..., Any], *inputs: torch.Tensor) -> list[Kernel | ExternNode]:
    """The steps that `f` takes for inputs of these sizes, strides and dtypes."""
    return schedule(lowered_for_cuda(f, *inputs))


def lowered_for_cuda(f: Callable[..., Any], *inputs: torch.Tensor) -> LoweredGraph:
    """The loops of `f` for inputs of these sizes, strides and dtypes."""
    with light():
        mode = FakeTensorMode(allow_fallback_kernels=False)
        with mode:
            fakes = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda") for x in inputs]
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{position}") for position in range(len(inputs))]
    for node, fake in zip(nodes, fakes):
        node.meta["val"] = fake
    result = graph.call_function(f, tuple(nodes))
    count = len(shown) if isinstance(shown := f(*inputs), tuple) else 0
    graph.output(tuple(graph.call_function(getitem, (result, at)) for at in range(count)) if count else (result,))
    return lower(fx.GraphModule(torch.nn.Module(), graph), fakes)
