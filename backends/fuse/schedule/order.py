"""The order in which nodes run, for the fewest bytes alive at once.

Finding the best order is NP-hard (Sethi, "Complete register allocation problems", 1975). This is a list scheduler: it
takes nodes in the program's order as long as they fit into a budget of bytes, and where the next one does not, the one
of those that can run which frees most. It also runs from the end to the beginning: there, what is made early for later
is put off. The budget is lowered as long as that leads to something; if nothing is gained, the order stays the
program's.
"""
from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Final

from framejit.backends.fuse.loop_ir.nodes import Buffer, Node
from framejit.backends.fuse.schedule.dependencies import constraints
from framejit.backends.fuse.schedule.peak_memory import Usage

ROUNDS: Final = 5
"""Budgets that are tried, each in both directions."""
CHOICE: Final = 16
"""Nodes that could run which are looked at where the next in the program's order does not fit: keeps the time linear in
the number of nodes."""


def ordered_for_memory(
    nodes: list[Node], buffers: Mapping[str, Buffer], outputs: Iterable[str], given: Set[int] = frozenset()
) -> list[Node]:
    """The nodes in an order that respects their constraints, and takes no more memory than the one they are given in.

    `outputs`: the buffers that the graph returns; `given`: the inputs that die with their last use. Where nothing is
    gained, the given order.
    """
    usage = Usage(nodes, buffers, outputs, given)
    best: Sequence[int] = range(len(nodes))
    peak, low = usage.profile(best).peak, usage.least
    if peak <= low:
        return nodes
    search = _Search(usage, constraints(nodes, buffers))
    budget = peak - 1
    for _ in range(ROUNDS):
        found = [
            order
            for order in (search.forward(best, budget, peak), search.backward(best, budget, peak))
            if order is not None
        ]
        lowest, order = min(
            ((usage.profile(order).peak, order) for order in found),
            key=lambda candidate: candidate[0],
            default=(peak, best),
        )
        if lowest < peak:
            peak, best = lowest, order
        elif budget == peak - 1:
            break
        else:
            low = budget
        if peak <= low + 1:
            break
        budget = (low + peak) // 2
    return [nodes[position] for position in best]


class _Search:
    def __init__(self, usage: Usage, before: list[set[int]]) -> None:
        self.usage, self.before = usage, before
        self.after: list[set[int]] = [set() for _ in before]
        for node, earlier in enumerate(before):
            for other in earlier:
                self.after[other].add(node)

    def forward(self, order: Sequence[int], budget: int, limit: int) -> list[int] | None:
        """An order that stays under the limit, and within the budget where it can; None if none is found. Otherwise
        nodes run as `order` has them."""
        return _Pass(self.usage, order, self.before, self.after, backward=False).run(budget, limit)

    def backward(self, order: Sequence[int], budget: int, limit: int) -> list[int] | None:
        """An order as `forward` gives it, found from the end of the program."""
        found = _Pass(self.usage, order[::-1], self.after, self.before, backward=True).run(budget, limit)
        return None if found is None else found[::-1]


class _Pass:
    """One run of the list scheduler over nodes, from their first or, `backward`, from their last; `order` has them in
    that direction."""

    def __init__(
        self, usage: Usage, order: Sequence[int], waits: list[set[int]], followers: list[set[int]], backward: bool
    ) -> None:
        self.usage, self.order, self.followers, self.backward = usage, order, followers, backward
        self.rank = {node: place for place, node in enumerate(order)}
        self.waiting = list(map(len, waits))
        self.ready = [place for place, node in enumerate(order) if not waits[node]]
        self.left = dict(usage.users)
        self.alive = usage.kept_bytes if backward else usage.given_bytes

    def run(self, budget: int, limit: int) -> list[int] | None:
        result: list[int] = []
        while self.ready:
            place = self._choice(budget, limit)
            if place is None:
                return None
            node = self.order[place]
            del self.ready[bisect_left(self.ready, place)]
            self.alive = self._bytes(node)[1]
            for name in self.usage.used[node]:
                self.left[name] -= 1
            for follower in self.followers[node]:
                self.waiting[follower] -= 1
                if not self.waiting[follower]:
                    insort(self.ready, self.rank[follower])
            result.append(node)
        return result

    def _choice(self, budget: int, limit: int) -> int | None:
        """The place in the order of the node to run now."""
        if self._bytes(self.order[self.ready[0]])[0] <= budget:
            return self.ready[0]
        choice: tuple[int, int, int] | None = None
        for place in islice(self.ready, CHOICE):
            during, then = self._bytes(self.order[place])
            if during < limit:
                best = max(during, budget), then, place
                choice = best if choice is None else min(choice, best)
        return choice and choice[2]

    def _bytes(self, node: int) -> tuple[int, int]:
        """Bytes alive while a node runs, and after it (before it, where time runs backward)."""
        usage = self.usage
        taken, dying = usage.taken(node, self.left, self.backward), usage.dying(node, self.left, self.backward)
        more, less = usage.bytes(taken), usage.bytes(dying)
        if self.backward:
            more, less = less, more
        return self.alive + more - usage.bytes(usage.replaced(node, taken, dying)), self.alive + more - less
