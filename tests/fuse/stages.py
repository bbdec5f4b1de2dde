"""The stages in front of the schedule, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.passes.pipeline import run_passes
from framejit.backends.fuse.graph.record import record_graph
from framejit.backends.fuse.loop_ir.nodes import LoweredGraph
from framejit.backends.fuse.lowering.lower_graph import lower_graph
from framejit.backends.fuse.lowering.whole import keeps
from framejit.symbols.conditions import Conditions


def passed(gm: fx.GraphModule, examples: Sequence[torch.Tensor], conditions: Conditions | None = None) -> Graph:
    """The graph that passes leave of a captured one."""
    return run_passes(record_graph(gm, examples, keeps, conditions), gm, examples)


def lower(gm: fx.GraphModule, examples: Sequence[torch.Tensor], conditions: Conditions | None = None) -> LoweredGraph:
    """The loops and ATen calls for a captured graph."""
    graph = passed(gm, examples, conditions)
    tensors = (*examples, *(constant.tensor for constant in graph.constants.values()))
    return lower_graph(graph, torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))
