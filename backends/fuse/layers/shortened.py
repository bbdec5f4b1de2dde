"""A captured graph with fewer layers alike: what is recorded, lowered and scheduled in the place of the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from framejit.backends.frozen_weights import frozen
from framejit.backends.fuse.layers.repetition import Repetition, repetition_in, returned
from framejit.backends.fuse.layers.units import KEPT, KeptOutputs, UnitOutput, Units, kept_outputs
from framejit.late_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Shortened:
    """A captured graph that has only the first units of those that another, the whole, has."""

    gm: fx.GraphModule
    examples: list[torch.Tensor]
    units: Units
    unit_of: Mapping[fx.Node, int]
    """The unit of each of its nodes that is part of one."""
    with_fewer: Callable[[], Shortened]
    """Gives the same with a unit fewer."""

    @property
    def told(self) -> str:
        """What tells the whole graph from others with the same shortened one."""
        units = self.units
        return f"{len(units.units)} layers alike, inputs {units.units}, {units.positions}, outputs {units.outputs}"


def shortened(gm: fx.GraphModule, examples: Sequence[torch.Tensor], kept: int = KEPT) -> Shortened | None:
    """The graph with a few of its layers alike, if it has many. `kept`: how many."""
    found = repetition_in(gm.graph)
    placeholders = gm.graph.find_nodes(op="placeholder")
    if found is None or any(map(frozen, placeholders)):  # what is computed of frozen weights differs
        return None
    position = {node: number for number, node in enumerate(placeholders)}
    units = [[position[node] for node in inputs] for inputs in found.inputs]
    for inputs in units[KEPT - 1 :]:
        if not all(_are_alike(examples[own], examples[kept]) for own, kept in zip(inputs, units[0])):
            return None
    names = [node.name for node in placeholders]
    return _with_first(kept, gm, examples, found, units, names)


def _with_first(
    kept: int, gm: fx.GraphModule, examples: Sequence[torch.Tensor], found: Repetition, units: list[list[int]],
    names: list[str]
) -> Shortened:
    left_out = {number for inputs in units[kept:] for number in inputs}
    positions = [number for number in range(len(names)) if number not in left_out]
    graph, outputs, unit_of = shortened_graph(gm.graph, found, kept)
    short = _LazyGraphModule(gm, graph)  # whose Python nobody needs
    short.meta = {**gm.meta}
    places = outputs.outputs if any(isinstance(place, UnitOutput) for place in outputs.outputs) else None
    return Shortened(
        short, [examples[number] for number in positions], Units(names, positions, units, places, kept=kept),
        unit_of, partial(_with_first, kept - 1, gm, examples, found, units, names),
    )


def shortened_graph(
    graph: fx.Graph, found: Repetition, kept: int = KEPT
) -> tuple[fx.Graph, KeptOutputs, dict[fx.Node, int]]:
    """The graph with the first units only, which of the outputs it has, and the units of its nodes; what takes the
    results of the last unit takes those of the last of these."""
    outputs = kept_outputs(returned(graph), found.place_of().get, len(found.units), kept)
    assert outputs is not None  # which makes it a Repetition
    short = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    left_out = {node for unit in found.units[kept:] for node in unit}
    left_out.update(node for inputs in found.inputs[kept:] for node in inputs)
    in_place_of = dict(zip(found.units[-1], found.units[kept - 1]))
    stands_for = dict(zip(found.units[kept - 1], found.units[-1]))
    for node in graph.nodes:
        if node.op == "output":
            given = [returned(graph)[position] for position in outputs.positions]
            short.output(tuple(fx.map_arg(given, lambda taken: made[in_place_of.get(taken, taken)])))
        elif node not in left_out:
            made[node] = short.node_copy(node, lambda taken: made[in_place_of.get(taken, taken)])
            # the same: recording notes there what it has met; what is known of the last one's results, as how often
            # they were written into, is known of those that stand for them
            made[node].meta = stands_for.get(node, node).meta
    return short, outputs, {made[node]: number for number, unit in enumerate(found.units[:kept]) for node in unit}


def _are_alike(example: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether what is compiled for the one is compiled for the other."""
    return _facts(example) == _facts(other)


def _facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        type(tensor), tensor.dtype, tensor.device, tensor.shape, tensor.stride(), tensor.requires_grad,
        tensor.is_inference(), torch._C._dispatch_keys(tensor).raw_repr(),
    )
