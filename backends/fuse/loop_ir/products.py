"""Loop nests that are matrix products."""

from __future__ import annotations

from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.nodes import ComputeNode
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize


def sums_of_products(node: ComputeNode) -> set[Expr]:
    """The reductions of a loop nest, if its sizes are known and each is a sum over products of two values of which
    neither has been reduced; else none."""
    if any(isinstance(var.size, SymbolicSize) for var in (*node.parallel, *node.reduction)):
        return set()
    if any(store.in_reduction for store in node.stores):
        return set()
    sums = {value for store in node.stores for value in store.value.walk() if value.op in ("reduce", "scan")}
    return sums if all(map(_is_sum_of_products, sums)) else set()


def is_product(node: ComputeNode) -> bool:
    """Whether a loop nest does nothing but matrix products, and what is fused with them."""
    return bool(sums_of_products(node))


def _is_sum_of_products(value: Expr) -> bool:
    return (
        value.op == "reduce" and value.attr == "sum" and value.args[0].op == "mul"
        and not any(inner.op in ("reduce", "scan") for inner in value.args[0].walk())
    )
