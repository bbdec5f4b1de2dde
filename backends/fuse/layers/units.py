"""What a graph with the first few of many units alike says of the graph with all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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

    @property
    def left_out(self) -> str:
        """For people: what is not shown of the whole graph."""
        return f"{len(self.units) - self.kept} of {len(self.units)} layers alike are left out here"
