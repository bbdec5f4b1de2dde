"""Writes whose elements share memory with each other, or with other elements that are read.

ATen knows what is an error then, and in which order it works otherwise (aten/src/ATen/MemoryOverlap.h).
"""

from __future__ import annotations

import math
from typing import Final

from framejit.backends.fuse.graph.node import Node, values_in
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.sizes.symbolic_size import as_sizes

MOVING: Final = frozenset((
    "index_add_", "index_copy_", "index_reduce_", "index_put_", "_index_put_impl_", "scatter_", "scatter_add_",
    "scatter_reduce_", "put_", "addr_", "addmv_", "addmm_", "addbmm_", "baddbmm_",
))
"""Operations that write elsewhere than they read: what they read must be no part of what they write at all."""


def overlaps(target: Value, node: Node) -> bool:
    """Whether elements of a tensor that an operation writes may share memory, or be read as other ones."""
    if _overlaps_itself(target) or any(_may_overlap_in_part(target, value) for value in node.values()):
        return True
    return node.name in MOVING and any(
        _place(target) == _place(value) and value.storage is target.storage
        for value in values_in((*node.args[1:], *node.kwargs.values()))
    )


def _overlaps_itself(target: Value) -> bool:
    step = 1
    places = zip(as_sizes(target.strides), as_sizes(target.shape))
    for stride, size in sorted([place for place in places if place[1] != 1], key=lambda place: place[0]):
        if stride < step:
            return True
        step += stride * (size - 1)
    return False


def _may_overlap_in_part(target: Value, other: Value) -> bool:
    """Whether a tensor that is read may share some of the memory that is written, and not lie as it does."""
    if other is target or other.storage is not target.storage or _place(target) == _place(other):
        return False
    if target.has_symbolic_sizes or other.has_symbolic_sizes:
        return True
    if not target.numel() or not other.numel():
        return False
    (first, last, step), (other_first, other_last, other_step) = _bytes(target), _bytes(other)
    if last < other_first or other_last < first:
        return False
    # elements lie whole steps from the first ones: those of x[::2] and x[1::2] never meet
    step = math.gcd(step, other_step)
    apart = (first - other_first) % step if step else 0
    return not (apart >= other.itemsize and step - apart >= target.itemsize or _are_boxes_apart(target, other))


def _are_boxes_apart(target: Value, other: Value) -> bool:
    """Whether both are cut out of a tensor by slices, and in some dimension out of other places."""
    boxes = [_box(target), _box(other)]
    return None not in boxes and any(
        begin >= other_end or other_begin >= end for (begin, end), (other_begin, other_end) in zip(*boxes)
    )


def _box(value: Value) -> list[tuple[int, int]] | None:
    """Where in its storage's first tensor a value begins and ends, in each dimension; None if it is no part of that by
    slices without steps."""
    whole = value.storage.first
    if whole.has_symbolic_sizes or value.itemsize != whole.itemsize or len(value.shape) != len(whole.shape):
        return None
    if _overlaps_itself(whole) or 0 in whole.shape:
        return None
    left = value.offset - whole.offset
    box = {}
    for dim in sorted(range(len(whole.shape)), key=lambda dim: (-whole.strides[dim], whole.shape[dim])):
        if whole.shape[dim] == 1:
            box[dim] = (0, 1)
            continue
        begin, left = divmod(left, whole.strides[dim])
        end = begin + value.shape[dim]
        if begin < 0 or end > whole.shape[dim] or (value.shape[dim] != 1 and value.strides[dim] != whole.strides[dim]):
            return None
        box[dim] = (begin, end)
    return [box[dim] for dim in sorted(box)] if not left else None


def _place(value: Value) -> tuple[object, ...]:
    return value.offset, value.shape, value.strides, value.itemsize


def _bytes(value: Value) -> tuple[int, int, int]:
    """Where a value's first byte is, where its last one, and what divides all distances of elements."""
    first = value.offset * value.itemsize
    strides = [(size, stride * value.itemsize) for size, stride in zip(value.shape, value.strides) if size != 1]
    last = first + sum((size - 1) * stride for size, stride in strides) + value.itemsize - 1
    return first, last, math.gcd(*[stride for _, stride in strides])
