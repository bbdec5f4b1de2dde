"""Which nodes of a captured graph are layers alike, one behind the other.

Capture says of which nodes each is another one once more, with other inputs (`note_layers`). Here it is looked at what
these take and who takes what they give: a *unit*, which is a layer or a few different ones in turn, may take inputs of
its own, results of the unit before it, and what is the same for all units; nothing but the next unit takes what it
gives, and the graph may return it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from torch import fx

from framejit.backends.fuse.layers.units import KEPT, LEAST, kept_outputs
from framejit.backends.graph_identity import Layer, layers_of
from framejit.late_dataclass import dataclass

LONGEST: Final = 8
"""The most layers of a unit."""

Unit = list[fx.Node]


@dataclass(frozen=True)
class Repetition:
    """Units of a graph's nodes, that are alike node by node."""

    units: Sequence[Unit]
    inputs: Sequence[Sequence[fx.Node]]
    """The placeholders that only one unit takes: for each unit, in the same order."""

    def place_of(self) -> dict[fx.Node, tuple[int, int]]:
        """By each node of a unit the unit, and its number there."""
        return _places(self.units)


def repetition_in(graph: fx.Graph) -> Repetition | None:
    """The layers alike of a captured graph, where there are many."""
    layers = layers_of(graph)
    if len(layers) < LEAST:
        return None
    most: list[Unit] = []
    for run in _runs(graph, layers):
        units = _units(run)
        if len(units) >= LEAST and sum(map(len, units)) > sum(map(len, most)):
            most = units
    return _repetition(graph, most) if most else None


def returned(graph: fx.Graph) -> Sequence[Any]:
    """What a captured graph returns: nodes, and other objects."""
    (output,) = graph.find_nodes(op="output")
    results = output.args[0]
    assert isinstance(results, tuple)
    return results


def _runs(graph: fx.Graph, layers: Sequence[Layer]) -> Iterator[list[Layer]]:
    """Layers that stand one behind the other, in their order."""
    run: list[Layer] = []
    for layer in layers:
        whole = _is_in_one_piece(graph, layer.nodes)
        if run and not (whole and run[-1].nodes[-1]._next is layer.nodes[0]):
            yield run
            run = []
        if whole:
            run.append(layer)
    yield run


def _is_in_one_piece(graph: fx.Graph, nodes: Sequence[fx.Node]) -> bool:
    """Whether the nodes are in the graph, as they were captured."""
    return (
        bool(nodes)
        and not any(node._erased for node in nodes)
        and nodes[0].graph is graph
        and all(node._next is following for node, following in zip(nodes, nodes[1:]))
    )


def _units(run: Sequence[Layer]) -> list[Unit]:
    """The longest part of the run in which a few layers come again and again, as units."""
    best: tuple[int, int, int] = (0, 0, 1)  # layers, the first one, layers of a unit
    kinds = [layer.kind for layer in run]
    for length in range(1, LONGEST + 1):
        start = 0
        for at in range(length, len(kinds) + 1):
            if at == len(kinds) or kinds[at] is not kinds[at - length]:
                whole = (at - start) // length * length
                best = max(best, (whole, start, length), key=lambda found: (found[0], -found[2]))
                start = at - length + 1
    layers, start, length = best
    return [
        [node for layer in run[first : first + length] for node in layer.nodes]
        for first in range(start, start + layers, length)
    ]


def _repetition(graph: fx.Graph, units: Sequence[Unit]) -> Repetition | None:
    """The units as a Repetition; None where one is connected otherwise than the others."""
    place = _places(units)
    taken = [[node.all_input_nodes for node in unit] for unit in units]
    if any(
        len(unit) != len(units[0])
        or any(node.target is not like.target or node.op != like.op for node, like in zip(unit, units[0]))
        or any(len(own) != len(others) for own, others in zip(given, taken[0]))
        for unit, given in zip(units, taken)
    ):
        return None
    inputs: list[dict[fx.Node, int]] = [{} for _ in units]
    for at in range(len(units[0])):
        for column in zip(*(given[at] for given in taken)):
            if not _is_even(column, place, inputs):
                return None
    if any(len(found) != len(inputs[0]) for found in inputs) or not inputs[0]:
        return None
    for number, found in enumerate(inputs):
        if any(user not in place or place[user][0] != number for node in found for user in node.users):
            return None
    last = len(units) - 1
    node = units[-1][-1]
    while (node := node._next).op != "output":
        if any(argument in place and place[argument][0] != last for argument in node.all_input_nodes):
            return None
    if kept_outputs(returned(graph), place.get, len(units), KEPT) is None:
        return None
    return Repetition(units, [list(found) for found in inputs])


def _places(units: Sequence[Unit]) -> dict[fx.Node, tuple[int, int]]:
    return {node: (number, at) for number, unit in enumerate(units) for at, node in enumerate(unit)}


def _is_even(
    column: Sequence[fx.Node], place: dict[fx.Node, tuple[int, int]], inputs: Sequence[dict[fx.Node, int]]
) -> bool:
    """Whether the arguments that units take at one place are the same for all, or results of theirs, or of the unit
    before, or inputs, which are numbered in `inputs`. The first unit may take something else than that of a unit before
    it."""
    where = [place.get(argument) for argument in column]
    second = where[1]
    if all(argument is column[1] for argument in column[1:]):
        return second is None or second[0] == 0
    if second is not None:
        distance = 1 - second[0]
        return all(where[unit] == (unit - distance, second[1]) for unit in range(distance, len(column)))
    if any(argument.op != "placeholder" for argument in column):
        return False
    return len({found.setdefault(argument, len(found)) for argument, found in zip(column, inputs)}) == 1
