"""From fused nodes to kernels: loops in memory's order, names, and the buffers that become pointers."""
from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from framejit.backends.fuse.loop_ir.expr import COMPUTE, rounded_once
from framejit.backends.fuse.loop_ir.nodes import (
    AttentionKernel,
    Buffer,
    ComputeNode,
    Convolution,
    ExternNode,
    Kernel,
    Layout,
    LoweredGraph,
    Node,
    SmallProduct,
    SplitAttention,
    TileKernel,
)
from framejit.backends.fuse.loop_ir.rules import verify
from framejit.backends.fuse.schedule.epilogues import epilogues
from framejit.backends.fuse.schedule.fusion import fuse
from framejit.backends.fuse.schedule.into_attention import into_attention
from framejit.backends.fuse.schedule.loop_order import expressions, merge_loops, order_loops
from framejit.backends.fuse.schedule.norms_in_products import norms_in_products
from framejit.backends.fuse.schedule.order import ordered_for_memory
from framejit.backends.fuse.schedule.rows_of_tokens import with_rows_of_tokens
from framejit.backends.fuse.schedule.side_by_side import side_by_side
from framejit.backends.fuse.targets.lookup import target_of


def schedule(graph: LoweredGraph) -> list[Kernel | ExternNode]:
    """The graph as kernels and extern calls, in the order in which they run."""
    verify(graph.nodes, graph.buffers, "lowering")
    needed = {output.buffer.name for output in graph.outputs if isinstance(output, Layout)}
    nodes = norms_in_products(fuse(graph, needed), needed, graph.buffers)
    verify(nodes, graph.buffers, "fusion")
    nodes = ordered_for_memory(nodes, graph.buffers, needed, graph.own_inputs or frozenset())
    written = {graph.buffers[name].memory for node in nodes for name in node.writes}
    steps = [_step(node, number, graph.buffers, written) for number, node in enumerate(nodes)]
    steps = into_attention(epilogues(steps, graph.buffers, needed), graph.buffers)
    steps = with_rows_of_tokens(steps, graph.buffers)
    verify(steps, graph.buffers, "ordering of loops")
    return side_by_side(steps, graph.buffers)


def _step(node: Node, number: int, buffers: dict[str, Buffer], written: Collection[str]) -> Kernel | ExternNode:
    if isinstance(node, ExternNode):
        return node
    if isinstance(node, SplitAttention):
        return AttentionKernel(
            (), (), [], node.device, node.origins, name=f"attention_{number}",
            buffers={name: buffers[name] for name in (*node.reads, *node.writes)},
            steady=_steady(node, buffers, written), attention=node,
        )
    if isinstance(node, Convolution | SmallProduct):
        return TileKernel(
            (), (), [], node.device, node.origins, name=f"{node.kind}_{number}",
            buffers={name: buffers[name] for name in (*node.reads, *node.writes)}, tile=node,
        )
    return _kernel(node, number, buffers, written)


def _kernel(node: ComputeNode, number: int, buffers: dict[str, Buffer], written: Collection[str]) -> Kernel:
    order_loops(node, buffers)
    merge_loops(node)
    names = dict.fromkeys((*node.reads, *node.writes))
    stores = node.stores
    if any(buffers[name].dtype in COMPUTE for name in names):
        stores = [replace(store, value=rounded_once(store.value)) for store in stores]
    return Kernel(
        node.parallel, node.reduction, stores, node.device, node.origins, name=f"{_what(node)}_{number}",
        buffers={name: buffers[name] for name in names}, steady=_steady(node, buffers, written),
    )


def _steady(
    node: ComputeNode | SplitAttention, buffers: dict[str, Buffer], written: Collection[str]
) -> frozenset[str] | None:
    """See `Kernel.steady`. `written`: the memory that anything in the graph writes to."""
    if not target_of(node.device).overlaps_launches:
        return None
    given = [name for name in node.reads if buffers[name].input is not None or buffers[name].constant is not None]
    return frozenset(name for name in given if buffers[name].memory not in written)


def _what(node: ComputeNode) -> str:
    """A name that says what the kernel does: its most telling operations, reductions before all."""
    values = list(expressions(node))
    reductions = [
        f"cum{value.attr}" if value.op == "scan" else value.attr for value in values if value.op in ("reduce", "scan")
    ]
    others = [
        value.op
        for value in values
        if value.op not in ("reduce", "scan", "load", "const", "cast", "index", "where", "masked")
    ]
    plain = ("add", "sub", "mul")
    found = dict.fromkeys([*reductions, *(name for name in others if name not in plain), *others])
    return "_".join(list(found)[:3]) or "copy"
