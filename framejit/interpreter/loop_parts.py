"""A captured loop as graphs: what its decisions are, and what is computed between them."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from framejit.backends.data_loop import Decision
from framejit.backends.subgraph import subgraph
from framejit.fakes.storages import storage_of
from framejit.interpreter.chosen_tensors import Choice
from framejit.late_dataclass import dataclass
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.tensors.copies import SameObject
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from torch import fx

    from framejit.values.base import Value


@dataclass
class LoopPoint:
    """A decision as it is captured, and the code behind it."""

    place: int
    """Where the loop goes on from here."""
    stays: bool | None
    """The truth for which it does; None where turns are counted."""
    stand_ins: dict[str, Value]
    """By name, what stands for the variables that the loop carries."""
    nodes: list[fx.Node] = field(default_factory=list)
    """What the code behind it computes."""
    condition: TensorValue | None = None
    """That of the next decision."""
    given: dict[str, Value] = field(default_factory=dict)
    """What the next decision finds in its variables."""

    def end(self, nodes: list[fx.Node], condition: TensorValue | None, given: dict[str, Value]) -> None:
        """The next decision is reached."""
        self.nodes, self.condition, self.given = nodes, condition, given


def carrying(value: Value) -> TensorValue | None:
    """The tensor by which a loop carries a value; None for what never changes."""
    if isinstance(value, ReadNumberValue):
        return value.tensor
    return value if isinstance(value, TensorValue) else None


class LoopParts:
    """The decisions of a loop that goes from the last of its points to the one numbered `again`, and leaves the
    variables `left`."""

    def __init__(self, points: list[LoopPoint], again: int, taken: set[fx.Node], left: list[str]) -> None:
        self.points, self.again, self.left = points, again, left
        self.is_closed = True
        """Whether each part takes nothing from another but by what is carried, and gives nothing twice."""
        self.has_copies = False
        """Whether a turn gives a copy of a tensor that the program has itself."""
        self._taken = taken
        self._outside: dict[fx.Node, int] = {}
        self.decisions = [self._decision(i) for i in range(len(points))]

    @property
    def outside(self) -> list[fx.Node]:
        """The nodes around the loop that it uses."""
        return [*self._outside]

    def _next(self, number: int) -> int:
        return number + 1 if number + 1 < len(self.points) else self.again

    def _decision(self, number: int) -> Decision:
        point, following = self.points[number], self.points[self._next(number)]
        carried = {tensor.node: i for i, tensor in enumerate(_tensors(point.stand_ins).values())}
        names = [*_tensors(point.stand_ins)]
        inner = {*point.nodes}
        gives = [] if following.stays is None or point.condition is None else [point.condition.node]
        gives += [tensor.node for tensor in _tensors(point.given).values()]
        used = dict.fromkeys((*(n for node in point.nodes for n in node.all_input_nodes), *gives))
        outside = [node for node in used if node not in inner and node not in carried]
        results = [*dict.fromkeys(node for node in gives if node in inner)]
        if any(node in self._taken for node in outside) or sum(node in inner for node in gives) > len(results):
            self.is_closed = False
        for node in outside:
            self._outside.setdefault(node, len(self._outside))
        known = [*carried, *outside]
        takes = [node for node in known if any(user in inner for user in node.users)] if results else []
        places = {node: i for i, node in enumerate((*known, *results))}
        return Decision(
            point.stays,
            len(names),
            tuple(names.index(name) for name in self.left),
            subgraph(takes, point.nodes, results) if results else None,
            len(results),
            tuple(self._outside[node] for node in outside),
            tuple(places[node] for node in takes),
            tuple(places.get(node, -1) for node in gives),
            self._next(number),
        )

    def origins(self, name: str, first: dict[str, Value]) -> list[Choice]:
        """The tensors that a variable may hold behind the loop: from before it or around it, or made in a turn."""
        sources: dict[_Variable, dict[_Variable | TensorValue, None]] = {}
        for one, tensor in _tensors(first).items():
            sources.setdefault((0, one), {})[tensor] = None
        for number, point in enumerate(self.points):
            for one, tensor in _tensors(point.given).items():
                found = sources.setdefault((self._next(number), one), {})
                found.update(dict.fromkeys((number, other) for other in self._held_by(point, tensor)))
                if tensor.node not in {stand_in.node for stand_in in _tensors(point.stand_ins).values()}:
                    found[tensor] = None
        waiting: list[_Variable | TensorValue] = [(number, name) for number in range(len(self.points))]
        seen: dict[_Variable | TensorValue, None] = {}
        while waiting:
            each = waiting.pop()
            if each not in seen:
                seen[each] = None
                waiting += () if isinstance(each, TensorValue) else sources.get(each, ())
        return [Choice("loop", each, each.node in self._taken) for each in seen if isinstance(each, TensorValue)]

    def _held_by(self, point: LoopPoint, given: TensorValue) -> list[str]:
        """The variables at a point that may hold the very tensor that the next one is given."""
        variables = {storage_of(tensor.fake): name for name, tensor in _tensors(point.stand_ins).items()}
        if given.node not in self._taken or given.copy_of is None:
            return []
        if not isinstance(given.copy_of, SameObject):
            self.has_copies = True
        if not given.copy_of.of <= variables.keys():
            self.is_closed = False  # it may be another one that is made in the turn
        return [variables[storage] for storage in given.copy_of.of if storage in variables]


_Variable = tuple[int, str]
"""A variable at a decision."""


def _tensors(values: dict[str, Value]) -> dict[str, TensorValue]:
    return {name: tensor for name, value in values.items() if (tensor := carrying(value)) is not None}
