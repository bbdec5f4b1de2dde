"""A part of a graph as a graph of its own."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx


def subgraph(inputs: Iterable[fx.Node], nodes: Iterable[fx.Node], results: Iterable[fx.Node]) -> fx.GraphModule:
    """A graph that does what `nodes` do, of what `inputs` give, and returns the tuple of `results`."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in results))
    return fx.GraphModule(torch.nn.Module(), graph)
