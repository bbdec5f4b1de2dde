"""Graphs that write into an input, compiled by others, where inputs share memory.

A compiler, torch's own among them, decides by its example inputs which of them a write shows in. Called with inputs
that share memory in another way, such a graph runs operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

Sharing = tuple[tuple[int, Any], ...]


def sharing(tensors: Sequence[torch.Tensor]) -> Sharing | None:
    """Which tensors lie in the same memory, and where; None where each has its own."""
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    if len(set(storages)) == len(storages):
        return None
    return tuple(
        (storages.index(storage), tensor.storage_offset() if storages.count(storage) > 1 else 0)
        for storage, tensor in zip(storages, tensors)
    )


def writes_into_inputs(gm: fx.GraphModule) -> bool:
    """Whether an operation of a captured graph writes into memory of an input."""
    inputs = {_storage(node.meta.get("val")) for node in gm.graph.find_nodes(op="placeholder")} - {None}
    return any(_storage(fake) in inputs for node in gm.graph.nodes for fake in node.meta.get("written", ()))


def _storage(fake: Any) -> int | None:
    return fake.untyped_storage()._cdata if isinstance(fake, torch.Tensor) else None


def for_this_sharing(
    compiled: Callable[..., Any], plain: Callable[..., Any], examples: Sequence[torch.Tensor]
) -> Callable[..., Any]:
    """`compiled` where inputs share memory as the examples do, and else `plain`."""
    expected = sharing(examples)

    def call(*inputs: torch.Tensor) -> Any:
        return (compiled if sharing(inputs) == expected else plain)(*inputs)

    return call


def copied(gm: fx.GraphModule) -> Callable[..., Any]:
    """A function that runs the nodes of a graph as they are now; a backend may change the graph afterwards."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    return fx.GraphModule(gm, graph).forward
