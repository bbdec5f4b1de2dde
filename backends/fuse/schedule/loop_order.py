"""The loops of a kernel in the order that memory wants, and no more of them than needed."""
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from framejit.backends.fuse.loop_ir.expr import Expr, is_ordered
from framejit.backends.fuse.loop_ir.index import Index, Quotient, Remainder, Var, fresh_var
from framejit.backends.fuse.loop_ir.nodes import Buffer, ComputeNode, Store
from framejit.backends.fuse.sizes.symbolic_size import hint, surely_equal


def substitute(stores: Iterable[Store], replacement: Mapping[Var, Index]) -> list[Store]:
    """The stores with loop variables replaced."""
    return [
        replace(store, index=store.index.substitute(replacement), value=store.value.substitute(replacement))
        for store in stores
    ]


def order_loops(node: ComputeNode, buffers: dict[str, Buffer]) -> None:
    """Put the loops in the order in which most of the memory is walked through: those with long steps outside."""
    step: dict[Var, float] = dict.fromkeys((*node.parallel, *node.reduction), 0.0)
    moved = dict(step)
    # writing costs more than reading: a line is fetched before it is written
    accesses = [(store.buffer, store.index, 2) for store in node.stores]
    accesses += [(name, index, 1) for name, indices in node.reads.items() for index in indices]
    for name, index, factor in accesses:
        weight = factor * math.prod(map(hint, buffers[name].sizes))
        for var in index.vars():
            step[var] += weight * math.log2(_step(index, var) + 1)
            moved[var] += weight
    position = {var: step[var] / moved[var] if moved[var] else math.inf for var in step}
    node.parallel = tuple(sorted(node.parallel, key=lambda var: -position[var]))
    if not any(map(is_ordered, expressions(node))):
        node.reduction = tuple(sorted(node.reduction, key=lambda var: -position[var]))


def _step(index: Index, var: Var) -> float:
    """How far a turn of a loop leads, of loops that are divided on average."""
    return abs(hint(index.stride(var))) + sum(
        abs(hint(coefficient)) * _step(atom.index, var) / hint(atom.divisor)
        for atom, coefficient in index.terms.items()
        if isinstance(atom, Quotient)
    )


def merge_loops(node: ComputeNode) -> None:
    """Make one loop of neighbours wherever all that the kernel does would be the same."""
    indices = list(all_indices(node.stores))
    replacement: dict[Var, Index] = {}
    node.parallel = _merged(node.parallel, indices, replacement)
    node.reduction = _merged(node.reduction, indices, replacement)
    if replacement:
        node.stores = substitute(node.stores, replacement)


def _merged(loops: tuple[Var, ...], indices: list[Index], replacement: dict[Var, Index]) -> tuple[Var, ...]:
    groups: list[list[Var]] = []
    for var in loops:
        if var.size == 1:
            continue
        if groups and all(_steps(index, groups[-1][-1], var) for index in indices):
            groups[-1].append(var)
        else:
            groups.append([var])
    result: list[Var] = []
    for group in groups:
        result.append(group[0] if len(group) == 1 else fresh_var("i", math.prod(var.size for var in group)))
        if len(group) > 1:
            replacement.update(dict.fromkeys(group[:-1], Index({})))
            replacement[group[-1]] = Index.of(result[-1])
    return tuple(result)


def _steps(index: Index, outer: Var, inner: Var) -> bool:
    """Whether a step of `outer` leads as far as a whole run of `inner`, in the index and in all that is divided in
    it."""
    if not surely_equal(index.stride(outer), index.stride(inner) * inner.size):
        return False
    return all(_steps(atom.index, outer, inner) for atom in index.terms if isinstance(atom, Quotient | Remainder))


def all_indices(stores: Iterable[Store]) -> Iterator[Index]:
    """The places that are read and written, and the values computed from loop variables; the same one more than
    once."""
    for store in stores:
        yield store.index
        for node in expressions_of(store):
            if node.op == "load":
                yield node.attr[1]
            elif node.op == "index":
                yield node.attr


def expressions_of(store: Store) -> Iterator[Expr]:
    """Each expression of a store, operands first; one that its index shares with its value may come more than once."""
    for value in (store.value, *(atom.value for atom in store.index.indirects)):
        yield from value.walk()


def expressions(node: ComputeNode) -> Iterator[Expr]:
    """Each expression of a node, operands first; one that several stores share may come more than once."""
    for store in node.stores:
        yield from store.value.walk()
