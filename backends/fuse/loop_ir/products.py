"""Loop nests that are matrix products."""

from __future__ import annotations

from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Var
from framejit.backends.fuse.loop_ir.nodes import ComputeNode
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize


def sums_of_products(node: ComputeNode) -> set[Expr]:
    """The products of a loop nest, if its sizes are known and it does nothing but matrix products, what is fused with
    them, and norms before them; else none. Each is a sum over products of two values."""
    if any(isinstance(var.size, SymbolicSize) for var in (*node.parallel, *node.reduction)):
        return set()
    if any(store.in_reduction for store in node.stores):
        return set()
    sums: set[Expr] = set()
    waiting = [store.value for store in node.stores]
    seen: set[Expr] = set()
    while waiting:
        value = waiting.pop()
        if value.op in ("reduce", "scan"):
            sums.add(value)
        elif value not in seen:
            seen.add(value)
            waiting.extend(value.operands())
    parallel = {*node.parallel}
    return sums if all(_is_product(value, parallel) for value in sums) else set()


def is_product(node: ComputeNode) -> bool:
    """Whether a loop nest does nothing but matrix products and what is fused with them."""
    return bool(sums_of_products(node))


def _is_product(value: Expr, parallel: set[Var]) -> bool:
    """Whether it is a sum over products of two values, one of which some loop leaves alone that moves the other."""
    if value.op != "reduce" or value.attr != "sum" or value.args[0].op != "mul":
        return False
    one, other = (factor.vars() & parallel for factor in value.args[0].args)
    return one != other and not any(inner.op == "scan" for inner in value.args[0].walk())
