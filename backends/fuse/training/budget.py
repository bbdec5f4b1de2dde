"""Which parts of a forward are computed again as a whole, products too, so that no more is kept for the backward than
`options={"activation_memory": share}` allows.

The forward is cut where little goes from one side to the other, as between the blocks of a network (T. Chen et al.,
"Training Deep Nets with Sublinear Memory Cost", 2016). Of its pieces the first ones, which are kept the longest, are
treated as if the program had checkpointed them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.value import Storage, Value
from framejit.backends.fuse.training.joint import JointGraph
from framejit.backends.fuse.training.keeping import bytes_of

MOST_PIECES: Final = 64

Regions = Mapping[Node, str]
"""What is computed again as a whole: the name of the part that an operation belongs to."""


def regions_of(
    joint: JointGraph, forward: Sequence[Node], share: float, keep: Callable[[Regions], Sequence[Value]]
) -> Regions:
    """The program's checkpoints, and as many pieces of the forward as it takes to keep no more than a share of the
    bytes that are kept without these; all of them where that is not enough. `keep`: what is kept if these are computed
    again."""
    own = {node: f"checkpoint {node.origin.checkpoint}" for node in forward if node.origin.checkpoint}
    if share >= 1:
        return own
    held = {value.storage for value in (*joint.inputs, *joint.contents())}

    def made(regions: Regions) -> list[Storage]:
        return [value.storage for value in keep(regions) if value.storage not in held]

    usual = made(own)
    wanted = share * sum(bytes_of(storage.first) for storage in usual)
    written = {value.storage for value in joint.contents().values()}
    pieces = [
        [
            node
            for node in piece
            if node not in own and not node.writes and not any(value.storage in written for value in node.values())
        ]
        for piece in _pieces(forward, {*usual})
    ]

    def of_first(count: int) -> Regions:
        return own | {node: f"piece {number}" for number, piece in enumerate(pieces[:count]) for node in piece}

    def is_enough(count: int) -> bool:
        return sum(bytes_of(storage.first) for storage in made(of_first(count))) <= wanted

    return of_first(bisect_left(range(len(pieces)), True, key=is_enough))


def _pieces(forward: Sequence[Node], kept: set[Storage]) -> list[Sequence[Node]]:
    """The forward in as many pieces as make least of what is kept between them and what one of them keeps inside."""
    crossing = _crossing(forward)
    inside = [0, *accumulate(_weight(node, kept) for node in forward)]
    best: tuple[int, list[int]] = (inside[-1], [])
    for count in range(2, min(MOST_PIECES, len(forward)) + 1):
        cuts = []
        for number in range(1, count):
            low, high = ((number + shift) * inside[-1] / count for shift in (-0.5, 0.5))
            window = range(max(bisect_left(inside, low), 1), min(bisect_left(inside, high), len(forward) - 1) + 1)
            if window:
                cuts.append(min(window, key=crossing.__getitem__))
        cuts = sorted({*cuts})
        bounds = [0, *cuts, len(forward)]
        largest = max(inside[end] - inside[start] for start, end in zip(bounds, bounds[1:]))
        best = min(best, (largest + sum(crossing[cut] for cut in cuts), cuts))
    bounds = [0, *best[1], len(forward)]
    return [forward[start:end] for start, end in zip(bounds, bounds[1:])]


def _weight(node: Node, kept: set[Storage]) -> int:
    return sum(bytes_of(value) for value in node.results if value.base is None and value.storage in kept)


def _crossing(forward: Sequence[Node]) -> list[int]:
    """Before each operation: the bytes made by those before it that it or a later one takes."""
    first, last = dict[Storage, int](), dict[Storage, int]()
    for position, node in enumerate(forward):
        for value in node.values():
            if value.storage in first:
                last[value.storage] = position
        for value in node.results:
            if value.base is None:
                first[value.storage] = position
    changes = [0] * (len(forward) + 2)
    for storage, end in last.items():
        changes[first[storage] + 1] += bytes_of(storage.first)
        changes[end + 1] -= bytes_of(storage.first)
    return [*accumulate(changes)]
