"""Autocast converts the operations that it knows before they are recorded. Of composite operations that it does not know it converts the parts: these take
their place, with the conversions among them."""

from __future__ import annotations

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.passes.context import Context


def autocast(graph: Graph, context: Context) -> Graph:
    """Have nothing left that autocast does something to."""
    graph.expand(lambda node: bool(node.autocast))
    return graph
