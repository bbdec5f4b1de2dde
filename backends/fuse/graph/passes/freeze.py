"""Frozen weights: what a graph computes from nothing but them is computed once, while it is compiled.

Such are weights in another dtype (autocast converts them at each call) or in channels-last memory, and weights with a
parametrisation. A view of a weight costs nothing and stays a view. What is kept takes memory for as long as the
compiled graph lives: no more than twice that of the floating weights it was made of, and no more than that of weights
of integers, which are small for a reason.
"""

from __future__ import annotations

from framejit.backends.fuse.graph.computation import plainly
from framejit.backends.fuse.graph.frozen_values import FrozenValues, frozen_values
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.passes.pass_context import Context


def freeze(graph: Graph, context: Context) -> Graph:
    """Have constants for what depends on frozen weights alone, and leave out what only these needed. The weights are
    marked as folded."""
    with plainly():
        known = frozen_values(graph, context.gm, context.examples)
        if known is not None:
            _replace(graph, known)
    return graph


def _replace(graph: Graph, known: FrozenValues) -> None:
    """Goes through the operations backwards, so that only what is needed is computed."""
    returned = {*graph.returned()}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        results = [*node.returned()]
        if results and all(map(known.knows, results)):
            if not any(value in returned or value.users for value in results):
                node.detach()
                continue
            constants = known.folded(node)
            if constants is not None:
                node.detach()
                for value, constant in zip(results, constants):
                    value.maker = None
                    graph.constant(value, constant)
                    known.mark(value)
                continue
        kept.append(node)
    graph.nodes = kept[::-1]
