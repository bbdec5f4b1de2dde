"""Segments that were joined, made ready to run: a backward for each stage, and nodes of autograd that have a share of
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from framejit.backends.fuse.autograd_nodes.backward import Backward
from framejit.backends.fuse.autograd_nodes.segment_nodes import Like, SegmentNode, ViewSegment
from framejit.backends.fuse.autograd_nodes.segments import Edge
from framejit.backends.fuse.autograd_nodes.whole_backward import JoinedSegment, Stage, WholeBackward
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.not_fusable import NeedsGradients
from framejit.backends.fuse.sizes.symbolic_size import as_sizes
from framejit.backends.fuse.training.joint import Recorded
from framejit.backends.fuse.training.kept_by_eager import results_behind, watched
from framejit.backends.fuse.training.partition import BackwardPart, Partition


def joined_nodes(
    recorded: Recorded, partition: Partition, sources: Mapping[Value, tuple[bool, int]], numbers: Mapping[Edge, int]
) -> list[SegmentNode | ViewSegment]:
    """The nodes of autograd, before anything is compiled. `sources`: where values are found when the graph runs.
    `numbers`: of what crosses between segments. Raises NeedsGradients where the graph is not to be run so."""
    assert recorded.joined is not None
    loss, saved = recorded.joined.loss, _saved(partition, sources)
    if not results_behind(recorded, loss).isdisjoint(place for is_input, place in saved if not is_input):
        raise NeedsGradients("its backward looks at a result that others lead to")
    waiting = {
        recorded.segments[part.backward.segment].stage: {*_gradients(recorded, part)[0]}
        for part in partition.backwards.values()
    }
    stages = [*waiting]
    nodes: list[SegmentNode | ViewSegment] = []
    is_before = True
    for number in recorded.order:
        segment = recorded.nodes[number]
        if segment.is_view:
            nodes.append(ViewSegment([numbers[edge] for edge in segment.outputs], recorded.view_positions(segment)))
            continue
        inputs = recorded.leaves_of(segment)
        given = waiting[segment.stage] if is_before else set()
        owned = [position for position in inputs if position in given]
        given.difference_update(owned)
        stage = stages.index(segment.stage) if is_before else 0
        kept = saved if number == loss else []
        nodes.append(_node(recorded, number, kept, numbers, inputs, stage, owned))
        is_before = is_before and number != loss
    if any(waiting.values()):
        raise NeedsGradients("a gradient comes out of a node that does not lead to its input")
    return nodes


def whole_backward(
    recorded: Recorded, partition: Partition, sources: Mapping[Value, tuple[bool, int]], numbers: Mapping[Edge, int],
    backward_of: Callable[[BackwardPart, Sequence[int]], Backward],
) -> WholeBackward:
    """The backward from the loss. `backward_of`: compiles one, of which these gradients go out; for the rest see
    `joined_nodes`."""
    assert recorded.joined is not None
    places = {source: place for place, source in enumerate(_saved(partition, sources))}
    stages = [
        _stage(recorded, part, [places[sources[value]] for value in part.saved], numbers, backward_of)
        for part in partition.backwards.values()
    ]
    (loss,) = [numbers[edge] for edge in recorded.nodes[recorded.joined.loss].outputs]
    return WholeBackward(loss, stages)


def _saved(partition: Partition, sources: Mapping[Value, tuple[bool, int]]) -> list[tuple[bool, int]]:
    return [*dict.fromkeys(sources[value] for part in partition.backwards.values() for value in part.saved)]


def _gradients(recorded: Recorded, part: BackwardPart) -> tuple[list[int], list[int]]:
    """The inputs that a stage gives gradients of, and the places of the borders."""
    n_inputs, found = recorded.n_inputs, part.backward.gradients
    return (
        [position for position, gradient in enumerate(found[:n_inputs]) if gradient is not None],
        [place for place, gradient in enumerate(found[n_inputs:]) if gradient is not None],
    )


def _stage(
    recorded: Recorded, part: BackwardPart, saved: Sequence[int], numbers: Mapping[Edge, int],
    backward_of: Callable[[BackwardPart, Sequence[int]], Backward],
) -> Stage:
    number, n_inputs = part.backward.segment, recorded.n_inputs
    segment = recorded.segments[number]
    inputs, handed_on = _gradients(recorded, part)
    leaving = [*inputs, *(n_inputs + place for place in handed_on)]
    if not leaving:
        raise NeedsGradients("no gradient goes from a result to what it was made of")
    tangents = [numbers[segment.outputs[place]] for place, _ in recorded.usual(number)]
    borders = [numbers[segment.borders[place]] for place in handed_on]
    return Stage(saved, tangents, inputs, borders, backward_of(part, leaving))


def _node(
    recorded: Recorded, number: int, saved: Sequence[tuple[bool, int]], numbers: Mapping[Edge, int],
    inputs: Sequence[int], stage: int, owned: Sequence[int]
) -> JoinedSegment:
    assert recorded.joined is not None
    segment, n_inputs = recorded.nodes[number], recorded.n_inputs
    outputs = segment.outputs
    return JoinedSegment(
        number, saved, watched(recorded, number, saved), bool(saved) or segment.keeps,
        segment.has_function, [*map(_like, outputs)], [*range(len(outputs))], [numbers[edge] for edge in outputs],
        [numbers[edge] for edge in segment.borders],
        [recorded.differentiable[result] for result in segment.results], inputs, recorded.arrival(inputs),
        [*inputs, *(n_inputs + place for place in range(len(segment.borders)))], [], frozenset(), [], stage, owned,
        number == recorded.joined.loss,
    )


def _like(edge: Edge) -> Like:
    node, output = edge
    seen = node._input_metadata[output]
    return Like(as_sizes(seen.shape), seen.dtype, seen.device)
