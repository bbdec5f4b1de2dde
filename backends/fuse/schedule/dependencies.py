"""What must run before what."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from framejit.backends.clock_reads import CLOCK_READ
from framejit.backends.fuse.loop_ir.nodes import Buffer, ComputeNode, ExternNode, Node


def dependencies(nodes: list[Node], buffers: Mapping[str, Buffer]) -> list[set[int]]:
    """For each node the earlier ones (by position) that must have run before it.

    A read waits for what wrote the buffer, or all its parts; a write into memory that had another content waits for all
    that read or wrote that; ordered nodes wait for each other. What reads a clock waits for all before it, and all
    behind it wait for it.
    """
    result: list[set[int]] = []
    writer: dict[str, int] = {}
    users: dict[str, set[int]] = {}
    last_ordered: int | None = None
    last_reading: int | None = None
    for position, node in enumerate(nodes):
        before = {writer[name] for name in with_parts(node.reads, buffers) if name in writer}
        for name in node.writes:
            if not buffers[name].whole:  # parts are the first to write their memory, and do not touch one another
                before |= users.get(buffers[name].memory, set())
        if isinstance(node, ExternNode) and node.ordered:
            if last_ordered is not None:
                before.add(last_ordered)
            last_ordered = position
        if last_reading is not None:
            before.add(last_reading)
        if isinstance(node, ExternNode) and node.function is CLOCK_READ:
            before.update(range(last_reading or 0, position))
            last_reading = position
        before.discard(position)
        result.append(before)
        for name in node.writes:
            writer[name] = position
        for name in (*node.reads, *node.writes):
            users.setdefault(buffers[name].memory, set()).add(position)
    return result


def constraints(nodes: list[Node], buffers: Mapping[str, Buffer]) -> list[set[int]]:
    """For each node the earlier ones that must run before it whatever else changes places.

    Besides its dependencies, what can be seen from outside keeps its order: random numbers, errors and warnings of
    operations, and to them the writes into memory that outlives the graph, which an error must find done or not.
    """
    result = dependencies(nodes, buffers)
    last: int | None = None
    written: list[int] = []
    for position, node in enumerate(nodes):
        speaks = is_seen(node)
        if not speaks and not writes_what_outlives(node, buffers):
            continue
        if last is not None:
            result[position].add(last)
        if speaks:
            result[position].update(written)
            last, written = position, []
        else:
            written.append(position)
    return result


def is_seen(node: Node) -> bool:
    """Whether when it runs can be seen from outside: it draws random numbers, counts, may raise or warn."""
    return isinstance(node, ExternNode) and (node.ordered or node.speaks)


def writes_what_outlives(node: Node, buffers: Mapping[str, Buffer]) -> bool:
    """Whether it writes into memory that outlives the graph."""
    return any(_outlives(buffers, name) for name in node.writes)


def live_nodes(nodes: list[Node], needed: set[str], buffers: dict[str, Buffer]) -> list[Node]:
    """The nodes without which a needed buffer, a write into memory that outlives the graph, an ordered effect, an
    exception or a warning would be missing."""
    kept: list[Node] = []
    needed = set(with_parts(needed, buffers))
    versions: dict[str, list[str]] = {}
    for name, buffer in buffers.items():
        versions.setdefault(buffer.memory, []).append(name)
    for node in reversed(nodes):
        lasting = any(_outlives(buffers, name) for name in node.writes) or (
            isinstance(node, ExternNode) and node.ordered
        )
        if lasting or needed.intersection(node.writes) or _speaks(node):
            # what is written in place keeps alive what the memory held before: other parts of it may stay
            for name in node.writes:
                if isinstance(node, ComputeNode) and name not in needed and not _outlives(buffers, name):
                    continue
                memory = buffers[name].memory
                needed.update(versions[memory] if _in_place(buffers, name) else (memory,))
            if isinstance(node, ComputeNode):
                node.stores = [store for store in node.stores if store.buffer in needed]
            kept.append(node)
            needed.update(with_parts(node.reads, buffers))
    return kept[::-1]


def _speaks(node: Node) -> bool:
    """Whether a node whose results nobody needs may yet raise, or warn."""
    return isinstance(node, ExternNode) and (node.speaks or (node.accepted is not None and not node.accepted()))


def with_parts(names: Iterable[str], buffers: Mapping[str, Buffer]) -> Iterator[str]:
    """The names, and those of the parts of what is joined of parts."""
    for name in names:
        yield name
        yield from buffers[name].parts


def _in_place(buffers: Mapping[str, Buffer], name: str) -> bool:
    return buffers[name].memory != name


def _outlives(buffers: Mapping[str, Buffer], name: str) -> bool:
    memory = buffers[buffers[name].memory]
    return _in_place(buffers, name) and (memory.input is not None or memory.constant is not None)
