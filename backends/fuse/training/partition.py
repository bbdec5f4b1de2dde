"""Which values of the forward are kept for the backward, and the two graphs that come of it.

A value is kept, or computed again in the backward from others that are. What is cheapest to keep, in bytes, is a
minimum cut of the graph between what cannot be computed again and what the backward looks at (T. Chen et al., "Training
Deep Nets with Sublinear Memory Cost", 2016, has the trade; that it is a cut: H. He, S. Zhang, "min-cut recomputation",
in torch's functorch.compile, 2022). Only what fuses is computed again: it costs no memory traffic of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from framejit.backends.fuse.graph.extract import extracted
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node, values_in
from framejit.backends.fuse.graph.value import Storage, Value
from framejit.backends.fuse.lowering.extern import may_speak_when_run
from framejit.backends.fuse.not_fusable import NeedsGradients
from framejit.backends.fuse.training.budget import regions_of
from framejit.backends.fuse.training.joint import JointGraph, SegmentBackward
from framejit.backends.fuse.training.keeping import bytes_of, is_lowered, storages_to_keep
from framejit.late_dataclass import dataclass


@dataclass(frozen=True)
class BackwardPart:
    """The backward of a segment, with what of the forward it computes again."""

    joint: JointGraph
    backward: SegmentBackward
    saved: list[Value]
    """The values of the forward that are kept for it, among them inputs and outputs."""
    nodes: list[Node]

    def graph(self) -> Graph:
        """The graph from what is kept and the gradients that come in to those that go out."""
        tangents = self.backward.tangents
        names = [f"saved{number}" for number in range(len(self.saved))] + [
            f"tangent{number}" for number in range(len(tangents))
        ]
        outputs = [*dict.fromkeys(values_in(self.backward.gradients))]
        graph = extracted(self.joint.graph, [*self.saved, *tangents], names, self.nodes, outputs, {})
        known = {*self.joint.inputs, *values_in(self.joint.outputs), *self.joint.contents()}
        made = [position for position, value in enumerate(self.saved) if value not in known]
        # gradients that come in are as a rule held by autograd alone: see `tangents.py`
        graph.own_inputs = frozenset([*made, *range(len(self.saved), len(graph.inputs))])
        return graph


@dataclass(frozen=True)
class Partition:
    """A forward and the backwards of its segments, parted."""

    joint: JointGraph
    saved: list[Value]
    """What the forward keeps for the backwards, inputs and outputs among it."""
    forward_nodes: list[Node]
    backwards: dict[int, BackwardPart]
    """By the number of the segment."""

    def forward(self) -> Graph:
        """The graph that gives the program's outputs, but for those that are inputs, and behind them what is kept and
        is neither input nor output."""
        joint = self.joint
        names = joint.graph.names[: len(joint.inputs)]
        return extracted(
            joint.graph, joint.inputs, names, self.forward_nodes, [*joint.outputs, *self.made()],
            joint.graph.counted_writes,
        )

    def kept_by_line(self) -> list[tuple[str, int]]:
        """The lines of the program whose values are kept, besides what it holds itself, and their bytes; the most
        first."""
        kept: Counter[str] = Counter()
        for value in self.made():
            kept[str(value.maker.origin) if value.maker is not None else ""] += bytes_of(value)
        return kept.most_common()

    def computed_again_by_line(self) -> list[tuple[str, int]]:
        """The lines of which backwards compute operations again, and how many; the most first."""
        again = Counter(
            str(node.origin)
            for part in self.backwards.values()
            for node in part.nodes
            if not node.origin.is_backward and any(value.base is None for value in node.results)
        )
        return again.most_common()

    def made(self) -> list[Value]:
        """The values that are kept and are neither inputs, nor what one holds at the end, nor outputs."""
        known = {*self.joint.inputs, *values_in(self.joint.outputs), *self.joint.contents()}
        return [value for value in self.saved if value not in known]


def parted(joint: JointGraph, kept: Sequence[int] | None = None, share: float = 1.0) -> Partition:
    """The parts of a joint graph. `kept`: the numbers of what an earlier partition of the same forward keeps, so that
    only the backward is new. `share`: of the bytes that would be kept, how many may. Raises NeedsGradients where what
    is kept is not enough."""
    forward = [node for node in joint.graph.nodes if not node.origin.is_backward]
    later = [node for node in joint.graph.nodes if node.origin.is_backward]
    incoming = {tangent for backward in joint.backwards for tangent in backward.tangents}
    needed = {backward.segment: _needed(later, values_in(backward.gradients), set()) for backward in joint.backwards}
    looked_at = {
        backward.segment: _looked_at(needed[backward.segment], backward, incoming) for backward in joint.backwards
    }
    everything = [*dict.fromkeys(value for values in looked_at.values() for value in values)]
    if kept is None:
        regions = regions_of(joint, forward, share, partial(storages_to_keep, joint, forward, later, everything))
        keep = partial(storages_to_keep, joint, forward, later, regions=regions)
        saved = keep(everything)
        of_segment = {
            segment: keep(values) if _looks_further(joint, forward, saved, needed[segment], values) else saved
            for segment, values in looked_at.items()
        }
        saved = [*dict.fromkeys((*saved, *(value for values in of_segment.values() for value in values)))]
    else:
        saved = joint.values(kept)
        of_segment = dict.fromkeys(looked_at, saved)
    parts = {}
    for backward in joint.backwards:
        saved_here = of_segment[backward.segment]
        again = _needed(forward, looked_at[backward.segment], {value.storage for value in saved_here})
        if any(node.writes or node.ordered for node in again):
            raise NeedsGradients("its backward looks at what is written in place later")
        nodes = _late(again, needed[backward.segment])
        values = {*(value for node in nodes for value in node.values()), *values_in(backward.gradients)}
        taken = {value.storage for value in values}
        # what an earlier partition keeps is given, needed or not
        own = saved if kept is not None else [value for value in saved_here if value.storage in taken]
        made = {*(value for node in nodes for value in node.results), *own, *incoming, *joint.graph.constants}
        if not values <= made:
            raise NeedsGradients("its backward looks at what is not kept")
        parts[backward.segment] = BackwardPart(joint, backward, own, nodes)
    return Partition(joint, saved, _needed(forward, [*values_in(joint.outputs), *saved], set(), _must_run), parts)


def _looks_further(
    joint: JointGraph, forward: Sequence[Node], saved: Sequence[Value], needed: Sequence[Node],
    looked_at: Sequence[Value]
) -> bool:
    """Whether the backward of a segment would take an input or output, from what is kept, which eager keeps for others
    only: the program may have written into it by then."""
    again = _needed(forward, looked_at, {value.storage for value in saved})
    own = {joint.copied.get(value, value).storage for value in looked_at}
    taken = {value.storage for node in (*again, *needed) for value in node.values()}
    exposed = {value.storage for value in (*joint.inputs, *joint.contents(), *values_in(joint.outputs))}
    return not taken.isdisjoint({value.storage for value in saved if value.storage in exposed} - own)


def _late(again: Sequence[Node], nodes: Sequence[Node]) -> list[Node]:
    """The nodes of a backward, and those that are computed again for it, each of these before the first that takes it:
    of several checkpoints one is in memory at a time, and layers alike are alike in their backward, too."""
    place = {node: number for number, node in enumerate(again)}
    found: list[Node] = []
    for last in nodes:
        way = [last]
        while way:
            makers = {value.maker for value in way[-1].values()} | {
                value.storage.first.maker for value in way[-1].values()
            }
            missing = min((maker for maker in makers if maker in place), key=place.__getitem__, default=None)
            if missing is not None:
                del place[missing]
                way.append(missing)
            else:
                found.append(way.pop())
    return found + [*place]


def _looked_at(nodes: Sequence[Node], backward: SegmentBackward, incoming: set[Value]) -> list[Value]:
    """What a backward takes that no gradient has part in."""
    made = {value for node in nodes for value in node.results} | incoming
    values = (*(value for node in nodes for value in node.values()), *values_in(backward.gradients))
    return [*dict.fromkeys(value for value in values if value not in made)]


def _must_run(node: Node) -> bool:
    """Whether a forward operation runs though nobody needs its result: it writes, or may raise or warn."""
    is_view = bool(node.results) and all(value.base is not None for value in node.results)
    return node.ordered or bool(node.writes) or may_speak_when_run(node) or not (is_view or is_lowered(node))


def _needed(
    nodes: Sequence[Node], wanted: Iterable[Value], at_hand: set[Storage],
    keep: Callable[[Node], bool] = lambda node: False,
) -> list[Node]:
    """The nodes, in order, that compute the wanted values from storages that are at hand; and the nodes that `keep`
    says are there anyway."""
    needed = {*wanted}
    found = []
    for node in reversed(nodes):
        if keep(node) or any(
            value in needed and not (value.storage in at_hand and value.storage.first is value)
            for value in node.results
        ):
            found.append(node)
            needed.update(node.values())
    return found[::-1]
