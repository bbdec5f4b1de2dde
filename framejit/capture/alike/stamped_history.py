"""The history that autograd has of what is stamped out: one node of autograd's for all operations of a layer.

Fakes have the history that real tensors are going to have: gradients that captured code asks for are worked out on
them. What a layer gives that is stamped out comes out of one node, which leads to the inputs that those of the first
layer lead to from what that gives. If a gradient comes to it, the first layer's operations are gone through backwards,
with that gradient: fakes differ in nothing but whose they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from framejit.fakes.arguments import tensors_in
from framejit.fakes.light_torch import light
from framejit.fakes.operation_results import empty_fake
from framejit.fakes.repeated_calls import is_like


class Ends(NamedTuple):
    """What a layer gives that gradients may come to, and what they go on to from there."""

    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]


class StampedHistory:
    """The history of the operations of a layer that was captured."""

    def __init__(self, nodes: Sequence[fx.Node]) -> None:
        self._nodes = nodes
        own = {*nodes}
        self._inputs = [*dict.fromkeys(
            taken for node in nodes for taken in node.all_input_nodes
            if taken not in own and isinstance(_fake(taken), torch.Tensor)
        )]
        self._versions = self._versions_now()
        self._found: dict[tuple[frozenset[fx.Node], frozenset[fx.Node]], Ends | None] = {}

    def ends(self, again: set[fx.Node], given: set[fx.Node]) -> Ends | None:
        """What can't be worked out again where `again` is, and nothing else: it is made of other results of the layer.
        `given`: what something else may come to see. None where one node can't stand for what led to it."""
        if self._versions != self._versions_now():  # going backwards would raise, if not in another layer
            return None
        key = frozenset(again), frozenset(given)
        if key not in self._found:
            self._found[key] = self._ends(again, given)
        return self._found[key]

    def made(self, ends: Ends, fakes: Mapping[fx.Node, Any], mode: FakeTensorMode) -> list[torch.Tensor] | None:
        """The ends of another layer, with these for the inputs; None where one comes out otherwise."""
        if not ends.nodes:
            return []
        first = [_fake(node) for node in ends.nodes]
        with light(), torch.enable_grad():
            inputs = [fakes[node] if node in fakes else _fake(node) for node in ends.inputs]
            made = [*_AsFirst.apply(mode, first, [_fake(node) for node in ends.inputs], *inputs)]
        return made if all(map(is_like, first, made)) else None

    def _versions_now(self) -> list[int]:
        fakes = tensors_in([_fake(node) for node in (*self._inputs, *self._nodes)])
        return [-1 if fake.is_inference() else fake._version for fake in fakes]

    def _ends(self, again: set[fx.Node], given: set[fx.Node]) -> Ends | None:
        known, ends = {*self._inputs}, list[fx.Node]()
        for node in self._nodes:
            if node not in again:
                continue
            if any(fake.requires_grad for fake in tensors_in((_fake(node),))) and not known.issuperset(
                taken for taken in node.all_input_nodes if isinstance(_fake(taken), torch.Tensor)
            ):
                fake = _fake(node)
                if not isinstance(fake, torch.Tensor) or fake._is_view() or fake._has_symbolic_sizes_strides:
                    return None
                ends.append(node)
            known.add(node)
        reached = [self._reached(end, given) for end in ends]
        if any(inputs is None or inputs != reached[0] for inputs in reached):
            return None
        return Ends(tuple(ends), tuple(reached[0] or ()) if reached else ())

    def _reached(self, end: fx.Node, given: set[fx.Node]) -> list[fx.Node] | None:
        """The inputs that gradients go to from an end. None where they go elsewhere, or through what is given, too."""
        leaves = {id(_fake(node)): node for node in self._inputs if _fake(node).is_leaf}
        edges = {_edge(_fake(node)): node for node in self._inputs if _fake(node).grad_fn is not None}
        others = [fake for node in given if node is not end for fake in tensors_in((_fake(node),))]
        stops = {fake.grad_fn for fake in others if fake.grad_fn is not None}
        found: set[fx.Node] = set()
        seen: set[Any] = set()
        waiting: list[Any] = [_fake(end).grad_fn]
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            variable = getattr(node, "variable", None)
            if isinstance(variable, torch.Tensor):
                if id(variable) not in leaves:
                    return None
                found.add(leaves[id(variable)])
                continue
            if node in stops or not node.next_functions:
                return None
            for before, number in node.next_functions:
                if (before, number) in edges:
                    found.add(edges[before, number])
                elif before is not None:
                    waiting.append(before)
        return [node for node in self._inputs if node in found]


class _AsFirst(torch.autograd.Function):
    """Gives what a layer gives, with a backward that is the first layer's."""

    @staticmethod
    def forward(
        ctx: Any, mode: FakeTensorMode, first: list[Any], inputs: list[torch.Tensor], *given: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.first, ctx.inputs = first, inputs
        ctx.set_materialize_grads(False)
        return tuple(
            empty_fake(mode, tuple(fake.shape), fake.stride(), fake.dtype, fake.fake_device) for fake in first
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        come = [(fake, gradient) for fake, gradient in zip(ctx.first, gradients) if gradient is not None]
        if torch.is_grad_enabled():  # whose history would lead to the first layer's
            raise RuntimeError("a layer that was stamped out has no gradients of gradients")
        if not come:
            return (None,) * (3 + len(ctx.inputs))
        found = torch.autograd.grad(
            [fake for fake, _ in come], ctx.inputs, [gradient for _, gradient in come], retain_graph=True,
            allow_unused=True,
        )
        return None, None, None, *found


def _fake(node: fx.Node) -> Any:
    return node.meta["val"]


def _edge(fake: torch.Tensor) -> tuple[Any, int]:
    return fake.grad_fn, fake.output_nr
