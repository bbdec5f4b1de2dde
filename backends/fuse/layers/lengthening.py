"""From the recorded operations of a graph with a few layers alike to those of the graph with all of them, as they were
recorded: forward, and backwards behind it.

Of five units, each of which is some operations of the forward and some of a backward, the second and the third are
compared, operation by operation: they have to do the same to tensors of the same kind, and where the second takes what
is its own, the first one's or the third one's, the third has to take what is its own, the second one's or the fourth
one's. What else they take has to be the same for both. Then one more unit is the second's operations once more, between
the second and the third: behind the second in the forward, behind the third in a backward, which goes the other way.
(The last but one may be different: of a gradient that grows with each unit, it takes from the last what was not added
to yet.) What units alike do not make may take what the first unit and the last one give, and nothing of those between:
it would grow with each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node, map_values
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.layers.expansion import Uneven
from framejit.backends.fuse.layers.repeated_nodes import Kinds, is_odd
from framejit.backends.fuse.layers.units import Units

RECORDED: Final = 5
"""How many units are recorded."""
SECOND, THIRD, FOURTH, LAST = 1, 2, 3, RECORDED - 1

T = TypeVar("T")


class Lengthening:
    """The whole graph, and what stands there for the values of the shortened one."""

    def __init__(self, short: Graph, units: Units, unit_of: Mapping[Node, int]) -> None:
        """`short`: as it was recorded; behind the inputs that `units` has are gradients that come in. `unit_of`: the
        units of operations that are part of one. Raises Uneven where the second unit is not like the third."""
        self._short, self._units, self._unit_of = short, units, unit_of
        self._between = range(THIRD, len(units.units) - (RECORDED - THIRD))
        """The units that the shortened graph has not, by their numbers in the whole one."""
        short_position = {whole: position for position, whole in enumerate(units.positions)}
        self.own = [[short_position[whole] for whole in own] for own in units.units[:RECORDED]]
        """For each unit of the shortened graph the positions of its inputs there."""
        self._owner: dict[Value, tuple[int, int]] = {}
        """By each input and result of a unit the unit, and its number there."""
        self._made: dict[Value, Value] = {}
        """By what the shortened graph has what stands for it; of a unit's in the place where it stands itself."""
        self._again: dict[tuple[int, int], Value] = {}
        """What the units have that the shortened graph has not, by the unit and the number there."""
        self._kinds = Kinds()
        self._of_second: list[Value] = []
        """What the second unit has, in order."""
        self._of_third: list[Value] = []
        self._number()
        self.graph = Graph(fake_mode=short.fake_mode, conditions=short.conditions)
        self._take_inputs()
        for value, constant in short.constants.items():
            self.graph.constant(self._copied(value), constant)
        self._take_nodes()
        self.graph.outputs = [map_values(output, self.value) for output in short.outputs]

    def value(self, value: Value) -> Value:
        """What stands for what no unit but the first or the last makes."""
        return self._placed(value, None)

    def spread(self, of_inputs: Sequence[T], moved: Callable[[T, T, int], T], placed: Callable[[T, int | None], T]) -> (
        list[T]
    ):
        """What is known of each input of the shortened graph, for each of the whole one's. `moved`: gives it for an
        input of a unit of this number that the shortened graph has not, of what it is for the second and for the third
        unit. `placed`: for an input of a unit that it has; None for what is no unit's."""
        units = self._units
        found: list[Any] = [None] * len(units.names)
        for position, whole in enumerate(units.positions):
            at = self._owner.get(self._short.inputs[position])
            found[whole] = placed(of_inputs[position], None if at is None else at[0])
        for unit in self._between:
            for whole, second, third in zip(units.units[unit], self.own[SECOND], self.own[THIRD], strict=True):
                found[whole] = moved(of_inputs[second], of_inputs[third], unit)
        for kept in range(THIRD, RECORDED):
            for whole, position in zip(units.units[self._between.stop + kept - THIRD], self.own[kept], strict=True):
                found[whole] = placed(of_inputs[position], kept)
        return found

    def values(self, of_inputs: Sequence[Value | None]) -> list[Value | None]:
        """What is made for each input of the shortened graph, such as its gradient, for each of the whole one's. Raises
        Uneven."""

        def moved(second: Value | None, third: Value | None, unit: int) -> Value | None:
            if second is None or third is None:
                if second is not third:
                    raise Uneven
                return None
            return self._moved(second, third, unit)

        return self.spread(
            of_inputs, moved, lambda value, unit: None if value is None else self._placed(value, unit)
        )

    def positions(self, found: Iterable[int]) -> list[int]:
        """The positions in the whole graph of inputs of the shortened one of which something holds. Raises Uneven where
        it does for one unit and not for the next."""
        holds = {*found}

        def moved(second: bool, third: bool, unit: int) -> bool:
            if second is not third:
                raise Uneven
            return second

        spread = self.spread(
            [position in holds for position in range(len(self._units.positions))], moved, lambda each, _: each
        )
        return [position for position, each in enumerate(spread) if each]

    def _number(self) -> None:
        """Give what units have its numbers."""
        held: list[list[Value]] = [[self._short.inputs[position] for position in own] for own in self.own]
        for node in self._short.nodes:
            if is_odd(node):
                raise Uneven
            unit = self._unit_of.get(node)
            if unit is not None:
                held[unit] += node.results
        for unit, values in enumerate(held):
            self._owner.update((value, (unit, number)) for number, value in enumerate(values))
        self._of_second, self._of_third = held[SECOND], held[THIRD]

    def _take_inputs(self) -> None:
        short, units, graph = self._short, self._units, self.graph
        if any(short.counted_writes.get(position) for own in self.own for position in own):
            raise Uneven
        graph.inputs = self.spread(
            short.inputs[: len(units.positions)], self._input_again, lambda value, _: self._copied(value)
        )
        graph.inputs += [self._copied(value) for value in short.inputs[len(units.positions) :]]
        graph.names = [*units.names, *short.names[len(units.positions) :]]
        written = short.counted_writes
        graph.counted_writes = {position: 0 for position in self.positions(written)}
        graph.counted_writes.update((units.positions[position], count) for position, count in written.items() if count)

    def _input_again(self, second: Value, third: Value, unit: int) -> Value:
        made = self._again[unit, self._owner[second][1]] = Value(second.fake)
        return made

    def _take_nodes(self) -> None:
        runs: list[tuple[tuple[int | None, bool], list[Node]]] = []
        for node in self._short.nodes:
            kind = self._unit_of.get(node), node.origin.is_backward
            if not runs or runs[-1][0] != kind:
                runs.append((kind, []))
            runs[-1][1].append(node)
        before: int | None = None
        for number, ((unit, _), nodes) in enumerate(runs):
            if unit in (SECOND, THIRD) and before not in (SECOND, THIRD):
                following = runs[number + 1] if number + 1 < len(runs) else None
                if following is None or following[0][0] != SECOND + THIRD - unit or len(following[1]) != len(nodes):
                    raise Uneven
                self._take(nodes, unit)
                second, third = (nodes, following[1]) if unit == SECOND else (following[1], nodes)
                for again in self._between if unit == SECOND else reversed(self._between):
                    self._repeat(second, third, again)
            elif unit in (SECOND, THIRD) and before == unit:
                raise Uneven
            else:
                self._take(nodes, unit)
            before = None if unit in (SECOND, THIRD) and before in (SECOND, THIRD) else unit

    def _take(self, nodes: Sequence[Node], unit: int | None) -> None:
        """Have operations of the shortened graph."""
        for node in nodes:
            self._append(node, partial(self._placed, unit=unit), self._copied)

    def _repeat(self, second: Sequence[Node], third: Sequence[Node], unit: int) -> None:
        """Have the second unit's operations once more."""
        for node, following in zip(second, third, strict=True):
            if unit == THIRD and self._kinds.number(node) != self._kinds.number(following):
                raise Uneven
            twins: dict[Value, Value] = {}
            for mine, other in zip((*node.values(), *node.results), (*following.values(), *following.results)):
                if twins.setdefault(mine, other) is not other:
                    raise Uneven
            self._append(
                node, partial(self._with_twin, self._moved, twins, unit),
                partial(self._with_twin, self._made_again, twins, unit),
            )

    def _with_twin(
        self, gives: Callable[[Value, Value, int], Value], twins: Mapping[Value, Value], unit: int, second: Value
    ) -> Value:
        """What something gives for a value of the second unit and the third one's in its place."""
        return gives(second, twins[second], unit)

    def _append(self, node: Node, given: Callable[[Value], Value], made: Callable[[Value], Value]) -> None:
        args = tuple([map_values(arg, given) for arg in node.args])
        kwargs = {key: map_values(arg, given) for key, arg in node.kwargs.items()}
        own = {*node.results}
        result = map_values(node.result, lambda value: made(value) if value in own else given(value))
        self.graph.append(Node(node.operation, args, kwargs, result, node.origin))

    def _copied(self, value: Value) -> Value:
        """A value of the shortened graph in this one, at its first mention."""
        known = self._made.get(value)
        if known is None:
            first, base = value.storage.first, value.base
            unit = self._owner.get(value, (None, 0))[0]
            known = self._made[value] = Value(
                value.fake, None if first is value else self._placed(first, unit).storage,
                None if base is None else self._placed(base, unit),
            )
        return known

    def _made_again(self, second: Value, third: Value, unit: int) -> Value:
        at = unit, self._owner[second][1]
        if at not in self._again:
            first, base = second.storage.first, second.base
            if (base is None) != (third.base is None) or (first is second) != (third.storage.first is third):
                raise Uneven
            self._again[at] = Value(
                second.fake, None if first is second else self._moved(first, third.storage.first, unit).storage,
                None if base is None or third.base is None else self._moved(base, third.base, unit),
            )
        return self._again[at]

    def _placed(self, value: Value, unit: int | None) -> Value:
        """What an operation of the shortened graph takes in its place: of a unit, or None for what is part of none.
        Where units were put in between, what it took of the unit beside it comes from the nearest of these."""
        owner, number = self._owner.get(value, (None, 0))
        if owner is None or owner == unit:
            return self._made[value]
        if unit is None:
            if owner not in (0, LAST):
                raise Uneven
            return self._made[value]
        if abs(owner - unit) != 1:
            raise Uneven
        if (owner, unit) == (THIRD, SECOND):
            return self._at(THIRD, number)
        if (owner, unit) == (SECOND, THIRD):
            return self._at(self._between[-1], number)
        return self._made[value]

    def _moved(self, second: Value, third: Value, unit: int) -> Value:
        """What a unit that was put in takes where the second one takes the one and the third one the other."""
        (of_second, number), (of_third, in_third) = (self._owner.get(value, (None, 0)) for value in (second, third))
        if of_second is None and second is third:
            return self._made[second]
        if (of_second, of_third) == (SECOND, THIRD) and number == in_third:
            return self._at(unit, number)
        if (of_second, of_third) == (0, SECOND):
            return self._at(unit - 1, in_third)
        if (of_second, of_third) == (THIRD, FOURTH):
            return self._at(unit + 1, number)
        raise Uneven

    def _at(self, unit: int, number: int) -> Value:
        """What the second unit, one that the shortened graph has not, or the one behind these has under a number."""
        if unit == SECOND:
            return self._made[self._of_second[number]]
        if unit == self._between.stop:
            return self._made[self._of_third[number]]
        return self._again[unit, number]
