"""Tensors that the program makes of numbers, at each call fresh ones: filled, or copied from those that were
recorded."""

from __future__ import annotations

import torch

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.passes.pass_context import Context


def numbers(graph: Graph, context: Context) -> Graph:
    """Leave no `lift_fresh`, which for ATen gives the very tensor that it is given."""

    def instead(node: Node) -> list[Node] | None:
        if node.operation is not torch.ops.aten.lift_fresh.default:
            return None
        (given,) = node.args
        tensor = graph.constants[given].tensor
        if tensor.dim():
            return [Node(torch.ops.aten.clone.default, (given,), {}, node.result, node.origin)]
        del graph.constants[given]
        return [
            Node(
                torch.ops.aten.scalar_tensor.default, (tensor.item(),),
                {"dtype": tensor.dtype, "device": tensor.device}, node.result, node.origin,
            )
        ]

    graph.rewrite(instead)
    return graph
