"""Norms of few rows, done again by each program of the products that take them.

A norm before a product with few rows is a kernel that a single multiprocessor runs while memory is idle. Its row is
small: programs of the product read it as quickly as they would read what the norm gives. So that is not put into memory
where nothing but products reads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.loop_ir.nodes import Buffer, ComputeNode, Node, Store
from framejit.backends.fuse.loop_ir.products import is_product
from framejit.backends.fuse.schedule.fusion import handed_over
from framejit.backends.fuse.targets.lookup import target_of

CHEAP: Final = frozenset(("load", "cast", "add", "sub", "mul", "neg"))
"""What may be done again to each element of a row."""
MOST_OPS: Final = 16
LONGEST: Final = 1 << 13
"""Elements of rows, all together, up to which they are read again quickly."""


def norms_in_products(nodes: list[Node], needed: set[str], buffers: Mapping[str, Buffer]) -> list[Node]:
    """The nodes without norms that the products which read them can do. `needed` are buffers that the outputs need."""
    position = 0
    while position < len(nodes):
        node = nodes[position]
        made = _into_readers(position, nodes, needed, buffers) if _may_be_done_again(node) else None
        if made is None:
            position += 1
        else:
            nodes = made
    return nodes


def _may_be_done_again(node: Node) -> bool:
    """Whether it is a norm of few rows, or something like one."""
    if not isinstance(node, ComputeNode) or not target_of(node.device).norm_rows or not node.reduction:
        return False
    sizes = [var.size for var in (*node.parallel, *node.reduction)]
    if not all(type(size) is int for size in sizes) or not 0 < math.prod(sizes) <= LONGEST or is_product(node):
        return False
    return all(_is_cheap(store.value, node.reduction) for store in node.stores)


def _is_cheap(value: Expr, reduction: Sequence[Var]) -> bool:
    """Whether little is done to each element, and nothing but sums to all of them."""
    moving: set[Expr] = set()
    for each in value.walk():
        if each.op == "scan" or (each.op == "reduce" and each.attr != "sum"):
            return False
        if each.op == "load" and any(True for _ in each.attr[1].indirects):
            return False
        own = each.attr[1].vars() if each.op == "load" else each.attr.vars() if each.op == "index" else set()
        if each.op != "reduce" and (own & {*reduction} or any(operand in moving for operand in each.args)):
            moving.add(each)
    return len(moving) <= MOST_OPS and all(each.op in CHEAP for each in moving)


def _into_readers(
    position: int, nodes: list[Node], needed: set[str], buffers: Mapping[str, Buffer]
) -> list[Node] | None:
    """The nodes, with one done by all that read what it gives; None if something else needs that."""
    node = nodes[position]
    assert isinstance(node, ComputeNode)
    stored = {store.buffer: store for store in node.stores}
    if any(
        name in needed or buffers[name].whole or _is_shared(name, buffers) or len(node.stores) != len(stored)
        for name in stored
    ):
        return None
    read = {buffers[name].memory for name in node.reads}
    changed: dict[int, ComputeNode] = {}
    for at in range(position + 1, len(nodes)):
        reader = nodes[at]
        if stored.keys() & set(reader.reads):
            made = _with_norm(reader, node, stored)
            if made is None:
                return None
            changed[at] = made
    last = max(changed, default=position)
    # not by a reader either: its programs read all of a row, which others of them would write meanwhile
    written = {buffers[name].memory for other in nodes[position : last + 1] for name in other.writes}
    if not changed or written & read:
        return None
    return [changed.get(at, other) for at, other in enumerate(nodes) if at != position]


def _is_shared(name: str, buffers: Mapping[str, Buffer]) -> bool:
    """Whether a buffer's memory is known by other names, or outlives the graph."""
    buffer = buffers[name]
    return (
        buffer.memory != name or buffer.input is not None or buffer.constant is not None
        or sum(other.memory == name for other in buffers.values()) > 1
    )


def _with_norm(reader: Node, norm: ComputeNode, stored: Mapping[str, Store]) -> ComputeNode | None:
    """A product, with what it reads of a norm's results computed in it; None if it can't be."""
    if not isinstance(reader, ComputeNode) or not is_product(reader):
        return None
    if math.prod(var.size for var in norm.parallel) > target_of(reader.device).norm_rows:
        return None
    failed = False

    def value_of(load: Expr) -> Expr | None:
        nonlocal failed
        name, place = load.attr
        if name not in stored:
            return None
        store = stored[name]
        loops = _matched(store.index, place, norm, reader)
        if loops is None:
            failed = True
            return None
        return handed_over(load, store.value.substitute(loops))

    stores = [
        Store(store.buffer, store.index, store.value.substitute({}, value_of), store.in_reduction)
        for store in reader.stores
    ]
    if failed:
        return None
    origins = tuple(dict.fromkeys((*norm.origins, *reader.origins)))
    made = ComputeNode(reader.parallel, reader.reduction, stores, reader.device, origins)
    return made if is_product(made) else None


def _matched(stored: Index, loaded: Index, norm: ComputeNode, reader: ComputeNode) -> dict[Var, Index] | None:
    """What the norm's loops are in terms of the reader's, where each step of one is a step of the other; None where
    they are not so."""
    if not (stored.is_affine and loaded.is_affine):
        return None
    summed, sums = ([var for var in node.reduction if var.size != 1] for node in (norm, reader))
    if [var.size for var in summed] != [var.size for var in sums]:
        return None
    loops = {var: Index({}) for var in (*norm.parallel, *norm.reduction) if var.size == 1}
    loops |= {var: Index.of(other) for var, other in zip(summed, sums)}
    for var in norm.parallel:
        if var not in loops:
            same = [other for other in reader.parallel if loaded.stride(other) == stored.stride(var) != 0]
            if len(same) != 1 or same[0].size != var.size:
                return None
            loops[var] = Index.of(same[0])
    return loops if stored.substitute(loops) == loaded else None
