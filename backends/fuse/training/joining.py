"""Segments joined into one, or one for each stage of the backward, where they lead to a loss.

A program that compiles a model alone gets all that the model gives: a loss, the logits that it is made of, caches. At
each of these it may ask for gradients, which is why each is a node of autograd. As a rule it does not, and goes
backwards from the loss alone. Then the backward is compiled as if only the loss were given, and the node of the loss
runs it for all others (`whole_backward.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from framejit.backends.fuse.autograd_nodes.segments import Edge, Segment


class Joined(NamedTuple):
    """Segments of which those that lead to a loss have one backward, or one for each stage."""

    loss: int
    """The number of the segment that gives the loss."""
    order: list[int]
    """The numbers of all, those that lead to the loss first, then the loss, then the others: each behind those that it
    takes from."""
    stages: list[Segment]
    """The segments that they are joined into, each behind those that it takes from."""


def joined(
    segments: Sequence[Segment], is_loss: Callable[[int], bool], position_of: Callable[[int], float]
) -> Joined | None:
    """The segments joined; None where it can't be told what a program would go backwards from.

    `is_loss`: whether a result is a single number that a backward may begin at, by the result's number. All others must
    lead to one, or one to all other such numbers. No torch.autograd.Function may be among what leads to it: what comes
    to that besides goes backwards on its own, and a backward of the program's need not give for a sum of gradients the
    sum of what it gives for each. `position_of`: where a result stands among what the program is given. What does not
    lead to the loss stands behind it: a loss behind such a tensor may be a part of the program's loss, of which the
    tensor leads to another part.
    """
    if sum(not segment.is_view for segment in segments) < 2:
        return None
    losses = [
        number
        for number, segment in enumerate(segments)
        if not segment.is_view and len(segment.outputs) == len(segment.results) == 1 and is_loss(segment.results[0])
    ]
    for loss in losses:
        before = _leading_to(segments, loss)
        if before is None or not before.union((loss,)).issuperset(losses):
            continue
        if any(segments[number].has_function for number in before):
            continue
        others = [number for number in range(len(segments)) if number not in before and number != loss]
        place = position_of(segments[loss].results[0])
        if segments[loss].stage or any(
            position_of(result) < place or is_loss(result) for number in others for result in segments[number].results
        ):
            return None
        members = [segments[number] for number in (*sorted(before), loss)]
        return Joined(loss, [*sorted(before), loss, *others], _stages(members, segments[loss]))
    return None


def _leading_to(segments: Sequence[Segment], loss: int) -> set[int] | None:
    """The numbers of those that lead to this one. None where one of them is a view of an input: no node of ours would
    hand its gradients out."""
    found: set[int] = set()
    taken: set[Edge] = {*segments[loss].borders}
    for number in reversed(range(loss)):
        segment = segments[number]
        if taken.isdisjoint(segment.outputs):
            continue
        if segment.is_view and segment.leaves:
            return None
        found.add(number)
        taken.update(segment.borders)
    return found


def _stages(members: Sequence[Segment], loss: Segment) -> list[Segment]:
    stages = sorted({segment.stage for segment in members}, reverse=True)
    found = [_joined([segment for segment in members if segment.stage == stage]) for stage in stages]
    taken = {edge for stage in found for edge in stage.borders}
    for stage in found:
        stage.outputs = [edge for edge in stage.outputs if edge in taken]
    found[-1].results, found[-1].outputs = [*loss.results], [*loss.outputs, *found[-1].outputs]
    return found


def _joined(members: Sequence[Segment]) -> Segment:
    """One segment of those of a stage, with the outputs of all."""
    outputs = [*dict.fromkeys(edge for segment in members for edge in segment.outputs)]
    borders = dict.fromkeys(edge for segment in members for edge in segment.borders)
    return Segment(
        [], outputs, [edge for edge in borders if edge not in outputs],
        keeps=any(segment.keeps for segment in members), kept=set().union(*(segment.kept for segment in members)),
        leaves=set().union(*(segment.leaves for segment in members)), stage=members[0].stage,
        has_function=any(segment.has_function for segment in members),
    )
