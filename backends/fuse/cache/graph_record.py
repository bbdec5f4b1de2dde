"""A recorded graph as plain data and back, as far as it takes to run it by ATen (`graph/execute.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from framejit.backends.fuse.cache.kept_plan import operation_of
from framejit.backends.fuse.cache.plan_key import NotCacheable, SymbolicSizes
from framejit.backends.fuse.cache.value_record import ValueReader, ValueWriter, index
from framejit.backends.fuse.graph.graph import Constant, Graph
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.origin import UNKNOWN
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.sizes.symbolic_size import as_size, as_sizes
from framejit.symbols.expression import Symbol


def written_graph(graph: Graph, symbols: Sequence[Symbol]) -> list[Any]:
    """A graph without composite operations as plain data, but for its constants. Raises NotCacheable."""
    writer = _Writer(symbols)
    inputs = [writer.value(value) for value in graph.inputs]
    constants = [writer.value(value) for value in graph.constants]
    nodes = [writer.node(node) for node in graph.nodes]
    outputs = [writer.value(output) for output in graph.outputs]
    return [writer.table, inputs, constants, nodes, outputs, [*graph.counted_writes.items()], [*graph.versions.items()]]


def read_graph(data: Any, constants: Sequence[torch.Tensor], sizes: SymbolicSizes | None) -> Graph:
    """The graph that was written as this, with these constants. Raises BadRecord, or whatever data that is none leads
    to."""
    table, inputs, known, nodes, outputs, counted_writes, versions = data
    reader = _Reader(table, sizes)
    graph = Graph(
        inputs=[reader.value(value) for value in inputs], counted_writes=dict(counted_writes), versions=dict(versions)
    )
    for value, tensor in zip(known, constants, strict=True):
        graph.constant(reader.value(value), Constant(tensor, literal=True))
    for name, args, kwargs, result in nodes:
        graph.append(
            Node(operation_of(name), reader.value(args), reader.value(kwargs), reader.value(result), UNKNOWN)
        )
    graph.outputs = [reader.value(output) for output in outputs]
    return graph


class _Writer(ValueWriter):
    def __init__(self, symbols: Sequence[Symbol]) -> None:
        super().__init__(symbols)
        self.table: list[Any] = []
        self._numbers: dict[Value, int] = {}

    def node(self, node: Node) -> list[Any]:
        if node.parts or node.autocast:
            raise NotCacheable(f"{node.operation} consists of others")
        return [node.operation.name(), *map(self.value, (node.args, node.kwargs, node.result))]

    def other(self, value: Any) -> Any:
        if type(value) is not Value:
            return super().other(value)
        number = self._numbers.setdefault(value, len(self._numbers))
        if number == len(self.table):
            facts = (value.dtype, value.device, as_sizes(value.shape), as_sizes(value.strides), as_size(value.offset))
            self.table.append([*map(self.value, facts)])
        return ["tensor", number]


class _Reader(ValueReader):
    def __init__(self, table: Sequence[Any], sizes: SymbolicSizes | None) -> None:
        super().__init__(sizes)
        self._values = [Value.described(*map(self.value, facts)) for facts in table]

    def other(self, kind: Any, rest: Sequence[Any]) -> Any:
        return self._values[index(rest[0], len(self._values))] if kind == "tensor" else super().other(kind, rest)
