"""Which symbolic sizes are multiples of what a vectorised access needs.

Triton makes a wide load of a row only where it knows that each row begins, and ends, at a multiple of the load's width.
For numbers it sees that; of a size it has to be told. So it is asked, and the answer becomes a condition, of those
sizes alone on which accesses depend in this way.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from framejit.backends.fuse.loop_ir.index import Index, Quotient, Remainder, Var
from framejit.backends.fuse.loop_ir.nodes import Kernel
from framejit.backends.fuse.schedule.loop_order import expressions_of
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize, surely_equal
from framejit.symbols.expression import Expression, Symbol

ALIGNED: Final = 8
"""A load has 16 bytes: of what is wider than a byte, no more than so many elements. (Triton itself asks of arguments
whether they are multiples of 16, which many round numbers are not.)"""

COMPARISONS: Final = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


def is_multiple(divisor: int, size: Any) -> bool:
    """Whether a power of two divides a size, as far as numbers and earlier answers tell. Nothing is assumed."""
    if not isinstance(size, SymbolicSize):
        return bool(size % divisor == 0)
    for product, coefficient in size.conditions.simplified(size.expression).terms.items():
        multiples = sum(size.conditions.known(_rest(Expression.of(atom)), "==") is True for atom in product)
        if coefficient * ALIGNED**multiples % divisor:
            return False
    return True


def is_dense(index: Index, var: Var) -> bool:
    """Whether a loop goes through memory one element at a time, as far as is known."""
    return surely_equal(index.stride(var), 1) or surely_equal(index.stride(var), -1)


def _rest(expression: Expression) -> Expression:
    return expression % Expression.constant(ALIGNED)


def assume_multiples(kernel: Kernel) -> None:
    """Decide which of the sizes that a kernel's accesses depend on are multiples of ALIGNED. Those that grow are none
    but by chance."""
    for size in _steps(kernel):
        if not isinstance(size, SymbolicSize):
            continue
        for product, coefficient in size.conditions.simplified(size.expression).terms.items():
            symbol = product[0] if len(product) == 1 else None
            if coefficient % ALIGNED and isinstance(symbol, Symbol) and not symbol.grows:
                size.conditions.decide(_rest(Expression.of(symbol)), "==")


def _steps(kernel: Kernel) -> Iterator[Any]:
    """The sizes by which accesses step, the lengths of rows that a reduction goes along element by element, and where
    masks begin and end."""
    accesses = [store.index for store in kernel.stores]
    masks: list[Index] = []
    for node in dict.fromkeys(node for store in kernel.stores for node in expressions_of(store)):
        if node.op == "load":
            accesses.append(node.attr[1])
        elif node.op in COMPARISONS:
            masks += [operand.attr for operand in node.args if operand.op == "index"]
    for index in dict.fromkeys((*accesses, *masks)):
        yield from _steps_of(index)
    yield from (var.size for var in kernel.reduction if any(is_dense(index, var) for index in accesses))


def _steps_of(index: Index) -> Iterator[Any]:
    yield index.const
    for atom, coefficient in index.terms.items():
        yield coefficient
        if isinstance(atom, Quotient | Remainder):
            yield atom.divisor
            yield from _steps_of(atom.index)

