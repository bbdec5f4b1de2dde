"""The strides that eager gives to what an elementwise operation makes.

Torch's fakes compute them by rules of their own, which differ from those of the kernels where inputs are permuted and
broadcast, have dimensions of one element, or are converted. These are the kernels' rules (ATen's TensorIterator): same
layouts are kept, else dimensions are put in the order of the first input that can tell them apart. The order of
dimensions of one element, and with it their strides, is part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Layout = tuple[Sequence[Any], Sequence[Any]]
"""Sizes and strides of an operand; both are empty for a number."""


def contiguous(sizes: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of a row-major tensor."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * (size if size != 0 else 1)
    return tuple(reversed(strides))


def elementwise_strides(sizes: Sequence[Any], operands: Sequence[Layout]) -> tuple[Any, ...]:
    """Strides of a result of these sizes, to which the operands, in the operation's order, are broadcast."""
    if all(len(own) == len(sizes) and tuple(own) == tuple(sizes) for own, _ in operands):
        kept = _kept(sizes, operands)
        if kept is not None:
            return kept
    return _ordered(sizes, operands)


def _kept(sizes: Sequence[Any], operands: Sequence[Layout]) -> tuple[Any, ...] | None:
    """The layout of all operands, if it is one that is taken over as it is."""
    if all(_is_row_major(own, strides) for own, strides in operands):
        return contiguous(sizes)
    if len(sizes) in (4, 5):
        order = _channels_innermost(len(sizes))
        if all(
            _is_row_major([own[dim] for dim in order], [strides[dim] for dim in order]) for own, strides in operands
        ):
            return channels_last(sizes)
    first = tuple(operands[0][1])
    if all(tuple(strides) == first and is_dense(own, strides) for own, strides in operands):
        return first
    return None


def _is_row_major(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether elements lie in the order of the dimensions, those of one element apart."""
    if any(size == 0 for size in sizes):
        return True
    step: Any = 1
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if size != 1:
            if stride != step:
                return False
            step = step * size
    return True


def is_dense(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether elements fill their memory without gaps or overlaps, in whatever order."""
    if any(size == 0 for size in sizes):
        return True
    step: Any = 1
    for stride, size in sorted(
        ((stride, size) for size, stride in zip(sizes, strides) if not size < 2), key=lambda pair: pair[0]
    ):
        if stride != step:
            return False
        step = step * size
    return True


def _ordered(sizes: Sequence[Any], operands: Sequence[Layout]) -> tuple[Any, ...]:
    order = _order(sizes, [_broadcast(sizes, own, strides) for own, strides in operands if own])
    return contiguous(sizes) if order == [*reversed(range(len(sizes)))] else _packed(sizes, order, least=0)


def depends_on_order(sizes: Sequence[Any], operands: Sequence[Layout]) -> bool:
    """Whether the strides of a result would be others if another operand came first."""
    made = elementwise_strides(sizes, operands)
    return any(elementwise_strides(sizes, [*operands[at:], *operands[:at]]) != made for at in range(1, len(operands)))


def _order(sizes: Sequence[Any], steps: Sequence[Sequence[Any]]) -> list[int]:
    """The dimensions, innermost first, as operands with these strides put them."""
    rank = len(sizes)
    order = [*reversed(range(rank))]  # innermost first
    for start in range(1, rank):
        place = start
        for before in reversed(range(start)):
            verdict = _compared(order[before], order[place], sizes, steps)
            if verdict > 0:
                order[before], order[place] = order[place], order[before]
                place = before
            elif verdict < 0:
                break
    return order


def _packed(sizes: Sequence[Any], order: Sequence[int], least: int) -> tuple[Any, ...]:
    """Strides without gaps for dimensions in this order. `least`: as what an empty dimension counts."""
    strides: list[Any] = [0] * len(sizes)
    step: Any = 1
    for dim in order:
        strides[dim] = step
        step = step * (sizes[dim] if sizes[dim] != 0 else least)
    return tuple(strides)


def _broadcast(sizes: Sequence[Any], own: Sequence[Any], strides: Sequence[Any]) -> list[Any]:
    """An operand's strides in the result's dimensions, 0 where it is repeated."""
    skipped = len(sizes) - len(own)
    return [0] * skipped + [
        0 if mine == 1 and size != 1 else stride for mine, size, stride in zip(own, sizes[skipped:], strides)
    ]


def _compared(inner: int, outer: int, sizes: Sequence[Any], steps: Sequence[Sequence[Any]]) -> int:
    """1 if dimension `inner` should come further out than `outer`, -1 if it should not, 0 if no operand can tell."""
    for strides in steps:
        one, other = strides[inner], strides[outer]
        if one == 0 or other == 0:
            continue
        if one != other:
            return -1 if one < other else 1
        if sizes[inner] > sizes[outer]:
            return 1
    return 0


def like(sizes: Sequence[Any], strides: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of what is made like a tensor of these sizes and strides: its own where they leave no gaps, else
    dimensions in the same order."""
    return tuple(strides) if is_dense(sizes, strides) else _packed(sizes, _order(sizes, [strides]), least=1)


def converted(tensor: torch.Tensor, dtype: torch.dtype) -> Layout:
    """How a tensor lies after it was converted to a dtype, as kernels on a CPU have their inputs converted."""
    sizes, strides = tensor.shape, tensor.stride()
    return sizes, strides if tensor.dtype == dtype else like(sizes, strides)


def channels_last(sizes: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of a tensor of four or five dimensions whose second one, the channels, is innermost."""
    order = _channels_innermost(len(sizes))
    inner = contiguous([sizes[dim] for dim in order])
    return tuple(inner[order.index(dim)] for dim in range(len(sizes)))


def suggests_channels_last(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether torch takes a tensor of four or five dimensions, by its strides, for one whose channels are innermost
    (c10/core/MemoryFormat.h). There may be gaps, and where it could be either, it need not be."""
    if len(sizes) not in (4, 5) or strides[1] == 0:
        return False
    least: Any = 0
    for dim in reversed(_channels_innermost(len(sizes))):
        if sizes[dim] == 0 or strides[dim] < least or dim == 0 and least == strides[1]:
            return False
        least = strides[dim] * sizes[dim] if sizes[dim] > 1 else strides[dim]
    return True


def _channels_innermost(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)
