"""Composite operations that lowering has no use for give way to what they consist of, by eager's own decomposition."""

from __future__ import annotations

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.passes.pass_context import Context
from framejit.backends.fuse.lowering.whole import keeps


def decompose(graph: Graph, context: Context) -> Graph:
    """Leave no composite operation but those that are lowered, or that ATen does best in one."""
    graph.expand(lambda node: not keeps(node.operation))
    return graph
