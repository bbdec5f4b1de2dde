"""Masks that are known to select the same places: one that is used twice, or compared out twice, finds as many places
each time, so that `logits[labels != -100]` and `labels[labels != -100]` fit each other."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import fx

from framejit.capture.graph.graph_writes import GraphWrites
from framejit.fakes.operation_kinds import name_of

_COMPARISONS: Final = frozenset("""
    eq ne lt le gt ge equal not_equal less less_equal greater greater_equal isnan isinf isfinite
    logical_and logical_or logical_not logical_xor and_ or_ xor invert bitwise_not bitwise_and bitwise_or bitwise_xor
    __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __and__ __or__ __xor__ __invert__ bool flatten view reshape
""".split())


def first_alike(node: fx.Node, writes: GraphWrites) -> fx.Node | None:
    """The first node of the graph that is known to give what this one does, which may be itself; None where somebody
    has written into it."""
    if writes.into(node.meta["val"]):
        return None
    if writes.ever_moved or node.op == "placeholder" or not _is_comparison(node):
        return node
    taken: dict[fx.Node, fx.Node] = {}
    for source in node.all_input_nodes:
        alike = first_alike(source, writes)
        if alike is None:
            return node
        taken[source] = alike
    wanted = _call(node, taken)
    for other in next(iter(taken.values())).users:
        if other is node:
            break
        if _call(other, {}) == wanted and not writes.into(other.meta["val"]):
            return other
    return node


def _is_comparison(node: fx.Node) -> bool:
    """Whether a call gives the same for the same tensors, whatever the thread's state: an integer and a float are
    compared as numbers of torch's default dtype."""
    fakes: list[Any] = [source.meta.get("val") for source in node.all_input_nodes]
    floats = any(isinstance(argument, float) for argument in (*node.args, *node.kwargs.values()))
    return (
        bool(fakes)
        and name_of(node.target) in _COMPARISONS
        and all(isinstance(fake, torch.Tensor) for fake in fakes)
        and not (floats and not all(fake.is_floating_point() for fake in fakes))
    )


def _call(node: fx.Node, taken: dict[fx.Node, fx.Node]) -> tuple[Any, ...]:
    """What tells one call from another, with other nodes in the place of some that it takes."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda source: taken.get(source, source))
    return node.op, node.target, repr(args), repr(kwargs)
