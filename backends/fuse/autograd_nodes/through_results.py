"""Gradients with gradients of their own, of a segment whose own results, or those of others that it takes, the program
still has.

The graph that is run again makes these anew, and the gradients are made of them. Whoever asks for gradients of the
first ones, or has hooks on them, is to find there what comes by way of the gradients, as in eager. So a node of
autograd stands between: what it takes are the tangents, the inputs, and those results.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from framejit.backends.fuse.autograd_nodes.segments import Edge
from framejit.environment.hook_handles import remove_hook

Gradients = list[torch.Tensor | None]


class Shown(NamedTuple):
    """A result of a graph, for as long as the program has it."""

    tensor: weakref.ref[torch.Tensor]
    version: int

    def now(self) -> torch.Tensor | None:
        """The tensor, if it still is what the graph gave."""
        tensor = self.tensor()
        if tensor is None or not tensor.requires_grad or tensor._version != self.version:
            return None
        return tensor


def shown(tensor: torch.Tensor) -> Shown:
    """The note of a result."""
    return Shown(weakref.ref(tensor), tensor._version)


def through_results(
    compute: Callable[[Sequence[torch.Tensor | None]], Gradients], tangents: Sequence[torch.Tensor | None],
    inputs: Sequence[torch.Tensor], results: Sequence[tuple[Edge, torch.Tensor]]
) -> Gradients:
    """What `compute` gives for the tangents, of tensors with a history.

    `inputs`: what the graph was run again with, and has gradients. `results`: what autograd knows them as in the graph
    that was run again, and the first ones.
    """
    leaves = [
        None if tangent is None else tangent.detach().requires_grad_(tangent.requires_grad) for tangent in tangents
    ]
    found = compute(leaves)
    reached = _reached(found, {edge for edge, _ in results})
    taken: list[tuple[GradientEdge, torch.Tensor]] = []
    for tangent, leaf in zip(tangents, leaves):
        if tangent is not None and leaf is not None and leaf.requires_grad:
            taken.append((get_gradient_edge(leaf), tangent))
    taken += [(get_gradient_edge(tensor), tensor) for tensor in inputs]
    taken += [(GradientEdge(*edge), tensor) for edge, tensor in results]
    # What is not reached is not asked for a gradient in eager. Nor is it noted: it may have no node by then, which the
    # gradients keep of what they come to.
    taken = [(edge, tensor) for edge, tensor in taken if (edge.node, edge.output_nr) in reached]
    taken += _other_leaves(found, {(edge.node, edge.output_nr) for edge, _ in taken})
    ended = [edge for edge, _ in results if edge in reached]
    made = _Through.apply(found, [edge for edge, _ in taken], ended, *(tensor for _, tensor in taken))
    return list(made)


def _reached(gradients: Gradients, ends: set[Edge]) -> set[Edge]:
    """What gradients of these gradients come to, if they go no further than `ends`."""
    starts = [get_gradient_edge(each) for each in gradients if each is not None and each.requires_grad]
    todo: list[Edge] = [(edge.node, edge.output_nr) for edge in starts]
    found, seen = set(todo), set[Any]()
    while todo:
        node, output = todo.pop()
        if node in seen or (node, output) in ends:
            continue
        seen.add(node)
        following = [edge for edge in node.next_functions if edge[0] is not None]
        found.update(following)
        todo += following
    return found


def _other_leaves(gradients: Gradients, ends: set[Edge]) -> list[tuple[GradientEdge, torch.Tensor]]:
    """The leaves that they lead to by other ways than `ends`: what a torch.autograd.Function of the program takes for
    its backward, or what torch puts behind one that must not be differentiated twice, to raise on the way there."""
    return [
        (GradientEdge(*edge), edge[0].variable) for edge in _reached(gradients, ends)
        if edge not in ends and hasattr(edge[0], "variable")
    ]


@contextmanager
def _ending_at(edges: Sequence[Edge]) -> Iterator[None]:
    """Lets no gradient through these: through other outputs of their nodes it goes."""
    ended: dict[Any, set[int]] = {}
    for node, output in edges:
        ended.setdefault(node, set()).add(output)
    with ExitStack() as stack:
        for node, outputs in ended.items():

            def end(given: Sequence[Any], outputs: set[int] = outputs) -> Any:
                return tuple([None if place in outputs else gradient for place, gradient in enumerate(given)])

            stack.callback(remove_hook, node.register_prehook(end))
        yield


class _Through(torch.autograd.Function):
    """Gradients that are made of tangents, inputs and results."""

    @staticmethod
    def forward(ctx: Any, found: Gradients, ends: list[GradientEdge], ended: list[Edge], *taken: torch.Tensor) -> Any:
        """`found`: the gradients, with the history that leads to `ends`, where those for `taken` are, and no further
        than to `ended`."""
        ctx.set_materialize_grads(False)
        ctx.found, ctx.ends, ctx.ended, ctx.following = found, ends, ended, [get_gradient_edge(each) for each in taken]
        given = [None if gradient is None else gradient.detach() for gradient in found]
        ctx.mark_non_differentiable(
            *(made for made, gradient in zip(given, found) if gradient is not None and not gradient.requires_grad)
        )
        return tuple(given)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        pairs = [
            (found, gradient) for found, gradient in zip(ctx.found, gradients)
            if gradient is not None and found is not None and found.requires_grad
        ]
        made: list[Any] = [None] * len(ctx.ends)
        wanted = [place for place, edge in enumerate(ctx.following) if _is_wanted(edge)]
        if pairs and wanted:
            with _ending_at(ctx.ended):
                gradients = torch.autograd.grad(
                    [found for found, _ in pairs], [ctx.ends[place] for place in wanted],
                    [gradient for _, gradient in pairs], allow_unused=True,
                    create_graph=torch.is_grad_enabled(), retain_graph=True,  # others are in it, too
                )
            for place, gradient in zip(wanted, gradients):
                made[place] = gradient
        return None, None, None, *made


def _is_wanted(edge: GradientEdge) -> bool:
    """Whether the backward that goes on comes to a node: what lies on the way to others only must not run, as it might
    raise."""
    try:
        return torch._C._will_engine_execute_node(edge.node)
    except RuntimeError:  # torch does not say it of leaves whose gradients are asked for by name
        return True
