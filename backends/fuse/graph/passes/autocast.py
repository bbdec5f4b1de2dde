"""Autocast converts the operations that it knows before they are recorded. Of composite operations that it does not
know it converts the parts: these take their place, with the conversions among them. Those that check numbers stay
whole, for their parts do not check them."""

from __future__ import annotations

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.passes.pass_context import Context
from framejit.backends.fuse.lowering.whole import checks_numbers
from framejit.backends.fuse.not_fusable import NotFusable


def autocast(graph: Graph, context: Context) -> Graph:
    """Have nothing left that autocast does something to. Raises NotFusable where it converts a part of an operation
    that has to stay whole."""
    graph.expand(_gives_way)
    return graph


def _gives_way(node: Node) -> bool:
    if not node.autocast or not checks_numbers(node.operation):
        return bool(node.autocast)
    if _is_converted(node, {dtype for _, dtype in node.autocast}):
        raise NotFusable(f"autocast converts inside of {node.name}, which checks numbers")
    return False


def _is_converted(node: Node, dtypes: set[object]) -> bool:
    """Whether a part gives one of the dtypes that autocast converts to."""
    return any(result.dtype in dtypes for part in node.parts for inner in part.all_nodes() for result in inner.results)
