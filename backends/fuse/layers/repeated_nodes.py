"""Which operations of a graph come again and again, and the graph with the first few of these units.

Of a captured graph capture knows the layers alike (`repetition.py`). Here nothing is known but the operations: forward
and backward of a graph that gradients are wanted of, and graphs whose layers were captured each. Operations are alike
that do the same to tensors of the same kind. Where they come again with a period, a *unit* is one period, wherever it
begins; what units take of each other and of the inputs has to be the same for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from framejit.backends.fuse.graph.extract import extracted
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.known import is_computable
from framejit.backends.fuse.graph.node import Node, values_in
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.layers.units import KEPT, LEAST, KeptOutputs, Units, kept_outputs
from framejit.late_dataclass import dataclass

LEAST_SAVED: Final = 100
"""Operations that need not be lowered. With fewer, looking for them takes as long."""


@dataclass(frozen=True, eq=False)
class ShortGraph:
    """A graph that has only the first units of those that another, the whole, has."""

    graph: Graph
    units: Units


def shortened_nodes(graph: Graph) -> tuple[ShortGraph, ShortGraph] | None:
    """The graph with a few of the units that come again and again in it, if there are many, and with one fewer."""
    if graph.conditions is not None or len(graph.nodes) < LEAST_SAVED:
        return None
    if any(is_odd(node) or node.writes for node in graph.nodes):
        return None
    start, length, count = _period([*map(Kinds().number, graph.nodes)])
    if count < LEAST or (count - KEPT) * length < LEAST_SAVED:
        return None
    units = [graph.nodes[at : at + length] for at in range(start, start + count * length, length)]
    connections = _Connections(graph, units)
    inputs = connections.inputs()
    if inputs is None:
        return None
    short, fewer = (_Shortening(connections, inputs, kept).made() for kept in (KEPT, KEPT - 1))
    return None if short is None or fewer is None else (short, fewer)


def is_odd(node: Node) -> bool:
    """Whether an operation is none that is known by its arguments and results."""
    return bool(node.parts or node.autocast)


class Kinds:
    """Numbers for operations, equal for those that do the same to tensors of the same kind, from the same line."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._of_values: dict[Value, Any] = {}

    def number(self, node: Node) -> int:
        """The number of an operation."""
        given = [*node.values()]
        place = {value: number for number, value in enumerate(given)}
        lies_in = {value.storage: number for number, value in enumerate(given)}
        results = tuple([
            (place.get(value), lies_in.get(value.storage), None if value.base is None else place.get(value.base, -1))
            for value in node.returned()
        ])
        arguments = self._told((node.args, [*node.kwargs.items()], node.result))
        return self._numbers.setdefault((node.operation, arguments, results, node.origin), len(self._numbers))

    def _told(self, argument: Any) -> Any:
        if type(argument) is Value:
            known = self._of_values.get(argument)
            if known is None:
                fake = argument.fake
                told = (
                    argument.dtype, argument.device, argument.shape, argument.strides, argument.offset,
                    argument.storage.first is argument, fake.layout, fake.is_conj(), fake.is_neg(),
                )
                known = self._of_values[argument] = (Value, self._numbers.setdefault(told, len(self._numbers)))
            return known
        if isinstance(argument, (list, tuple)):
            return (type(argument), *map(self._told, argument))
        return type(argument), repr(argument)


def _period(kinds: Sequence[int]) -> tuple[int, int, int]:
    """Where the longest stretch of `kinds` begins in which some come again and again, how many these are, and how often
    they come."""
    array = np.array(kinds)
    best, found = 0, (0, 0, 0)
    for length in range(1, len(kinds) // LEAST + 1):
        unlike = np.flatnonzero(array[:-length] != array[length:])
        ends = np.concatenate(([-1], unlike, [len(array) - length]))
        run = np.diff(ends) - 1
        at = int(run.argmax())
        count = int(run[at]) // length + 1
        if count >= LEAST and count * length > best:
            best, found = count * length, (int(ends[at]) + 1, length, count)
    return found


class _Connections:
    """What units take, and who takes what they give."""

    def __init__(self, graph: Graph, units: Sequence[Sequence[Node]]) -> None:
        self.graph, self.units = graph, units
        self.results = [[value for node in unit for value in node.results] for unit in units]
        self.place = {value: (unit, at) for unit, made in enumerate(self.results) for at, value in enumerate(made)}
        """By each result of theirs the unit, and its number there."""
        self.given = {*graph.inputs}
        self.own: dict[Value, tuple[int, int]] = {}
        """The inputs that differ from unit to unit: whose one is, and its number there."""

    def inputs(self) -> list[list[Value]] | None:
        """For each unit the inputs that are its own, in the same order; None where one is connected otherwise than the
        others."""
        taken = [[value for node in unit for value in node.values()] for unit in self.units]
        fixed = self._fixed()
        for column in zip(*taken, strict=True):
            if not self._is_even(column, fixed):
                return None
        if not self.own or not self._are_kept_apart():
            return None
        found: list[list[Value]] = [[] for _ in self.units]
        for value, (unit, _) in sorted(self.own.items(), key=lambda item: item[1]):
            found[unit].append(value)
        return found if len({*map(len, found)}) == 1 else None

    def _fixed(self) -> set[Value]:
        """Values that follow from numbers of the program alone: kernels may have them as numbers, others for each
        unit."""
        fixed = {value for value, constant in self.graph.constants.items() if constant.literal}
        for node in self.graph.nodes:
            if is_computable(node.operation) and all(value in fixed for value in node.values()):
                fixed.update(node.results)
        return fixed

    def _is_even(self, column: Sequence[Value], fixed: set[Value]) -> bool:
        """Whether the arguments that units take at one place are the same for all, or results of theirs, or of the unit
        before, or inputs. The first unit may take something else than one before it would give."""
        second = column[1]
        at = self.place.get(second)
        if all(value is second for value in column[1:]):
            return at is None or at[0] == 0
        if at is not None:
            return at[0] in (0, 1) and self._are_moved(column, at) and not (at[0] == 0 and second in fixed)
        if second not in self.given:
            return False
        known = self.own.get(second)
        unit, number = known if known is not None else (1, len(self.own) // len(self.units))
        if unit not in (0, 1):
            return False
        for position in range(unit == 0, len(column)):
            value, wanted = column[position], (position + unit - 1, number)
            if value not in self.given or self.own.setdefault(value, wanted) != wanted:
                return False
        return unit == 1 or self._is_before(column[0])

    def _are_moved(self, column: Sequence[Value], second: tuple[int, int]) -> bool:
        unit, number = second
        moved = all(
            self.place.get(column[position]) == (position + unit - 1, number)
            for position in range(unit == 0, len(column))
        )
        return moved and (unit == 1 or self._is_before(column[0]))

    def _is_before(self, value: Value) -> bool:
        """Whether the first unit may take it where others take what the one before gives or takes."""
        return value not in self.place and value not in self.own

    def _are_kept_apart(self) -> bool:
        """Whether nothing but units takes what is theirs, other than before them, of the first one, and behind them, of
        the last one; and no input of theirs is an output or shares memory with another."""
        last = len(self.units) - 1
        inside = {node for unit in self.units for node in unit}
        begin = self.units[0][0]
        is_behind = False
        for node in self.graph.nodes:
            is_behind = is_behind or node is begin
            if node not in inside:
                owners = [self.own.get(value) or self.place.get(value) for value in node.values()]
                allowed = last if is_behind else 0
                if any(owner is not None and owner[0] != allowed for owner in owners):
                    return False
        lying = Counter(value.storage for value in (*self.graph.inputs, *self.graph.constants))
        return not any(
            lying[value.storage] > 1 or value.storage.first is not value or value in self.graph.outputs
            for value in self.own
        )


class _Shortening:
    """The graph without all units but the first ones; what takes the results of the last one takes those of the last of
    these."""

    def __init__(self, connections: _Connections, inputs: Sequence[Sequence[Value]], kept: int) -> None:
        graph = self.graph = connections.graph
        self.units, self.results, self.place = connections.units, connections.results, connections.place
        self.inputs, self.n_kept = inputs, kept
        position = {value: number for number, value in enumerate(graph.inputs)}
        self.positions = [[position[value] for value in own] for own in inputs]
        left_out = {number for own in self.positions[kept:] for number in own}
        self.kept = [number for number in range(len(graph.inputs)) if number not in left_out]

    def made(self) -> ShortGraph | None:
        graph = self.graph
        outputs = self._outputs()
        if outputs is None or not self._are_counted_alike():
            return None
        own, kept = graph.own_inputs, {position: number for number, position in enumerate(self.kept)}
        places = {position: number for number, position in enumerate(outputs.positions)}
        last, stand_in = len(self.units) - 1, self.n_kept - 1
        gone = {node for unit in self.units[self.n_kept :] for node in unit}
        short = extracted(
            graph, [graph.inputs[number] for number in self.kept], [graph.names[number] for number in self.kept],
            [node for node in graph.nodes if node not in gone],
            [graph.outputs[position] for position in outputs.positions],
            {kept[position]: count for position, count in graph.counted_writes.items() if position in kept},
            dict(zip((*self.results[last], *self.inputs[last]), (*self.results[stand_in], *self.inputs[stand_in]))),
        )
        short.views = {places[at]: creation for at, creation in graph.views.items()}
        short.hidden_views = {places[at]: view for at, view in graph.hidden_views.items()}
        short.counted_apart = {places[at]: number for at, number in graph.counted_apart.items()}
        short.versions = {places[at]: number for at, number in graph.versions.items()}
        short.own_inputs = None if own is None else frozenset(kept[at] for at in own if at in kept)
        return ShortGraph(short, Units([*graph.names], self.kept, self.positions, outputs.outputs, own, self.n_kept))

    def _outputs(self) -> KeptOutputs | None:
        """What the short graph returns; None where units do not return the same, or something is known of what one
        returns."""
        graph = self.graph
        if any(type(output) is not Value and any(values_in((output,))) for output in graph.outputs):
            return None
        outputs = kept_outputs(graph.outputs, self._place_of, len(self.units), self.n_kept)
        if outputs is None or any(type(outputs.outputs[position]) is not int for position in graph.described_outputs()):
            return None
        return outputs

    def _place_of(self, output: Any) -> tuple[int, int] | None:
        return self.place.get(output) if type(output) is Value else None

    def _are_counted_alike(self) -> bool:
        """Whether autograd counts no writes of inputs of units, and either all units give one up or none."""
        writes, own = self.graph.counted_writes, self.graph.own_inputs or frozenset()
        return not any(
            any(writes.get(position) for position in column)
            or len({position in writes for position in column}) > 1
            or len({position in own for position in column[1:]}) > 1
            for column in zip(*self.positions, strict=True)
        )
