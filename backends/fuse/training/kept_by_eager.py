"""What eager keeps for its backwards and the program can write into: a write in between is an error."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from framejit.backends.fuse.training.joint import Recorded


def results_behind(recorded: Recorded, number: int) -> set[int]:
    """Where the forward plan gives the results of nodes of autograd behind this one."""
    behind = [recorded.nodes[other] for other in recorded.order[recorded.order.index(number) + 1 :]]
    results = [number for segment in behind if not segment.is_view for number in segment.results]
    return {recorded.differentiable[number] for number in results}


def watched(recorded: Recorded, number: int, saved: Sequence[tuple[bool, int]]) -> list[tuple[bool, int]]:
    """Where the tensors come from that eager keeps for the backward of a node, and ours does not: `saved` is what that
    keeps. What the program checkpoints is computed again in eager, too, so that nobody looks at what became of it."""
    if any(node.origin.checkpoint for node in recorded.graph.nodes):
        return []
    kept, behind = recorded.nodes[number].kept, results_behind(recorded, number)
    inputs = recorded.positions(
        place for place, fake in enumerate(recorded.inputs) if fake.untyped_storage()._cdata in kept
    )
    given = [
        place
        for place, root in enumerate(recorded.results.roots)
        if place not in recorded.results.tied
        and place not in behind
        and isinstance(root, torch.Tensor)
        and root.untyped_storage()._cdata in kept
    ]
    found = [*((True, place) for place in inputs), *((False, place) for place in given)]
    return [each for each in found if each not in saved]
