"""Writes into tensors.

A write that covers a storage nobody outside knows gives the storage a new content: no memory is touched, and views made
before see the new content because they are looked up through the storage. Any other write is carried out in memory: the
buffer gets a new version, and whatever was to read the old one is put into memory of its own before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

import torch

from framejit.backends.fuse.graph.node import Node, values_in
from framejit.backends.fuse.graph.overlaps import overlaps
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, cast
from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.loop_ir.nodes import Buffer, Layout, Store
from framejit.backends.fuse.lowering.accepted import accepts
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.extern import buffers_for_results, may_speak_when_run
from framejit.backends.fuse.lowering.fusable import is_fusable
from framejit.backends.fuse.lowering.indexed_writes import IndexedWrite, indexed_write
from framejit.backends.fuse.lowering.lowered_tensor import (
    LazyBuffer,
    Tensor,
    broadcast,
    compute_dtype,
    contiguous_strides,
    loops,
)
from framejit.backends.fuse.lowering.lowerings import functional_name, lowering_of
from framejit.backends.fuse.lowering.storages import Held, Storages
from framejit.backends.fuse.plan.callables import callable_of
from framejit.backends.fuse.plan.plan_functions import count_back, count_exactly
from framejit.fakes.operation_kinds import counted_in_lists


def lower_mutation(b: Builder, storages: Storages, node: Node) -> None:
    """An operation whose schema says that it writes into arguments."""
    if len(node.writes) == 1 and is_fusable(node):
        [target] = node.writes
        if _is_lowered(b, storages, node, target) or _is_written_at_places(b, storages, node, target):
            return
    _write_by_aten(b, storages, node)


def _is_lowered(b: Builder, storages: Storages, node: Node, target: Value) -> bool:
    name = functional_name(node.name)
    lowering = lowering_of(name, node.operation._overloadname)
    into_first = node.args and node.args[0] is target
    if (
        lowering is None
        or not (into_first or node.kwargs.get("out") is target)
        or overlaps(target, node)
        or not accepts(node)
    ):
        return False
    args, kwargs = storages.operands(node)
    kwargs.pop("out", None)
    value = lowering(b, target, *args, **kwargs)
    if value is NotImplemented:
        return False
    write(b, storages, target, value)
    return True


def _is_written_at_places(b: Builder, storages: Storages, node: Node, target: Value) -> bool:
    found = None if overlaps(target, node) else indexed_write(node, *storages.operands(node))
    if found is None:
        return False
    storage = storages.storage(target)
    b.finish_products(found.value)
    b.prepare(found.value, found.index)
    _store(b, storages, storage, storages.tensor(target), found.value, counted=True, at=found)
    return True


def write(b: Builder, storages: Storages, into: Value, value: Tensor, counted: bool = True) -> None:
    """Put a tensor, broadcast and converted, where a value of the graph lies. `counted`: whether autograd's version
    counter goes up."""
    storage, target = storages.storage(into), storages.tensor(into)
    b.prepare(value)
    content = storage.content
    if not _must_stay(b, content) and target.covers_content:
        new = _replaced(b, content, target, value)
        new.bound = True
        storage.content = new
        storages.settle_if_shared(into, new)
        return
    _store(b, storages, storage, target, value, counted)


def _must_stay(b: Builder, content: LazyBuffer) -> bool:
    """Whether somebody outside of the graph can see the memory."""
    if content.buffer is None:
        return False
    first = b.buffers[content.buffer.memory]
    # memory that has been written in place, or that another dtype sees, is what its later readers refer to
    return (
        first.input is not None or first.constant is not None or first is not content.buffer or b.is_shared(first.name)
    )


def _replaced(b: Builder, content: LazyBuffer, target: Tensor, value: Tensor) -> LazyBuffer:
    dtype = compute_dtype(target.dtype)

    def reader(indices: Sequence[Index]) -> Expr:
        if target.is_root:
            own = list(indices)
        else:
            place = Index({})
            for index, stride in zip(indices, content.strides):
                place += index * stride
            own = LazyBuffer(target.sizes, target.strides, target.dtype, target.device).indices_at(place)
        return cast(_element(value, broadcast(value, own), dtype), dtype)

    return b.lazy(content.sizes, content.strides, content.dtype, content.device, reader, [value.content], 0)


def _element(value: Tensor, indices: Sequence[Index], dtype: torch.dtype) -> Expr:
    """What is to be written in a dtype: what has no fraction is made of what the value's own dtype holds."""
    return value.at(indices) if dtype.is_floating_point else value.rounded_at(indices)


def _store(
    b: Builder, storages: Storages, storage: Held, target: Tensor, value: Tensor, counted: bool,
    at: IndexedWrite | None = None,
) -> None:
    """Write in memory: all of the target, or what `at` says of it."""
    old = b.realise(storage.content)
    if at is not None:
        b.realise(at.index.content)  # of which one element is read for many
    outer, indices = loops(target.sizes if at is None else at.sizes, target.strides)
    place = target.place(indices if at is None else at.places(indices, target.sizes[at.dim]))
    _keep_old(b, old.memory, except_for=value.content)
    element = _element(value, broadcast(value, indices), old.dtype)
    if any(b.buffers[load.attr[0]].memory == old.memory and load.attr[1] != place for load in element.loads()):
        # elements are read that another turn of the loops overwrites
        value = Tensor.of(
            b.lazy(
                value.sizes, contiguous_strides(value.sizes), value.dtype, value.device, value.at, [value.content], 0
            )
        )
        b.realise(value.content)
        element = _element(value, broadcast(value, indices), old.dtype)
    elif value.content.bound and value.content.buffer is None:
        b.realise(value.content)  # others may read it later, when the memory it is made of has changed
        element = _element(value, broadcast(value, indices), old.dtype)
    new = b.next_version(old)
    origins = b.origins_of(value)
    b.compute(outer, (), [Store(new.name, place, cast(element, new.dtype))], new.device, origins)
    _renew(storages, storage, b.held(new), counted)


def _renew(storages: Storages, storage: Held, content: LazyBuffer, counted: bool) -> None:
    content.bound = True
    content.sizes, content.strides = storage.content.sizes, storage.content.strides
    content.dense = storage.content.dense
    storage.content = content
    if counted and storage.input is not None:
        storages.written.append(storage.input)


def _keep_old(b: Builder, memory: str, except_for: LazyBuffer | None = None) -> None:
    """Whatever would read memory that is about to change is put into memory of its own."""
    for content in b.readers_of(memory):
        if content is not except_for and content.buffer is None:
            b.realise(content)


def _write_by_aten(b: Builder, storages: Storages, node: Node) -> None:
    targets: dict[int, tuple[Held, Buffer]] = {}
    for value in node.writes:
        storage = storages.storage(value)
        old = b.realise(storage.content)
        _keep_old(b, old.memory)
        targets[id(storage)] = storage, old
    _note_counted_by_aten(b, storages, node)
    args, kwargs = storages.operands(node)
    results, made = buffers_for_results(b, storages, node)
    new = [(storage, b.next_version(old)) for storage, old in targets.values()]
    buffers = [buffer for _, buffer in new]
    speaks = may_speak_when_run(node) or any(overlaps(value, node) for value in node.writes)
    b.extern(
        callable_of(node.operation), args, kwargs, results, buffers, ordered=node.ordered, speaks=speaks,
        accepted=partial(accepts, node),
    )
    for storage, buffer in new:
        _renew(storages, storage, b.held(buffer), counted=False)
    for value, buffer in made:
        storages.bind(value, Tensor.of(b.held(buffer)))


def _note_counted_by_aten(b: Builder, storages: Storages, node: Node) -> None:
    """Which inputs' version counters go up where ATen writes: what a plan makes as a view of an input has a counter of
    its own."""
    for value in _counted_arguments(node):
        position = storages.storage(value).input
        if position is not None:
            storages.counted_by_aten[position] += b.layout(storages.tensor(value)).is_whole


def _counted_arguments(node: Node) -> Iterator[Value]:
    """The arguments whose version counters a call raises, each as often. Autograd's kernels of ATen's operations count
    what an operation returns: the scaler's `found_inf`, or the noise of a leaky ReLU, is written and not returned."""
    schema = node.operation._schema
    returned = {name for result in schema.returns if result.alias_info for name in result.alias_info.before_set}
    in_lists = counted_in_lists(node.operation)
    for position, argument in enumerate(schema.arguments):
        alias = argument.alias_info
        if alias is None or not alias.is_write:
            continue
        if node.operation.namespace != "aten" or returned & {*alias.before_set} or position in in_lists:
            given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            yield from values_in((given,))


def count_results(b: Builder, results: Sequence[tuple[Layout, int]]) -> None:
    """Have autograd know of the writes into results, each with how many there were."""
    counted = [(Tensor.of(b.held(layout.buffer)), number) for layout, number in results]
    if counted:
        b.extern(count_exactly, ([tensor for tensor, _ in counted], [number for _, number in counted]), ordered=True)


def bump_versions(b: Builder, storages: Storages, writes: dict[int, int]) -> None:
    """Have autograd know of the writes into inputs, as it would if operations of its own had written."""
    by_aten = storages.counted_by_aten
    missing = Counter(storages.written)
    for position in sorted(writes.keys() & (missing.keys() | by_aten.keys())):
        missing[position] = writes[position] - by_aten[position]
    held = [Tensor.of(storages.input_content(position)) for position, number in missing.items() for _ in range(number)]
    if held:
        b.extern(torch._C._increment_version, (held,), ordered=True)
    # written through `data`, for one, which ATen did not know
    uncounted = {position: -number for position, number in missing.items() if number < 0}
    if uncounted:
        b.extern(
            count_back,
            ([Tensor.of(storages.input_content(position)) for position in uncounted], [*uncounted.values()]),
            ordered=True,
        )
