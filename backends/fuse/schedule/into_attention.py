"""Small kernels before attention of one query, such as the rotation of the query and of the token's key, which it puts
into the cache: done by the programs of attention, each for the heads that it looks at.

A launch that does next to nothing takes as long as a part of the attention behind it. Here all programs that look at
the same heads do what is needed for these once more, and store the same; each reads what it stored itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from framejit.backends.fuse.loop_ir.index import Index, Quotient, Remainder, Var, flatten, fresh_var, unflatten
from framejit.backends.fuse.loop_ir.nodes import (
    AttentionKernel,
    Buffer,
    ExternNode,
    Kernel,
    Layout,
    SplitAttention,
)
from framejit.backends.fuse.schedule.dependencies import is_seen, writes_what_outlives

FAR: Final = 1 << 62
Steps = Sequence[Kernel | ExternNode]

MOST_ELEMENTS: Final = 1 << 11
"""What is stored for the heads of a program, at most."""
LEAST_AT_ONCE, MOST_TURNS = 16, 8
"""How few elements may be computed at a time, and how often."""


def into_attention(steps: Steps, buffers: Mapping[str, Buffer]) -> list[Kernel | ExternNode]:
    """The steps, where attention does what small kernels before it do."""
    left: list[Kernel | ExternNode | None] = [*steps]
    for position, step in enumerate(steps):
        if not isinstance(step, AttentionKernel):
            continue
        for before in reversed(range(position)):
            kernel, attention = left[before], left[position]
            assert isinstance(attention, AttentionKernel)
            if kernel is None or type(kernel) is not Kernel or not _is_read(kernel, attention.attention):
                continue
            # what it does already comes before, but not before what other programs do
            between = [*(other for other in left[before + 1 : position] if other is not None), *attention.first]
            if _fits(kernel, attention.attention, buffers) and not _is_held(kernel, between, buffers):
                left[position], left[before] = _with(attention, kernel), None
    return [step for step in left if step is not None]


def turns(elements: int) -> tuple[int, int]:
    """(how often, how many at a time): so that a program computes so many elements in blocks of a power of two."""
    at_once = math.gcd(elements, MOST_ELEMENTS)
    return elements // at_once, at_once


def _is_read(kernel: Kernel, attention: SplitAttention) -> bool:
    """Whether what a kernel stores are queries, keys or values of the attention, and nothing else."""
    read = {layout.buffer.name for layout in (attention.query, attention.key, attention.value)}
    if attention.mask is not None:
        read.discard(attention.mask.buffer.name)  # of which programs read what is other programs' as well
    return bool(kernel.stores) and all(store.buffer in read for store in kernel.stores)


def _fits(kernel: Kernel, attention: SplitAttention, buffers: Mapping[str, Buffer]) -> bool:
    """Whether equal parts of the kernel's turns, in their order, store what the programs for the first heads read, for
    the second, and so on."""
    sizes = [var.size for var in kernel.parallel]
    if kernel.reduction or kernel.members or not all(type(size) is int for size in sizes):
        return False
    if any(value.op == "philox" for store in kernel.stores for value in store.value.walk()):
        return False  # the numbers of a draw are arguments of kernels' own
    if {buffers[name].memory for name in kernel.reads} & {buffers[name].memory for name in kernel.writes}:
        return False
    batch, shared = attention.key.sizes[:2]
    programs = batch * shared
    elements = math.prod(sizes) // programs
    if math.prod(sizes) % programs or not 0 < elements <= MOST_ELEMENTS:
        return False
    times, at_once = turns(elements)
    if times > MOST_TURNS or at_once < LEAST_AT_ONCE:
        return False
    at_batch, head, element = fresh_var("b", batch), fresh_var("h", shared), fresh_var("e", elements)
    turn = flatten((at_batch, head, element), (batch, shared, elements))
    loops = dict(zip(kernel.parallel, unflatten(turn, tuple(sizes))))
    read = (attention.query, attention.group), (attention.key, 1), (attention.value, 1)
    places = [(store.buffer, store.index.substitute(loops)) for store in kernel.stores]
    return all(
        _stays_within(place, at_batch, head, layout, heads)
        for name, place in places for layout, heads in read if layout.buffer.name == name
    )


def _stays_within(place: Index, batch: Var, head: Var, layout: Layout, heads: int) -> bool:
    """Whether a place is among those that programs for a batch and a head of the cache read, so many heads of a layout,
    and no others do, whatever else it depends on."""
    numbers = (layout.offset, *layout.sizes, *layout.strides)
    if not all(type(number) is int and number >= 0 for number in numbers):
        return False
    to_batch, step = layout.strides[0], head_step(layout)
    size = heads * step
    reach = size - step + sum((count - 1) * each for count, each in zip(layout.sizes[2:], layout.strides[2:]))
    if reach >= size or (batch.size > 1 and to_batch < layout.sizes[1] * step):
        return False
    for var, step in ((batch, to_batch), (head, size)):
        if var.size > 1 and place.stride(var) != step:
            return False
        place -= Index.of(var) * place.stride(var)
    if any(isinstance(atom, Quotient | Remainder) and {batch, head} & atom.index.vars() for atom in place.terms):
        return False
    low, high = place.bounds  # of an index that is computed, whoever's turn it is
    return layout.offset <= low and high < layout.offset + size


def head_step(layout: Layout) -> int:
    """How far apart heads begin, or where there is one, batches; beyond all places where there is one of both."""
    (batch, heads, *_), (to_batch, to_head, *_) = layout.sizes, layout.strides
    return to_head if heads > 1 else to_batch if batch > 1 else FAR


def _is_held(kernel: Kernel, between: Sequence[Kernel | ExternNode], buffers: Mapping[str, Buffer]) -> bool:
    """Whether a kernel must run before one of the steps behind it."""
    written, read = ({buffers[name].memory for name in names} for names in (kernel.writes, kernel.reads))
    outlives = writes_what_outlives(kernel, buffers)
    for step in between:
        if written & {buffers[name].memory for name in (*step.reads, *step.writes)}:
            return True
        if read & {buffers[name].memory for name in step.writes} or (outlives and is_seen(step)):
            return True
    return False


def _with(attention: AttentionKernel, kernel: Kernel) -> AttentionKernel:
    """Attention that does a kernel's work first."""
    first = (replace(kernel, steady=None), *attention.first)
    origins = tuple(dict.fromkeys((*kernel.origins, *attention.origins)))
    return replace(attention, first=first, buffers={**kernel.buffers, **attention.buffers}, origins=origins)
