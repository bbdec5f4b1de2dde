"""Bringing two loop nests to the same loops, so that they can be one.

Two nests that go over the same elements may have cut them into loops differently: one over 32768 × 4096, the other over
32 × 1024 × 4096, or over 4096 × 32768. What both access in the same buffer says which loops correspond: the loops,
ordered by how far a step of each leads in that buffer, enumerate the same places. They are cut at all the points where
one of the two cuts (their common refinement).
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from framejit.backends.fuse.loop_ir.index import Index, Var, fresh_var
from framejit.backends.fuse.sizes.symbolic_size import surely_divides, surely_equal
from framejit.late_dataclass import dataclass


@dataclass
class Match:
    """New loops for both nests: `first` and `second` say what each one's variables are in terms of them."""

    first: dict[Var, Index]
    second: dict[Var, Index]
    pieces: dict[Var, list[Var]]
    """The new loops that a variable of the first nest was cut into, outermost first."""

    @property
    def keeps_first(self) -> bool:
        """Whether the first nest stays as it is."""
        return all(pieces == [var] for var, pieces in self.pieces.items())


def match_loops(first: Sequence[Var], second: Sequence[Var], accesses: Iterable[tuple[Index, Index]]) -> Match | None:
    """Loops common to two nests, or None if there are none without divisions.

    `accesses` are pairs of places (of the first nest, of the second) in the same buffer; those that tell most about the
    loops are used first, and loops that no access tells about are matched in their order.
    """
    first, second = [var for var in first if var.size != 1], [var for var in second if var.size != 1]
    if not _as_many(first, second):
        return None
    match = Match({}, {}, {})
    for a, b in sorted(accesses, key=lambda pair: -len(pair[0].terms)):
        here, there = _by_stride(a, first), _by_stride(b, second)
        if here is None or there is None or not here or not _as_many(here, there):
            continue
        if not _refine(here, there, match):
            return None
        first, second = [var for var in first if var not in here], [var for var in second if var not in there]
    return match if _refine(first, second, match) else None


def _by_stride(place: Index, loops: Sequence[Var]) -> list[Var] | None:
    """The loops that move the place, the one with the longest step first; None if it isn't a sum of forward steps."""
    if not place.is_affine:
        return None
    moving = [var for var in loops if var in place.terms]
    if any(place.stride(var) < 0 for var in moving):
        return None
    return sorted(moving, key=lambda var: -place.stride(var))


def _refine(first: Sequence[Var], second: Sequence[Var], match: Match) -> bool:
    """Cut two sequences of loops over equally many elements at each other's bounds. False if the bounds don't
    divide."""
    if not _as_many(first, second):
        return False
    rest, other_rest = [(var, var.size) for var in first], [(var, var.size) for var in second]
    cuts: dict[Var, list[Var]] = {var: [] for var in (*first, *second)}
    while rest and other_rest:
        (a, left), (b, other_left) = rest[0], other_rest[0]
        size = left if surely_divides(left, other_left) else other_left
        if not surely_divides(size, left):
            return False
        # a loop of the first nest that is not cut stays the same object: then the first nest need not be rewritten
        piece = a if surely_equal(size, a.size) else b if surely_equal(size, b.size) else fresh_var("i", size)
        cuts[a].append(piece)
        cuts[b].append(piece)
        rest[0], other_rest[0] = (a, left // size), (b, other_left // size)
        rest, other_rest = [pair for pair in rest if pair[1] > 1], [pair for pair in other_rest if pair[1] > 1]
    for var in first:
        match.pieces[var] = cuts[var]
        match.first[var] = _joined(cuts[var])
    match.second.update((var, _joined(cuts[var])) for var in second)
    return True


def _as_many(first: Sequence[Var], second: Sequence[Var]) -> bool:
    """Whether both nests have as many turns."""
    return surely_equal(math.prod(var.size for var in first), math.prod(var.size for var in second))


def _joined(pieces: Iterable[Var]) -> Index:
    joined = Index({})
    for piece in pieces:
        joined = joined * piece.size + piece
    return joined


def cut(loops: Iterable[Var], pieces: Mapping[Var, list[Var]]) -> tuple[Var, ...]:
    """The loops after the cuts of a match."""
    return tuple(piece for var in loops for piece in pieces.get(var, [var]))
