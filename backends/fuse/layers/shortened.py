"""A captured graph with fewer layers alike: what is recorded, lowered and scheduled in the place of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from framejit.backends.frozen_weights import frozen
from framejit.backends.fuse.layers.repetition import KEPT, Repetition, repetition_in
from framejit.late_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Shortened:
    """A graph that has only the first units of those that another, the whole, has."""

    gm: fx.GraphModule
    examples: list[torch.Tensor]
    names: list[str]
    """Of the whole graph's inputs."""
    positions: list[int]
    """For each input its position among those of the whole graph."""
    units: list[list[int]]
    """For each unit of the whole graph the positions of its own inputs there."""

    @property
    def told(self) -> str:
        """What tells the whole graph from others with the same shortened one."""
        return f"{len(self.units)} layers alike, of inputs {self.units}, others {self.positions}"

    @property
    def left_out(self) -> str:
        """For people: what is not shown of the whole graph."""
        return f"{len(self.units) - KEPT} of {len(self.units)} layers alike are left out here"


def shortened(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Shortened | None:
    """The graph with a few of its layers alike, if it has many."""
    found = repetition_in(gm.graph)
    placeholders = gm.graph.find_nodes(op="placeholder")
    if found is None or any(map(frozen, placeholders)):  # what is computed of frozen weights differs
        return None
    position = {node: number for number, node in enumerate(placeholders)}
    units = [[position[node] for node in inputs] for inputs in found.inputs]
    for inputs in units[KEPT:]:
        if not all(_are_alike(examples[own], examples[kept]) for own, kept in zip(inputs, units[0])):
            return None
    left_out = {number for inputs in units[KEPT:] for number in inputs}
    kept = [number for number in range(len(placeholders)) if number not in left_out]
    short = _LazyGraphModule(gm, shortened_graph(gm.graph, found))  # whose Python nobody needs
    short.meta = {**gm.meta}
    return Shortened(short, [examples[number] for number in kept], [node.name for node in placeholders], kept, units)


def shortened_graph(graph: fx.Graph, found: Repetition) -> fx.Graph:
    """The graph with the first units only; what takes the results of the last one takes those of the last of these."""
    short = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    left_out = {node for unit in found.units[KEPT:] for node in unit}
    left_out.update(node for inputs in found.inputs[KEPT:] for node in inputs)
    in_place_of = dict(zip(found.units[-1], found.units[KEPT - 1]))
    for node in graph.nodes:
        if node not in left_out:
            made[node] = short.node_copy(node, lambda taken: made[in_place_of.get(taken, taken)])
            made[node].meta = node.meta  # the same: recording notes there what it has met
    return short


def _are_alike(example: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether what is compiled for the one is compiled for the other."""
    return _facts(example) == _facts(other)


def _facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        type(tensor), tensor.dtype, tensor.device, tensor.shape, tensor.stride(), tensor.requires_grad,
        tensor.is_inference(), torch._C._dispatch_keys(tensor).raw_repr(),
    )
