"""Random numbers that kernels are to make themselves, where the device's do: a key is drawn once, and each draw is an
operation that gives the same for the same key, so that it fuses, and is computed again rather than kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.passes.pass_context import Context
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.random_numbers.drawings import Drawing, Gives, drawing_of, scale_of_dropout
from framejit.backends.fuse.random_numbers.operations import BERNOULLI, DRAW_KEY, KEY_RANGE, computed_in
from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.graph_identity import SAME_RANDOM_NUMBERS
from framejit.fakes.light_torch import light

aten = torch.ops.aten


def philox(graph: Graph, context: Context) -> Graph:
    """Have kernels make random numbers, unless those are wanted that eager draws. Halves have come here in one."""
    if context.gm is None or context.gm.meta.get(SAME_RANDOM_NUMBERS):
        return graph
    return with_random_numbers_of_kernels(graph)


def with_random_numbers_of_kernels(graph: Graph) -> Graph:
    """The graph, in which what `drawings` gives is not drawn by ATen."""
    found = dict(drawings(graph))
    if found:
        _Rewriting(graph, found).run()
    return graph


def drawings(graph: Graph) -> Iterator[tuple[Node, Drawing]]:
    """The forward operations of a graph that draw what kernels can make, in order, with what they draw."""
    for node in graph.nodes:
        if node.ordered and not node.origin.is_backward:
            first = next(node.returned(), None)
            if first is not None and target_of(first.device).makes_random_numbers:
                drawing = drawing_of(node.operation, node.args, node.kwargs, first)
                if drawing is not None:
                    yield node, drawing


class _Rewriting:
    def __init__(self, graph: Graph, found: dict[Node, Drawing]) -> None:
        self.graph, self.found = graph, found
        self.number = {node: number for number, node in enumerate(found)}
        self.keys: dict[torch.device, Node] = {}
        """For each device what draws the key."""

    def run(self) -> None:
        graph = self.graph
        with light(), graph.fake_mode, enable_python_dispatcher() if graph.conditions is not None else nullcontext():
            graph.rewrite(self._instead)

    def _instead(self, node: Node) -> list[Node] | None:
        drawing = self.found.get(node)
        if drawing is None:
            return None
        known = {*self.keys}
        nodes = self._drawn_nodes(node, drawing)
        # it stands where its first draw does, among others that ATen draws
        return [*(key for device, key in self.keys.items() if device not in known), *nodes]

    def _drawn_nodes(self, node: Node, drawing: Drawing) -> list[Node]:
        if drawing.gives in (Gives.LEFT, Gives.LEFT_AND_MASK):
            return self._dropout(node, *(node.result if drawing.gives is Gives.LEFT_AND_MASK else (node.result, None)))
        made = node.result if drawing.gives is Gives.NUMBERS else self._like(node.args[0])
        dtype = torch.bool if drawing.operation is BERNOULLI else made.dtype
        if made.dtype == dtype:
            nodes = [self._drawn(node, made)]
        else:
            drawn = self._like(made, dtype)
            nodes = [self._drawn(node, drawn), _cast(drawn, made, node)]
        if drawing.gives is Gives.WRITTEN:
            nodes.append(Node(aten.copy_.default, (node.args[0], made), {}, node.result, node.origin))
        return nodes

    def _dropout(self, node: Node, left: Value, mask: Value | None) -> list[Node]:
        """What is left of the argument by its product with what the mask says, which is 0 or the scale: as ATen's
        kernel, in the dtype that it computes in, and rounded once."""
        x, p = node.args[:2]
        kind = computed_in(x.dtype)
        mask = mask or self._like(left, torch.bool)
        kept, scales = self._like(left, kind), self._like(left, kind)
        nodes = [
            self._drawn(node, mask), _cast(mask, kept, node),
            Node(aten.mul.Scalar, (kept, scale_of_dropout(p, x.dtype)), {}, scales, node.origin),
        ]
        wide = left if left.dtype == kind else self._like(left, kind)
        nodes.append(Node(aten.mul.Tensor, (x, scales), {}, wide, node.origin))
        return nodes if wide is left else [*nodes, _cast(wide, left, node)]

    def _drawn(self, node: Node, result: Value) -> Node:
        """The node that gives the numbers."""
        drawing = self.found[node]
        args, kwargs = drawing.arguments(
            self._key(node, result.device), self.number[node], result.shape, result.strides, result.dtype
        )
        return Node(drawing.operation, args, kwargs, result, node.origin)

    def _key(self, node: Node, device: torch.device) -> Any:
        if device not in self.keys:
            key = Value(torch.empty(1, dtype=torch.int64, device=device))
            # what a checkpoint computes again takes the key that was drawn for it
            self.keys[device] = Node(
                DRAW_KEY, (*KEY_RANGE, [1]), {"dtype": torch.int64, "device": device}, key,
                replace(node.origin, checkpoint=0),
            )
        return self.keys[device].result

    def _like(self, value: Value, dtype: torch.dtype | None = None) -> Value:
        return Value(torch.empty_strided(value.shape, value.strides, dtype=dtype or value.dtype, device=value.device))


def _cast(value: Value, made: Value, node: Node) -> Node:
    return Node(aten._to_copy.default, (value,), {"dtype": made.dtype}, made, node.origin)
