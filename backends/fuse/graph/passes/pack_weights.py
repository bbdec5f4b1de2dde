"""Frozen weights of convolutions and linear layers on CPUs are laid out once, as kernels of ours or the library want
them.

`layouts` has given the convolutions channels-last inputs before, so that what they give lies as it did.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from framejit.backends.fuse.graph.computation import Computation, Result, Weight, plainly
from framejit.backends.fuse.graph.direct_convolution import (
    DIRECT,
    blocked_weight,
    convolution_arguments,
    is_direct,
    of_both,
)
from framejit.backends.fuse.graph.direct_linear import DIRECT_LINEAR, is_direct_linear, linear_arguments
from framejit.backends.fuse.graph.frozen_values import FrozenValues, frozen_values
from framejit.backends.fuse.graph.graph import Constant, Graph
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.packed_operations import (
    CONVOLUTION,
    PRODUCT,
    packed_convolution_weight,
    packed_product_weight,
)
from framejit.backends.fuse.graph.packed_weights import packs_convolution, packs_product
from framejit.backends.fuse.graph.passes.pass_context import Context
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.targets.lookup import target_of
from framejit.fakes.light_torch import light

Made = Callable[[Weight | Result], Computation]
"""The packing of a weight."""
Arguments = Callable[[Any], tuple[Any, ...]]
"""The arguments of an operation, given the packed weight."""


def pack_weights(graph: Graph, context: Context) -> Graph:
    """Put operations with packed weights in place of others, where the packed weight gives the same layout of the
    result. The weights are marked as folded."""
    if any(packs_convolution(node) or packs_product(node) for node in graph.nodes):
        with plainly():
            known = frozen_values(graph, context.gm, context.examples)
            if known is not None:
                _Packing(graph, known).run()
    return graph


class _Packing:
    def __init__(self, graph: Graph, known: FrozenValues) -> None:
        self.graph, self.known = graph, known
        self.packed: dict[tuple[Any, ...], Value] = {}
        """The packed weights by what they were made of and for: layers may share one."""

    def run(self) -> None:
        graph = self.graph
        with light():
            graph.rewrite(self._instead)
        used = {*graph.returned()}
        graph.constants = {  # without what was packed
            value: constant
            for value, constant in graph.constants.items()
            if not constant.made or value.users or value in used
        }

    def _instead(self, node: Node) -> list[Node] | None:
        if packs_convolution(node):
            return self._convolution(node)
        return self._product(node) if packs_product(node) else None

    def _convolution(self, node: Node) -> list[Node] | None:
        x, weight, bias, stride, padding, dilation, groups = convolution_arguments(node)
        how = of_both(padding), of_both(stride), of_both(dilation), groups
        if is_direct(node):
            return self._packed(
                node, weight, _in_blocks(weight), DIRECT, lambda weight: (x, weight, bias, how[1], how[0], how[2])
            )

        def made(weight: Weight | Result) -> Computation:
            return Computation(packed_convolution_weight, (weight, *how, [*x.shape]))

        return self._packed(
            node, weight, made, CONVOLUTION, lambda weight: (x, weight, bias, *how, "none", [], "")
        )

    def _product(self, node: Node) -> list[Node] | None:
        arguments = linear_arguments(node)
        assert arguments is not None
        x, weight, bias, is_transposed = arguments
        if is_direct_linear(node):
            made = _in_blocks(weight, is_transposed)
            return self._packed(node, weight, made, DIRECT_LINEAR, lambda weight: (x, weight, bias))
        rows = math.prod(x.shape[:-1])

        def for_library(weight: Weight | Result) -> Computation:
            return Computation(packed_product_weight, (weight, rows))

        return self._packed(node, weight, for_library, PRODUCT, lambda packed: (x, packed, weight, bias, rows))

    def _packed(
        self, node: Node, weight: Value, made: Made, operation: torch._ops.OpOverload | None, arguments: Arguments
    ) -> list[Node] | None:
        """The node with a packed weight, if the weight is known and the result lies as it did."""
        operand = self._operand(weight)
        if operand is None or operation is None:
            return None
        computation = made(operand)
        key = (weight, computation.function, str(computation.args[1:]))
        value = self.packed.get(key)
        if value is None:
            shape = computation.outcome().shape
            with self.graph.fake_mode:
                value = Value(torch.empty(shape, dtype=weight.dtype, device=weight.device))
        with self.graph.fake_mode:
            result = operation(*(_fake(argument) for argument in arguments(value)))
        if tuple(result.shape) != node.result.shape or result.stride() != node.result.strides:
            return None
        if key not in self.packed:
            self.packed[key] = value
            self.graph.constant(value, Constant(computation.outcome(), made=Result(computation)))
            if weight not in self.graph.constants:
                self.known.mark(weight)
        node.detach()
        return [Node(operation, arguments(value), {}, node.result, node.origin)]

    def _operand(self, weight: Value) -> Weight | Result | None:
        """How a weight is known."""
        constant = self.graph.constants.get(weight)
        if constant is not None:
            return constant.made
        operand = self.known.operand(weight) if self.known.knows(weight) else None
        return operand if isinstance(operand, (Weight, Result)) else None


def _in_blocks(weight: Value, is_transposed: bool = False) -> Made:
    """The packing of a weight for kernels of ours."""
    block = target_of(weight.device).channel_block(weight.shape[int(is_transposed)])
    return lambda operand: Computation(blocked_weight, (operand, block, is_transposed))


def _fake(argument: Any) -> Any:
    return argument.fake if isinstance(argument, Value) else argument
