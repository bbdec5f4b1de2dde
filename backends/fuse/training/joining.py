"""Segments joined into one, or one for each stage of the backward, where all of them lead to a loss.

A program that compiles a model alone gets all that the model gives: a loss, the logits that it is made of, caches. At
each of these it may ask for gradients, which is why each is a node of autograd. As a rule it does not, and goes
backwards from the loss alone. Then the backward is compiled as if only the loss were given, and the node of the loss
runs it for all others (`whole_backward.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from framejit.backends.fuse.autograd_nodes.segments import Edge, Segment


def joined(segments: Sequence[Segment], is_loss: Callable[[int], bool]) -> list[Segment]:
    """The segments joined, those of each stage into one, each behind those that it takes from. Nothing where not all of
    several lead to a loss. `is_loss`: whether a result is one, by its number."""
    compiled = [segment for segment in segments if not segment.is_view]
    if len(compiled) < 2:
        return []
    last = segments[-1]
    if last.is_view or len(last.outputs) != 1 or len(last.results) != 1:
        return []
    if last.stage or not is_loss(last.results[0]) or not _lead_to_last(segments):
        return []
    stages = sorted({segment.stage for segment in segments}, reverse=True)
    found = [_joined([segment for segment in segments if segment.stage == stage]) for stage in stages]
    taken = {edge for stage in found for edge in stage.borders}
    for stage in found:
        stage.outputs = [edge for edge in stage.outputs if edge in taken]
    found[-1].results, found[-1].outputs = [*last.results], [*last.outputs, *found[-1].outputs]
    return found


def _lead_to_last(segments: Sequence[Segment]) -> bool:
    """Whether the last one leads to all others, backwards. Not so where one is a view of an input: no node of ours
    would hand its gradients out."""
    reached: set[Edge] = {*segments[-1].outputs}
    for segment in reversed(segments):
        if reached.isdisjoint(segment.outputs) or (segment.is_view and segment.leaves):
            return False
        reached.update(segment.borders)
    return True


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
