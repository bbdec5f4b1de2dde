"""What must run before what."""
from __future__ import annotations

from framejit.backends.fuse.ir import Buffer, ComputeNode, ExternNode, Node


def dependencies(nodes: list[Node], buffers: dict[str, Buffer]) -> list[set[int]]:
    """For each node the earlier ones (by position) that must have run before it.

    A read waits for what wrote the buffer; a write into memory that had another content waits for all that read or wrote that;
    ordered nodes wait for each other.
    """
    result: list[set[int]] = []
    writer: dict[str, int] = {}
    users: dict[str, set[int]] = {}
    last_ordered: int | None = None
    for position, node in enumerate(nodes):
        before = {writer[name] for name in node.reads if name in writer}
        for name in node.writes:
            before |= users.get(buffers[name].memory, set())
        if isinstance(node, ExternNode) and node.ordered:
            if last_ordered is not None:
                before.add(last_ordered)
            last_ordered = position
        before.discard(position)
        result.append(before)
        for name in node.writes:
            writer[name] = position
        for name in (*node.reads, *node.writes):
            users.setdefault(buffers[name].memory, set()).add(position)
    return result


def live_nodes(nodes: list[Node], needed: set[str], buffers: dict[str, Buffer]) -> list[Node]:
    """The nodes without which a needed buffer, a write into memory that outlives the graph, or an ordered effect would be missing."""
    kept: list[Node] = []
    needed = set(needed)
    for node in reversed(nodes):
        lasting = any(_outlives(buffers, name) for name in node.writes) or (isinstance(node, ExternNode) and node.ordered)
        if lasting or needed.intersection(node.writes):
            if isinstance(node, ComputeNode) and not lasting:
                node.stores = [store for store in node.stores if store.buffer in needed or _in_place(buffers, store.buffer)]
            kept.append(node)
            needed.update(node.reads)
            # what is written in place keeps alive what the memory held before: other parts of it may stay
            needed.update(buffers[name].memory for name in node.writes)
            needed.update(other.name for name in node.writes if _in_place(buffers, name) for other in buffers.values() if other.memory == buffers[name].memory)
    return kept[::-1]


def _in_place(buffers: dict[str, Buffer], name: str) -> bool:
    return buffers[name].memory != name


def _outlives(buffers: dict[str, Buffer], name: str) -> bool:
    memory = buffers[buffers[name].memory]
    return _in_place(buffers, name) and (memory.input is not None or memory.constant is not None)
