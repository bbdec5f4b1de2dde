"""Dropout does nothing where there is no training, or nothing is dropped."""

from __future__ import annotations

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.passes.pass_context import Context
from framejit.backends.fuse.graph.record import DROPOUTS


def dropout(graph: Graph, context: Context) -> Graph:
    """Leave out those that give what they are given."""

    def instead(node: Node) -> list[Node] | None:
        is_one = node.operation.name().removesuffix("_") in DROPOUTS
        return [] if is_one and not (node.args[1] and node.args[2]) else None

    graph.rewrite(instead)
    return graph
