"""The rules of the IR, checked between passes: a pass that breaks one has a bug, and would make wrong results."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from framejit.backends.fuse.loop_ir.expr import COMPUTE, SCANS, Expr
from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.loop_ir.nodes import Buffer, ComputeNode, Node, Store
from framejit.errors import InternalError


def verify(nodes: Iterable[Node], buffers: dict[str, Buffer], after: str) -> None:
    """Check that the nodes keep the rules of nodes.py. Raises InternalError, naming the pass that they come from."""
    written: set[str] = set()
    for node in nodes:
        for name in node.reads:
            if name not in buffers:
                raise InternalError(f"after {after}: {name} is read, but there is no such buffer")
            buffer = buffers[name]
            if buffer.input is None and buffer.constant is None and not written.issuperset(buffer.parts or (name,)):
                raise InternalError(f"after {after}: {name} is read before anything wrote it")
        if isinstance(node, ComputeNode):
            for store in node.stores:
                _verify_store(node, store, buffers, after)
        for name in node.writes:
            if buffers[name].parts:
                raise InternalError(f"after {after}: {name} is written as a whole, and is made of parts")
            if buffers[name].whole and (name in written or node.writes.count(name) > 1):
                raise InternalError(f"after {after}: {name}, a part of {buffers[name].whole}, is written twice")
            if buffers[name].whole and not isinstance(node, ComputeNode):
                raise InternalError(f"after {after}: {name}, a part of {buffers[name].whole}, is not written by loops")
        written.update(node.writes)
    for buffer in buffers.values():
        if buffer.parts:
            _verify_parts(buffer, [buffers[name] for name in buffer.parts], after)


def _verify_parts(whole: Buffer, parts: Sequence[Buffer], after: str) -> None:
    """Parts follow on one another along one dimension, and together are the whole."""
    for part in parts:
        if (part.whole, part.memory, part.dtype, part.strides) != (
            whole.name, whole.memory, whole.dtype, whole.strides,
        ):
            raise InternalError(f"after {after}: {part} is no part of {whole}")
    lengths: set[int] = {dim for part in parts for dim, size in enumerate(part.sizes) if size != whole.sizes[dim]}
    start = 0
    for part in parts:
        if len(lengths) > 1 or part.offset != start:
            raise InternalError(
                f"after {after}: the parts of {whole} do not lie one after the other: {', '.join(map(str, parts))}"
            )
        start += sum(part.sizes[dim] * part.strides[dim] for dim in lengths)
    if not lengths or any(sum(part.sizes[dim] for part in parts) != whole.sizes[dim] for dim in lengths):
        raise InternalError(f"after {after}: the parts of {whole} are not all of it")


def _verify_store(node: ComputeNode, store: Store, buffers: dict[str, Buffer], after: str) -> None:
    buffer = buffers[store.buffer]
    parallel, reduction = set(node.parallel), set(node.reduction)
    allowed = parallel | reduction if store.in_reduction else parallel
    expected = COMPUTE.get(buffer.dtype, buffer.dtype)
    if store.value.dtype not in (expected, buffer.dtype):
        raise InternalError(f"after {after}: {store.buffer} of {buffer.dtype} is given a value of {store.value.dtype}")
    if not store.index.vars() <= allowed or not _free_vars(store.value, reduction) <= allowed:
        raise InternalError(
            f"after {after}: the store to {store.buffer} depends on loop variables that its level does not have: "
            f"{store}"
        )
    for value in store.value.walk():
        if value.op == "scan":
            _verify_scan(node, value, after)
    if any(var.size == 0 for var in (*parallel, *reduction)):
        return
    _verify_bounds(store.index, buffer, after, "stored to")
    if buffer.whole and not _fills(store.index, tuple(allowed), buffer):
        raise InternalError(
            f"after {after}: the store to {buffer} at {store.index} does not write each of its elements once"
        )
    for load in _certain_loads(store.value):
        name, index = load.attr
        if load.dtype != buffers[name].dtype:
            raise InternalError(f"after {after}: {name} of {buffers[name].dtype} is loaded as {load.dtype}")
        _verify_bounds(index, buffers[name], after, "loaded from")


def _verify_scan(node: ComputeNode, value: Expr, after: str) -> None:
    operand, positional = value.args[0].dtype, value.attr in ("argmax", "argmin")
    if not node.reduction:
        raise InternalError(f"after {after}: a scan in loops of which none is a reduction: {value}")
    if (
        value.attr not in SCANS
        or operand in COMPUTE
        or operand == torch.bool
        or (value.attr == "logsumexp" and not operand.is_floating_point)
    ):
        raise InternalError(f"after {after}: there is no such scan of {operand}: {value}")
    if value.dtype != (torch.int64 if positional else operand):
        raise InternalError(f"after {after}: a scan of {operand} gives {value.dtype}: {value}")


def _verify_bounds(index: Index, buffer: Buffer, after: str, what: str) -> None:
    low, high = index.bounds
    if low < buffer.offset or high >= buffer.offset + buffer.extent:
        raise InternalError(
            f"after {after}: {buffer} is {what} at {index}, which reaches from {low} to {high} of {buffer.extent} "
            "elements"
        )


def _fills(index: Index, loops: Sequence[Var], part: Buffer) -> bool:
    """Whether the turns of the loops reach each element of a part just once: their steps, joined where they go on
    evenly, are those of its dimensions."""
    if not index.is_affine or index.const != part.offset:
        return False
    steps = [(index.stride(var), var.size) for var in loops if var.size != 1]
    return _joined(steps) == _joined([(stride, size) for stride, size in zip(part.strides, part.sizes) if size != 1])


def _joined(steps: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(step, turns) of nested loops, the longest step first, where each run of loops that go on evenly is one."""
    joined: list[tuple[int, int]] = []
    for step, turns in sorted(steps, reverse=True):
        if joined and joined[-1][0] == step * turns:
            turns *= joined.pop()[1]
        joined.append((step, turns))
    return joined


def _free_vars(value: Expr, reduction: set[Var]) -> set[Var]:
    """The variables it depends on outside of reductions, which bind the reduction loops."""
    free: dict[Expr, set[Var]] = {}
    for node in value.walk():
        own: set[Var] = set()
        if node.op == "load":
            own = node.attr[1].own_vars()
        elif node.op == "index":
            own = node.attr.own_vars()
        below = own.union(*(free[operand] for operand in node.operands()))
        free[node] = below - reduction if node.op == "reduce" else below | reduction if node.op == "scan" else below
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
