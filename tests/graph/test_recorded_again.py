"""Graphs that are written down a second time, with other layouts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import fx

import framejit
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.record import Recorder, operations_of
from framejit.backends.fuse.graph.replay import recorded_again
from framejit.backends.fuse.lowering.whole import keeps


def test_the_programs_autocast_is_as_it_was():
    graphs: list[Graph] = []

    def backend(gm: fx.GraphModule, examples: list[torch.Tensor]):
        graphs.append(operations_of(gm, keeps))
        return gm.forward

    def f(x, w):
        with torch.autocast("cpu", torch.float16):
            return F.interpolate(F.linear(x, w)[None], scale_factor=2.0).float()

    before = torch.get_autocast_dtype("cpu")
    assert before == torch.bfloat16
    with torch.no_grad():
        framejit.optimize(f, backend=backend)(torch.randn(1, 2, 3), torch.randn(4, 3))
    (graph,) = graphs
    assert any(node.autocast for node in graph.nodes)
    with torch.no_grad():
        again = recorded_again(graph, lambda made: Recorder(made, keeps))
    assert [node.operation for node in again.nodes] == [node.operation for node in graph.nodes]
    assert (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")) == (False, before)
