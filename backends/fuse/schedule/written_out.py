"""Short reductions written out: each turn an expression of its own, and no loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

from framejit.backends.fuse.loop_ir.expr import Expr, Substitution, is_ordered, op
from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.loop_ir.nodes import Kernel
from framejit.backends.fuse.schedule.loop_order import expressions_of
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize

MOST_TURNS: Final = 9
"""Turns that are written out: a window of three by three is."""
MOST_NODES: Final = 200
"""Nodes of all turns together: what registers hold, and a compiler takes no long time for."""
BY_TWOS: Final = {
    "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "bitor", "all": "bitand", "xor": "bitxor",
}
"""What joins two operands of a kind of reduction."""


class _WrittenOut(Substitution):
    """Each reduction as operations on what it has in the turns of its loops."""

    def __init__(self, turns: Sequence[dict[Var, Index]]) -> None:
        super().__init__({}, None)
        self._turns = turns

    def _new(self, node: Expr) -> Expr:
        if node.op != "reduce":
            return super()._new(node)
        operand = self[node.args[0]]
        joined: Callable[[Expr, Expr], Expr] = lambda a, b: op(BY_TWOS[node.attr], a, b)  # noqa: E731
        return reduce(joined, (operand.substitute(turn) for turn in self._turns))


def written_out(kernel: Kernel) -> Kernel | None:
    """The kernel without loops over its reductions; None where these are long, of sizes that are not known, or stores,
    scans and places (of the greatest, say) depend on their turns."""
    sizes = [var.size for var in kernel.reduction]
    if any(isinstance(size, SymbolicSize) for size in sizes) or not 0 < kernel.reduction_size <= MOST_TURNS:
        return None
    nodes = {node for store in kernel.stores for node in expressions_of(store)}
    changing = [node for node in nodes if node.vars() & set(kernel.reduction)]
    if (
        any(store.in_reduction for store in kernel.stores)
        or any(map(is_ordered, nodes))
        or len(changing) * kernel.reduction_size > MOST_NODES
    ):
        return None
    turns = [
        dict(zip(kernel.reduction, map(Index.of, turn))) for turn in itertools.product(*(range(size) for size in sizes))
    ]
    done = _WrittenOut(turns)
    stores = [
        replace(store, value=done[store.value], index=store.index.substitute({}, done)) for store in kernel.stores
    ]
    return replace(kernel, reduction=(), stores=stores)
