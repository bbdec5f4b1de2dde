"""Convolutions with what is done to their results, element by element: one kernel, which stores no result in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import torch

from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.loop_ir.nodes import Buffer, ExternNode, Kernel, Store, TileKernel

Steps = Sequence[Kernel | ExternNode]

OTHERS: Final = frozenset(("index", "masked", "reduce", "scan", "bitcast", "philox"))
"""What an epilogue does not consist of."""
MOST_LOADS: Final = 3


def epilogues(steps: Steps, buffers: Mapping[str, Buffer], returned: Collection[str]) -> list[Kernel | ExternNode]:
    """The steps, where a convolution takes the place of the kernel behind it that alone reads its result."""
    hosts: dict[int, TileKernel] = {}
    uses: dict[str, list[int]] = {}
    """By a buffer the steps that read or write it, or a part of it."""
    for position, step in enumerate(steps):
        for memory in dict.fromkeys(buffers[name].memory for name in (*step.reads, *step.writes)):
            uses.setdefault(memory, []).append(position)
    for position, step in reversed([*enumerate(steps)]):  # of two whose sum is a kernel's, the later one does that
        if isinstance(step, TileKernel):
            behind = _behind(steps, position, step, uses, buffers, returned)
            if behind is not None:
                hosts.setdefault(behind, step)
    moved = {*hosts.values()}
    return [
        _joined(hosts[position], step, buffers) if position in hosts else step
        for position, step in enumerate(steps) if step not in moved
    ]


def _behind(
    steps: Steps, position: int, kernel: TileKernel, uses: Mapping[str, Sequence[int]], buffers: Mapping[str, Buffer],
    returned: Collection[str],
) -> int | None:
    """Where the kernel stands that only makes something of the convolution's result, if it may be done along."""
    (result,) = kernel.writes
    used = [number for number in uses.get(result, ()) if number != position]
    if not used or result in returned:
        return None
    other = steps[used[0]]
    if used[0] < position or not isinstance(other, Kernel) or not _fits(other, buffers[result], buffers):
        return None
    (store,) = other.stores
    target = buffers[store.buffer].memory
    # once it is overwritten in place, others read what it has become
    if len(used) > 1 and (target != result or any(result in steps[number].reads for number in used[1:])):
        return None
    read = {buffers[name].memory for name in (*kernel.reads, *other.reads) if name != result}
    between = {buffers[name].memory for step in steps[position:used[0]] for name in step.writes}
    if target in read or between & {buffers[name].memory for name in kernel.reads}:
        return None
    return used[0]


def _fits(kernel: Kernel, result: Buffer, buffers: Mapping[str, Buffer]) -> bool:
    """Whether a kernel does the same to each element of a buffer, in the order in which they lie, as a convolution
    could along with it."""
    if type(kernel) is not Kernel or result.name not in kernel.reads or kernel.reduction:
        return False
    if len(kernel.parallel) != 1 or len(kernel.stores) != 1:
        return False
    (store,), place = kernel.stores, Index.of(kernel.parallel[0])
    memory = buffers[buffers[store.buffer].memory]
    is_ours = memory.input is None and memory.constant is None and not memory.parts
    if not is_ours or store.index != place or kernel.parallel[0].size != result.extent:
        return False
    return _is_simple(store, place)


def _is_simple(store: Store, place: Index) -> bool:
    """Whether all is computed in float32 from elements at one place."""
    loads = Counter(node.attr[0] for node in store.value.walk() if node.op == "load")
    return store.value.dtype == torch.float32 and len(loads) <= MOST_LOADS and all(
        node.op not in OTHERS
        and node.dtype in (torch.float32, torch.bool)
        and (node.op != "load" or (node.attr[1] == place and node.dtype == torch.float32))
        for node in store.value.walk()
    )


def _joined(host: TileKernel, kernel: Kernel | ExternNode, buffers: Mapping[str, Buffer]) -> Kernel:
    assert isinstance(kernel, Kernel)
    (store,) = kernel.stores
    names = dict.fromkeys((*host.reads, *kernel.reads, store.buffer))
    names.pop(host.tile.result.name)
    return replace(
        host, epilogue=store, name=f"{host.tile.kind}_{kernel.name}",
        origins=tuple(dict.fromkeys((*host.origins, *kernel.origins))),
        buffers={name: buffers[name] for name in names},
    )
