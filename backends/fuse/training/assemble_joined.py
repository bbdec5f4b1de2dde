"""Segments that were joined, made ready to run: a backward for each stage, and nodes of autograd that have a share of
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.autograd.graph import get_gradient_edge

from framejit.backends.fuse.autograd_nodes.backward import Backward
from framejit.backends.fuse.autograd_nodes.segment_nodes import Like, SegmentNode, ViewSegment
from framejit.backends.fuse.autograd_nodes.segments import Edge, Segment
from framejit.backends.fuse.autograd_nodes.whole_backward import JoinedSegment, Stage, WholeBackward
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.not_fusable import NeedsGradients
from framejit.backends.fuse.sizes.symbolic_size import as_sizes
from framejit.backends.fuse.training.joint import Recorded
from framejit.backends.fuse.training.kept_by_eager import results_behind, watched
from framejit.backends.fuse.training.partition import BackwardPart, Partition


def joined_nodes(
    recorded: Recorded, partition: Partition, sources: Mapping[Value, tuple[bool, int]], numbers: Mapping[Edge, int],
    backward_of: Callable[[BackwardPart, Sequence[int]], Backward],
) -> tuple[WholeBackward, list[SegmentNode | ViewSegment]]:
    """The whole backward, and the nodes of autograd. `sources`: where values are found when the graph runs. `numbers`:
    of what crosses between segments. `backward_of`: compiles a backward, of which these gradients go out. Raises
    NeedsGradients where the graph is not to be run so."""
    last = len(recorded.nodes) - 1
    parts = [partition.backwards[number] for number in reversed(range(len(recorded.segments)))]
    saved = [*dict.fromkeys(sources[value] for part in parts for value in part.saved)]
    if not results_behind(recorded, last).isdisjoint(place for is_input, place in saved if not is_input):
        raise NeedsGradients("its backward looks at a result that others lead to")
    places = {source: place for place, source in enumerate(saved)}
    stages = [
        _stage(recorded, part, [places[sources[value]] for value in part.saved], numbers, backward_of)
        for part in parts
    ]
    (loss,) = [numbers[edge] for edge in recorded.nodes[last].outputs]
    by_stage = {recorded.segments[part.backward.segment].stage: number for number, part in enumerate(parts)}
    waiting = [set(stage.inputs) for stage in stages]
    ends = {get_gradient_edge(each).node: place for place, each in enumerate(recorded.inputs) if each.requires_grad}
    nodes: list[SegmentNode | ViewSegment] = []
    for number, segment in enumerate(recorded.nodes):
        if segment.is_view:
            nodes.append(ViewSegment([numbers[edge] for edge in segment.outputs], recorded.view_positions(segment)))
            continue
        stage = by_stage[segment.stage]
        node = _node(recorded, number, segment, saved if number == last else [], numbers, stage, ends, waiting[stage])
        waiting[stage].difference_update(node.owned)
        nodes.append(node)
    if any(waiting):
        raise NeedsGradients("a gradient comes out of a node that does not lead to its input")
    return WholeBackward(loss, stages), nodes


def _stage(
    recorded: Recorded, part: BackwardPart, saved: Sequence[int], numbers: Mapping[Edge, int],
    backward_of: Callable[[BackwardPart, Sequence[int]], Backward],
) -> Stage:
    number, n_inputs = part.backward.segment, len(recorded.inputs)
    segment, found = recorded.segments[number], part.backward.gradients
    inputs = [position for position, gradient in enumerate(found[:n_inputs]) if gradient is not None]
    handed_on = [place for place, gradient in enumerate(found[n_inputs:]) if gradient is not None]
    leaving = [*inputs, *(n_inputs + place for place in handed_on)]
    if not leaving:
        raise NeedsGradients("no gradient goes from a result to what it was made of")
    tangents = [numbers[segment.outputs[place]] for place, _ in recorded.usual(number)]
    borders = [numbers[segment.borders[place]] for place in handed_on]
    return Stage(saved, tangents, inputs, borders, backward_of(part, leaving))


def _node(
    recorded: Recorded, number: int, segment: Segment, saved: Sequence[tuple[bool, int]], numbers: Mapping[Edge, int],
    stage: int, ends: Mapping[Any, int], waiting: set[int]
) -> JoinedSegment:
    """`ends`: the nodes where gradients of inputs end, with the positions of these. `waiting`: the inputs whose
    gradients no node gives out so far."""
    inputs = sorted(ends[leaf] for leaf in segment.leaves if leaf in ends)
    n_inputs, outputs = len(recorded.inputs), segment.outputs
    return JoinedSegment(
        number, saved, watched(recorded, number, saved), bool(saved) or segment.keeps,
        segment.has_function, [*map(_like, outputs)], [*range(len(outputs))], [numbers[edge] for edge in outputs],
        [numbers[edge] for edge in segment.borders],
        [recorded.differentiable[result] for result in segment.results], inputs,
        [*inputs, *(n_inputs + place for place in range(len(segment.borders)))], [], frozenset(), [], stage,
        [position for position in inputs if position in waiting], number == len(recorded.nodes) - 1,
    )


def _like(edge: Edge) -> Like:
    node, output = edge
    seen = node._input_metadata[output]
    return Like(as_sizes(seen.shape), seen.dtype, seen.device)
