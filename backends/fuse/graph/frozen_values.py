"""What is known when a graph is compiled because weights are frozen, and which weights it was computed from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from framejit.backends.frozen_weights import FrozenWeight, frozen
from framejit.backends.fuse.graph.computation import Result, Weight, real
from framejit.backends.fuse.graph.graph import Constant, Graph
from framejit.backends.fuse.graph.known import MOST_BYTES, KnownValues
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.value import Value


def frozen_weights(
    graph: Graph, gm: fx.GraphModule, examples: Sequence[torch.Tensor]
) -> dict[int, tuple[torch.Tensor, FrozenWeight]]:
    """By position the inputs whose content may be used, and what goes with each; a graph that writes into one may not
    use it."""
    marks = [frozen(node) for node in gm.graph.nodes if node.op == "placeholder"]
    written = graph.written()
    given = enumerate(zip(graph.inputs, examples, marks))
    return {
        position: (example.detach(), mark)
        for position, (value, example, mark) in given
        if mark and value.storage not in written
    }


def frozen_values(graph: Graph, gm: fx.GraphModule | None, examples: Sequence[torch.Tensor]) -> FrozenValues | None:
    """The values of a graph that frozen weights decide; None if it has no such weights."""
    weights = {} if gm is None else frozen_weights(graph, gm, examples)
    if not weights:
        return None
    known = FrozenValues(graph, weights)
    for node in graph.nodes:
        known.note(node)
    return known


class FrozenValues(KnownValues):
    """The values of what depends on frozen weights, and which weights these are."""

    def __init__(self, graph: Graph, weights: dict[int, tuple[torch.Tensor, FrozenWeight]]) -> None:
        self.weights = {graph.inputs[position]: given for position, given in weights.items()}
        super().__init__(
            graph, {graph.inputs[position]: Weight(position, tensor) for position, (tensor, _) in weights.items()}
        )
        self._memory = {weight.untyped_storage()._cdata for weight, _ in weights.values()}
        self._made_of: dict[Value, frozenset[Value]] = {value: frozenset((value,)) for value in self.weights}

    def note(self, node: Node) -> None:
        super().note(node)
        made_of = self._weights_behind([*node.values()])
        for value in node.returned():
            if value in self._values:
                self._made_of[value] = made_of

    def most_bytes(self, node: Node) -> int:
        weights = [self.weights[value][0] for value in self._weights_behind([*node.values()])]
        return max(
            MOST_BYTES,
            sum(weight.numel() * weight.itemsize * (2 if weight.is_floating_point() else 1) for weight in weights),
        )

    def knows(self, value: Value) -> bool:
        """Whether a value is the same in each call."""
        return value in self._values

    def number(self, value: Value) -> torch.Tensor:
        """The tensor that a known value is; it may be a view of a weight."""
        tensor: torch.Tensor = real(self._values[value])
        return tensor

    def operand(self, value: Value | None) -> torch.Tensor | Weight | Result | None:
        """A value that is known as what further computations take."""
        return None if value is None else self._values[value]

    def is_view(self, value: Value) -> bool:
        """Whether what a value is lies in a weight's own memory."""
        return not self.is_apart(self.number(value))

    def folded(self, node: Node) -> list[Constant] | None:
        """The constants that take the place of an operation's results, if these were computed from weights and have
        memory of their own; else None."""
        given = {value.storage for value in node.values()}
        results = [*node.returned()]
        if not self._weights_behind([*node.values()]) or any(value.storage in given for value in results):
            return None
        known = [
            Constant(tensor, made=made)
            for value in results
            if (tensor := self.value(value)) is not None
            and isinstance(made := self._values[value], Result)
            and self.is_apart(tensor)
        ]
        return known if len(known) == len(results) else None

    def is_apart(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor has memory of its own."""
        return tensor.untyped_storage()._cdata not in self._memory

    def mark(self, *values: Value) -> None:
        """Have the content of the weights guarded that these values were computed from."""
        for weight in self._weights_behind(values):
            self.weights[weight][1].folded = True

    def _weights_behind(self, values: Sequence[Value]) -> frozenset[Value]:
        return frozenset().union(*(self._made_of.get(value, ()) for value in values))
