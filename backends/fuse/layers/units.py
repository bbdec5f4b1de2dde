"""What a graph with the first few of many units alike says of the graph with all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from framejit.late_dataclass import dataclass

KEPT: Final = 4
"""Units that are compiled: one that takes what comes before all, two that are compared, and one behind which comes what
takes the last one's results. A second time one fewer, so that what comes behind is compared, too."""
LEAST: Final = 9
"""Fewer units are compiled each: comparing takes its time, and may be in vain."""


@dataclass(frozen=True, eq=False)
class UnitOutput:
    """An output of the whole graph that a unit makes."""

    unit: int
    places: Sequence[int | None]
    """Where among the shortened graph's outputs the same result is of each of the units kept; None where it is none of
    the unit's."""


@dataclass(frozen=True, eq=False)
class Units:
    """The inputs and outputs of a graph, the whole, beside those of one that has only the first of its units."""

    names: list[str]
    """Of the whole graph's inputs."""
    positions: list[int]
    """For each input of the shortened graph its position among those of the whole one."""
    units: list[list[int]]
    """For each unit of the whole graph the positions of its own inputs there, in the same order for all."""
    outputs: Sequence[int | UnitOutput] | None = None
    """The outputs of the whole graph: those that no unit makes by their positions among the shortened one's. None where
    no unit makes any."""
    own_inputs: frozenset[int] | None = None
    """Of the whole graph, as `Graph.own_inputs`."""
    kept: int = KEPT
    """How many units the shortened graph has."""

    def given(self) -> set[int]:
        """The positions of the shortened graph's outputs that units make."""
        made = (output.places for output in self.outputs or () if isinstance(output, UnitOutput))
        return {place for places in made for place in places if place is not None}

    @property
    def left_out(self) -> str:
        """For people: what is not shown of the whole graph."""
        return f"{len(self.units) - self.kept} of {len(self.units)} layers alike are left out here"


@dataclass(frozen=True, eq=False)
class KeptOutputs:
    """Which outputs of a whole graph the shortened one has."""

    positions: list[int]
    """For each output of the shortened graph its position among those of the whole one: what the last unit makes stands
    for what the last one kept does."""
    outputs: list[int | UnitOutput]
    """As `Units.outputs`."""


def kept_outputs(
    outputs: Sequence[Any], made_at: Callable[[Any], tuple[int, int] | None], units: int, kept: int
) -> KeptOutputs | None:
    """What is kept of the outputs of a graph with so many units. `made_at` gives the unit that makes an output, and the
    number of the result there; None for one that no unit makes. What the last one alone gives is as what comes behind.
    None where units do not give the same results."""
    last = units - 1
    positions: list[int] = []
    places: dict[int, int] = {}
    of_units: list[dict[int, int]] = [{} for _ in range(kept)]
    given: list[set[int]] = [set() for _ in range(units)]
    made = [made_at(output) for output in outputs]
    of_second = {at[1] for at in made if at is not None and at[0] == 1}
    made = [None if at is not None and at[0] == last and at[1] not in of_second else at for at in made]
    for position, at in enumerate(made):
        if at is None:
            places[position] = len(positions)
            positions.append(position)
            continue
        unit, number = at
        given[unit].add(number)
        stand_in = kept - 1 if unit == last else unit if unit < kept - 1 else None
        if stand_in is not None and number not in of_units[stand_in]:
            of_units[stand_in][number] = len(positions)
            positions.append(position)
    if any(numbers != given[1] for numbers in given[2:last]):
        return None
    found = [
        places[position] if at is None else UnitOutput(at[0], [of_unit.get(at[1]) for of_unit in of_units])
        for position, at in enumerate(made)
    ]
    return KeptOutputs(positions, found)
