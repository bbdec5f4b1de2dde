"""A graph that gradients are wanted of whose layers alike are recorded once, forward and backward: a few of them, and
the others as these (`lengthening.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import fx

from framejit.backends.fuse.autograd_nodes.backward import Given
from framejit.backends.fuse.autograd_nodes.results import Base, Results
from framejit.backends.fuse.graph.entrances import Entrance
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.record import check_inputs
from framejit.backends.fuse.layers.expansion import Uneven
from framejit.backends.fuse.layers.lengthening import RECORDED, SECOND, Lengthening
from framejit.backends.fuse.layers.shortened import Shortened, shortened
from framejit.backends.fuse.not_fusable import NeedsGradients, NotFusable
from framejit.backends.fuse.training.joint import JointGraph, Rank, Recorded, SegmentBackward


def recorded_layers(
    gm: fx.GraphModule, examples: Sequence[torch.Tensor], entrances: Sequence[Entrance], joins: bool
) -> RecordedLayers | None:
    """The graph, of which a few of its layers alike were recorded; None where each has to be. `joins`: as `Recorded`
    has it."""
    short = shortened(gm, examples, RECORDED)
    if short is None or short.units.outputs is not None:
        return None
    units = short.units
    if any(len({entrances[position] for position in column}) > 1 for column in zip(*units.units, strict=True)):
        return None
    try:
        return RecordedLayers(short, [entrances[position] for position in units.positions], joins)
    except (NotFusable, Uneven):  # of the whole it is said why
        return None


class RecordedLayers(Recorded):
    """What `Recorded` is of the whole graph, recorded of the shortened one."""

    def __init__(self, short: Shortened, entrances: Sequence[Entrance], joins: bool) -> None:
        """Raises NotFusable, and Uneven where layers are not alike in what was recorded."""
        super().__init__(short.gm, entrances, joins=joins, unit_of=short.unit_of)
        check_inputs(self.graph, short.examples)
        # what is written may be looked at by hand, and draws of kernels are numbered
        if self.written or self.results.tied or self.drawing:
            raise Uneven
        self._units = short.units
        self.n_inputs = len(short.units.names)
        self._lengthening: Lengthening | None = None
        self._joint = super().joint()

    def joint(self) -> JointGraph:
        """The whole graph with the backward of all segments."""
        return self._joint

    def joint_of(self, segment: int, given: Given) -> JointGraph:
        """As `Recorded` has it. Raises NeedsGradients."""
        try:
            return super().joint_of(segment, given)
        except Uneven as e:
            raise NeedsGradients("layers are not alike for these gradients") from e

    def whole(self, recorded: Sequence[SegmentBackward]) -> tuple[Graph, list[int]]:
        """As `Recorded` has it, of the whole graph. Raises Uneven."""
        self._lengthening = made = Lengthening(self.graph, self._units, self.recorder.unit_of)
        graph, n_inputs = made.graph, len(self.inputs)
        for backward in recorded:
            graph.outputs += made.values(backward.gradients[:n_inputs])
            graph.outputs += [None if value is None else made.value(value) for value in backward.gradients[n_inputs:]]
        tangents = [made.value(tangent) for backward in recorded for tangent in backward.tangents]
        return graph, [graph.inputs.index(tangent) for tangent in tangents]

    def positions(self, found: Iterable[int]) -> list[int]:
        """The positions in the whole graph of inputs of the one that was recorded."""
        assert self._lengthening is not None
        return self._lengthening.positions(found)

    def spread_ranks(self, ranks: Sequence[Rank]) -> Sequence[Rank]:
        """As `Recorded` has it: gradients come to the units that were left out, the last one first, before they come to
        the second."""
        assert self._lengthening is not None
        before = min((ranks[place][0] for place in self._lengthening.own[SECOND]), default=0) - 0.5
        return self._lengthening.spread(
            ranks, lambda second, _, unit: (before, -unit, second[0]), lambda rank, _: rank
        )

    def plain_results(self) -> Results:
        """Where the results of the whole graph come from."""
        results, places = super().plain_results(), self._units.positions
        return replace(
            results, passed_on={position: places[place] for position, place in results.passed_on.items()},
            views={
                position: replace(view, place=places[view.place]) if view.base is Base.INPUT else view
                for position, view in results.views.items()
            },
        )
