"""Fusion: which compute nodes become one kernel.

Nodes are taken in program order, and each is put into the latest group that has something in common with it, if the two
can go over the same loops (match.py) and no third node would have to run both after the group and before the node.

What a group stores and a later member loads is handed over in a register: the load is replaced by the stored value's
expression.

Where a launch costs as much as a small kernel, small groups over as many turns are put together at the end though they
have nothing in common: counters of batch norms, sums of parts.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field, replace
from typing import Final

from framejit.backends.fuse.loop_ir.expr import COMPUTE, Expr, cast, is_ordered
from framejit.backends.fuse.loop_ir.index import Index, Var, flatten
from framejit.backends.fuse.loop_ir.nodes import Buffer, ComputeNode, LoweredGraph, Node, Store
from framejit.backends.fuse.schedule.dependencies import dependencies, is_seen, live_nodes, writes_what_outlives
from framejit.backends.fuse.schedule.loop_order import expressions, substitute
from framejit.backends.fuse.schedule.match import Match, cut, match_loops
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize, hint, surely_equal
from framejit.backends.fuse.targets.lookup import target_of
from framejit.late_dataclass import dataclass

MAX_BUFFERS: Final = 96  # pointers of one kernel; CUDA allows 4 KiB of parameters
MAX_STORES: Final = 24
# keeps one kernel's expressions, which each further member is compared with, at a size that compiles quickly
MAX_MEMBERS: Final = 64
NEARBY: Final = 16
"""Nodes that only read the same things are fused if no more nodes lie between them: else what they make would be kept
in memory for long."""
SMALL: Final = 1 << 16
"""Elements under which a kernel is bound by its launch rather than by memory: then parallelism is no reason to keep two
apart."""


@dataclass(eq=False)
class Group:
    """Nodes that run together: one extern node, or compute nodes as one loop nest."""

    node: Node
    number: int
    position: int
    """Where in program order its last node stands."""
    before: int = 0
    """The groups that must run before it, at any distance, as bits."""
    direct: set[Group] = field(default_factory=set)
    """The groups that its own nodes wait for."""
    members: int = 1
    stored: dict[str, Store] = field(default_factory=dict)
    """What it stores, by buffer."""


def fuse(graph: LoweredGraph, needed: set[str]) -> list[Node]:
    """The graph's nodes, fused, in an order in which they can run. `needed` are the buffers that the outputs need."""
    buffers = graph.buffers
    nodes = live_nodes(graph.nodes, needed, buffers)
    groups: list[Group] = []
    group_of: list[Group] = []
    readers: dict[str, list[Group]] = {}
    writers: dict[str, Group] = {}
    for position, (node, earlier) in enumerate(zip(nodes, dependencies(nodes, buffers))):
        direct = {group_of[i] for i in earlier}
        group = None
        if isinstance(node, ComputeNode):
            for candidate in _candidates(node, direct, readers, writers, buffers):
                if candidate.members >= MAX_MEMBERS or (
                    candidate not in direct and position - candidate.position > NEARBY
                ):
                    continue
                if _reachable(candidate, direct):
                    continue
                fused = join(candidate, node, buffers)
                if fused is not None:
                    candidate.node, group = fused, candidate
                    candidate.stored = {store.buffer: store for store in fused.stores}
                    candidate.members += 1
                    candidate.position = position
                    break
        if group is None:
            group = Group(node, len(groups), position)
            if isinstance(node, ComputeNode):
                group.stored = {store.buffer: store for store in node.stores}
            groups.append(group)
        group_of.append(group)
        _wait_for(group, direct - {group}, groups)
        for name in node.reads:
            readers.setdefault(name, []).append(group)
        for name in node.writes:
            writers[name] = group
    for group in list(groups):
        producer = _merged_into_producer(group, buffers)
        if producer is not None:
            groups.remove(group)
            group_of = [producer if owner is group else owner for owner in group_of]
            _replace(group, producer, groups)
    for group, partner in _pairs_of_small_groups(groups, buffers):
        groups.remove(group)
        group_of = [partner if owner is group else owner for owner in group_of]
        _replace(group, partner, groups)
    readers = {}
    for node, owner in zip(nodes, group_of):
        for name in node.reads:
            readers.setdefault(name, []).append(owner)
    shared = {buffer.memory for name, buffer in buffers.items() if buffer.memory != name}
    for group in groups:
        _drop_internal(group, readers, needed | shared, buffers)
    # what was written in place may have had readers in its own nest only, which know by now what they would read
    return live_nodes([group.node for group in _ordered(groups)], needed, buffers)


def _candidates(
    node: ComputeNode, direct: set[Group], readers: dict[str, list[Group]], writers: dict[str, Group],
    buffers: dict[str, Buffer]
) -> Iterator[Group]:
    """Groups that the node shares a buffer with, the latest first: those whose results it reads, then those that read
    the same or write another part."""
    related = {group for name in node.reads for group in readers.get(name, ())}
    beside = (part for name in node.writes if buffers[name].whole for part in buffers[buffers[name].whole].parts)
    related |= {writers[name] for name in (*node.reads, *beside) if name in writers}
    yield from sorted(
        (group for group in related if isinstance(group.node, ComputeNode)),
        key=lambda group: (group in direct, group.position),
        reverse=True,
    )


def _reachable(group: Group, direct: set[Group]) -> bool:
    """Whether something that must run before the node must itself run after the group."""
    return any(other is not group and other.before >> group.number & 1 for other in direct)


def _merged_into_producer(group: Group, buffers: dict[str, Buffer]) -> Group | None:
    """Put a whole group into one that it reads from: two sums of different things have nothing in common until
    something takes both.

    Gives the group that took it in, or None.
    """
    if not isinstance(group.node, ComputeNode):
        return None
    for producer in sorted(group.direct, key=lambda other: other.position, reverse=True):
        if (
            not isinstance(producer.node, ComputeNode)
            or producer.members + group.members > MAX_MEMBERS
            or _reachable(producer, group.direct)
        ):
            continue
        if _taken_in(producer, group, buffers):
            return producer
    return None


def _taken_in(taker: Group, group: Group, buffers: dict[str, Buffer]) -> bool:
    """Put the nodes of a group into another, if they go together."""
    assert isinstance(group.node, ComputeNode)
    fused = join(taker, group.node, buffers)
    if fused is None:
        return False
    taker.node = fused
    taker.stored = {store.buffer: store for store in fused.stores}
    taker.members += group.members
    if group.direct:  # else it runs where the taker does
        taker.position = max(taker.position, group.position)
    return True


def _pairs_of_small_groups(groups: list[Group], buffers: dict[str, Buffer]) -> Iterator[tuple[Group, Group]]:
    """Groups with those that have just taken them in: each as cheap as its launch, over as many turns, and neither
    needing the other. What waits for the earlier one then waits for both, so only what is near, what nothing before
    the later one waits for, or where the later one waits for nothing."""
    alike: dict[tuple[object, ...], list[Group]] = {}
    for group in list(groups):
        node = group.node
        if not isinstance(node, ComputeNode):
            continue
        turns = _count(node.parallel), _count(node.reduction)
        if any(isinstance(count, SymbolicSize) for count in turns) or math.prod(turns) > _launch(node):
            continue
        others = alike.setdefault((node.device, *turns), [])
        for other in reversed(others):
            if (
                other.members + group.members <= MAX_MEMBERS
                and not (group.before >> other.number & 1 or other.before >> group.number & 1)
                and (
                    group.position - other.position <= NEARBY
                    or _nothing_waits(other, group.position, groups)
                    or _may_go_ahead(group, other.position, groups, buffers)
                )
                and _taken_in(other, group, buffers)
            ):
                yield group, other
                break
        else:
            others.append(group)


def _launch(node: ComputeNode) -> int:
    """The turns that take no longer than the launch of a kernel."""
    return target_of(node.device).few_elements


def _nothing_waits(group: Group, position: int, groups: list[Group]) -> bool:
    """Whether nothing up to a position in the program waits for the group."""
    return not any(group in other.direct and other.position < position for other in groups)


def _may_go_ahead(group: Group, position: int, groups: list[Group], buffers: dict[str, Buffer]) -> bool:
    """Whether the group, which waits for nothing, can as well run at an earlier position."""
    return not group.direct and not (
        writes_what_outlives(group.node, buffers)
        and any(position < other.position < group.position and is_seen(other.node) for other in groups)
    )


def _replace(group: Group, producer: Group, groups: list[Group]) -> None:
    """From here on whatever waited for the group waits for the producer that has taken it in."""
    gone, here = 1 << group.number, 1 << producer.number
    for other in groups:
        if other.before & gone and other is not producer:
            other.before = other.before & ~gone | here | producer.before
        if group in other.direct:
            other.direct = other.direct - {group} | {producer}
    _wait_for(producer, group.direct - {producer}, groups)


def _wait_for(group: Group, direct: set[Group], groups: list[Group]) -> None:
    """Note that a group runs after others, and so does whatever runs after it."""
    group.direct |= direct
    bits = 0
    for other in direct:
        bits |= other.before | 1 << other.number
    new = bits & ~group.before
    if not new:
        return
    group.before |= new
    for other in groups:
        if other.before >> group.number & 1:
            other.before |= group.before


def _ordered(groups: list[Group]) -> list[Group]:
    """In an order that respects `before`, and otherwise as late as the program has them."""
    done, result = 0, []
    waiting = sorted(groups, key=lambda group: group.position)
    while waiting:
        ready = next(group for group in waiting if not group.before & ~done)
        waiting.remove(ready)
        result.append(ready)
        done |= 1 << ready.number
    return result


def _drop_internal(
    group: Group, readers: dict[str, list[Group]], needed: set[str], buffers: dict[str, Buffer]
) -> None:
    """Take the stores out of a group's node that nothing outside of the group reads. `needed` are buffers to be stored
    in any case."""
    node = group.node
    if not isinstance(node, ComputeNode) or group.members == 1:
        return
    node.stores = [
        store
        for store in node.stores
        if store.buffer in needed
        or buffers[store.buffer].memory != store.buffer
        or any(reader is not group for reader in readers.get(store.buffer, ()))
    ]


def join(group: Group, node: ComputeNode, buffers: dict[str, Buffer]) -> ComputeNode | None:
    """The group's loop nest with the node put into it, or None if they don't go together."""
    nest = group.node
    assert isinstance(nest, ComputeNode)
    if nest.device != node.device or not _size_fits(nest, node) or _is_empty(nest) or _is_empty(node):
        return None
    for in_reduction, turned in _levels(nest, node):
        made = _join_at(nest, node, buffers, in_reduction, turned)
        if made is not None:
            return made
    return None


def _size_fits(nest: ComputeNode, node: ComputeNode) -> bool:
    names = {*nest.reads, *nest.writes, *node.reads, *node.writes}
    return len(names) <= MAX_BUFFERS and len(nest.stores) + len(node.stores) <= MAX_STORES


def _is_empty(node: ComputeNode) -> bool:
    return any(var.size == 0 for var in (*node.parallel, *node.reduction))


def _count(loops: tuple[Var, ...]) -> int:
    return math.prod(var.size for var in loops)


def _levels(nest: ComputeNode, node: ComputeNode) -> Iterator[tuple[bool, bool]]:
    """(in_reduction, turned): whether the node's stores go into the reduction loops; `turned` if it is the node that
    has these, and the nest none."""
    parallel, reduction = _count(nest.parallel), _count(nest.reduction)
    others, reductions = _count(node.parallel), _count(node.reduction)
    if bool(nest.reduction) == bool(node.reduction):
        if surely_equal(parallel, others) and surely_equal(reduction, reductions):
            yield False, False
    elif nest.reduction:
        if surely_equal(others, parallel * reduction):
            yield True, False
        if surely_equal(others, parallel):
            yield False, False
    else:
        if surely_equal(parallel, others * reductions):
            yield True, True
        if surely_equal(parallel, others):
            yield False, True


def _join_at(
    nest: ComputeNode, node: ComputeNode, buffers: dict[str, Buffer], in_reduction: bool,
    turned: bool,
) -> ComputeNode | None:
    base, guest = (node, nest) if turned else (nest, node)  # base has the reduction loops, if either has
    own = base.parallel + base.reduction if in_reduction or guest.reduction else base.parallel
    matched = match_loops(own, guest.parallel + guest.reduction, _accesses(base, guest))
    if matched is None:
        return None
    parallel, reduction = cut(base.parallel, matched.pieces), cut(base.reduction, matched.pieces)
    if guest.reduction and not (_same_level(guest, matched, reduction) and _same_order(guest, matched, reduction)):
        return None
    if in_reduction and not guest.reduction and not _worth_a_pass(base, parallel, reduction):
        return None
    first, second = (matched.second, matched.first) if turned else (matched.first, matched.second)
    stores = nest.stores if not turned and matched.keeps_first else substitute(nest.stores, first)
    if turned and in_reduction:
        stores = [replace(store, in_reduction=True) for store in stores]
    added = _handed_over(stores, node, second, buffers, in_reduction and not turned)
    if added is None:
        return None
    origins = tuple(dict.fromkeys((*nest.origins, *node.origins)))
    return ComputeNode(parallel, reduction, stores + added, node.device, origins)


def _accesses(base: ComputeNode, guest: ComputeNode) -> list[tuple[Index, Index]]:
    """Places in the same buffer, of base and guest; each buffer's first access stands for the others."""
    places: list[dict[str, Index]] = []
    for node in (base, guest):
        found = {name: indices[0] for name, indices in node.reads.items()}
        found.update((store.buffer, store.index) for store in node.stores)
        places.append(found)
    return [(places[0][name], places[1][name]) for name in places[0] if name in places[1]]


def _same_level(guest: ComputeNode, matched: Match, reduction: tuple[Var, ...]) -> bool:
    """Whether parallel loops of the guest were matched with parallel ones, and reduction with reduction."""
    reduced = set(reduction)
    return all(not (matched.second[var].vars() & reduced) for var in guest.parallel if var in matched.second) and all(
        matched.second[var].vars() <= reduced for var in guest.reduction if var in matched.second
    )


def _same_order(guest: ComputeNode, matched: Match, reduction: tuple[Var, ...]) -> bool:
    """Whether the guest's reduction loops come in the order in which the common ones do, or in any if nothing in it
    depends on that."""
    if not any(map(is_ordered, expressions(guest))):
        return True
    place = flatten(guest.reduction, [var.size for var in guest.reduction])
    return place.substitute(matched.second) == flatten(reduction, [var.size for var in reduction])


def _worth_a_pass(
    base: ComputeNode, parallel: tuple[Var, ...], reduction: tuple[Var, ...]
) -> bool:
    """Whether pointwise work should run inside a nest with a reduction: not if the reduction leaves it too few parallel
    turns."""
    turns = _count(parallel)
    return hint(turns * _count(reduction)) <= SMALL or hint(turns) >= target_of(base.device).parallel_turns


def _handed_over(
    stores: list[Store], node: ComputeNode, replacement: dict[Var, Index], buffers: dict[str, Buffer],
    in_reduction: bool,
) -> list[Store] | None:
    """The node's stores with new variables, where loads of what the nest stores are replaced by the value; None if it
    needs other elements."""
    known = {store.buffer: store for store in stores}
    if any(name in known for each in node.reads for name in buffers[each].parts):
        return None  # other turns write what it reads
    mismatch = False

    def value_of(load: Expr) -> Expr | None:
        nonlocal mismatch
        name, index = load.attr
        store = known.get(name)
        if store is None:
            return None
        if store.index != index:
            mismatch = True
            return None
        return handed_over(load, store.value)

    added = [
        replace(
            store, index=store.index.substitute(replacement), value=store.value.substitute(replacement, value_of),
            in_reduction=in_reduction or store.in_reduction,
        )
        for store in node.stores
    ]
    if mismatch or not _memory_agrees(stores, added, buffers):
        return None
    return added


def handed_over(load: Expr, value: Expr) -> Expr:
    """The expression that takes the place of a load from a buffer, where the value stored there is known."""
    if load.dtype in COMPUTE and value.op == "cast" and value.args[0].dtype == COMPUTE[load.dtype]:
        return value.args[0]  # in a register it need not be rounded to what memory would have held
    return value if load.dtype in COMPUTE else cast(value, load.dtype)


def _memory_agrees(stores: list[Store], added: list[Store], buffers: dict[str, Buffer]) -> bool:
    """Whether each turn writes only where it alone reads and writes, in memory that both parts touch and one of them
    writes."""
    places: dict[str, set[Index]] = {}
    written: set[str] = set()
    for part in (stores, added):
        for store in part:
            memory = store.buffer if buffers[store.buffer].whole else buffers[store.buffer].memory
            places.setdefault(memory, set()).add(store.index)
            written.add(memory)
            for load in store.value.loads():
                places.setdefault(buffers[load.attr[0]].memory, set()).add(load.attr[1])
    if any(buffers[name].whole in written for name in written):
        return False  # a part is made, and then something is written into the whole
    return all(len(places[memory]) == 1 for memory in written)
