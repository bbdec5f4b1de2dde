"""The rules of the IR, checked between passes: a pass that breaks one has a bug, and would make wrong results."""
from __future__ import annotations

from collections.abc import Iterable

from framejit.backends.fuse.expr import COMPUTE, Expr
from framejit.backends.fuse.index import Index, Var
from framejit.backends.fuse.ir import Buffer, ComputeNode, Node, Store
from framejit.errors import InternalError


def verify(nodes: Iterable[Node], buffers: dict[str, Buffer], after: str) -> None:
    """Check that the nodes keep the rules of ir.py. Raises InternalError, naming the pass that they come from."""
    written: set[str] = set()
    for node in nodes:
        for name in node.reads:
            if name not in buffers:
                raise InternalError(f"after {after}: {name} is read, but there is no such buffer")
            buffer = buffers[name]
            if buffer.input is None and buffer.constant is None and name not in written:
                raise InternalError(f"after {after}: {name} is read before anything wrote it")
        if isinstance(node, ComputeNode):
            for store in node.stores:
                _verify_store(node, store, buffers, after)
        written.update(node.writes)


def _verify_store(node: ComputeNode, store: Store, buffers: dict[str, Buffer], after: str) -> None:
    buffer = buffers[store.buffer]
    outer, inner = set(node.outer), set(node.inner)
    allowed = outer | inner if store.inner else outer
    expected = COMPUTE.get(buffer.dtype, buffer.dtype)
    if store.value.dtype not in (expected, buffer.dtype):
        raise InternalError(f"after {after}: {store.buffer} of {buffer.dtype} is given a value of {store.value.dtype}")
    if not store.index.vars() <= allowed or not _free_vars(store.value, inner) <= allowed:
        raise InternalError(f"after {after}: the store to {store.buffer} depends on loop variables that its level does not have: {store}")
    if any(var.size == 0 for var in (*outer, *inner)):
        return
    _verify_bounds(store.index, buffer, after, "stored to")
    for load in _certain_loads(store.value):
        name, index = load.attr
        if load.dtype != buffers[name].dtype:
            raise InternalError(f"after {after}: {name} of {buffers[name].dtype} is loaded as {load.dtype}")
        _verify_bounds(index, buffers[name], after, "loaded from")


def _verify_bounds(index: Index, buffer: Buffer, after: str, what: str) -> None:
    low, high = index.bounds
    if low < 0 or high >= buffer.extent:
        raise InternalError(f"after {after}: {buffer} is {what} at {index}, which reaches from {low} to {high} of {buffer.extent} elements")


def _free_vars(value: Expr, inner: set[Var]) -> set[Var]:
    """The variables it depends on outside of reductions, which bind the inner ones."""
    free: dict[Expr, set[Var]] = {}
    for node in value.walk():
        own: set[Var] = set()
        if node.op == "load":
            own = node.attr[1].vars()
        elif node.op == "index":
            own = node.attr.vars()
        below = own.union(*(free[operand] for operand in node.operands()))
        free[node] = below - inner if node.op == "reduce" else below
    return free[value]


def _certain_loads(value: Expr) -> Iterable[Expr]:
    """The loads that happen in every turn: those under a mask may lie anywhere where it is false."""
    seen: set[Expr] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "load":
            yield node
        stack.extend((node.args[0], node.args[2]) if node.op == "masked" else node.operands())
