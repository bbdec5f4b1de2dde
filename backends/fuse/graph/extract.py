"""Graphs made of some of another's operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node, map_values, values_in
from framejit.backends.fuse.graph.value import Storage, Value


def extracted(
    source: Graph, inputs: Sequence[Value], names: Sequence[str], nodes: Sequence[Node], outputs: Sequence[Any],
    writes: dict[int, int], instead: Mapping[Value, Value] | None = None
) -> Graph:
    """A graph of its own with some of another's nodes, in order, and values in the place of its own.

    writes: Its `counted_writes`.
    instead: By values that none of the nodes makes those that are to be taken, and that lie in memory as they do.
    """
    made: dict[Value, Value] = {}
    storages: dict[Storage, Storage] = {}
    instead = instead or {}
    lies_in = {value.storage: other.storage for value, other in instead.items()}

    def copied(value: Value) -> Value:
        value = instead.get(value, value)
        known = made.get(value)
        if known is None:
            base = None if value.base is None else made.get(instead.get(value.base, value.base))
            storage = lies_in.get(value.storage, value.storage)
            known = made[value] = Value(value.fake, storages.get(storage), base)
            storages[storage] = known.storage
        return known

    graph = Graph(names=[*names], counted_writes=writes, fake_mode=source.fake_mode, conditions=source.conditions)
    graph.inputs = [copied(value) for value in inputs]
    used = {value for node in nodes for value in node.values()} | {*values_in(outputs)}
    for value, constant in source.constants.items():
        if value in used:
            graph.constant(copied(value), constant)
    for node in nodes:
        args = tuple([map_values(arg, copied) for arg in node.args])
        kwargs = {key: map_values(arg, copied) for key, arg in node.kwargs.items()}
        graph.append(Node(node.operation, args, kwargs, map_values(node.result, copied), node.origin))
    graph.outputs = [map_values(output, copied) for output in outputs]
    return graph
