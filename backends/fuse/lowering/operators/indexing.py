"""Reading at computed places. On the CPU ATen does it, for it checks the indices; on CUDA it only asserts on the
device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, cast, index_value, masked
from framejit.backends.fuse.loop_ir.index import Index, Indirect
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import Tensor
from framejit.backends.fuse.lowering.lowerings import FUSED_DTYPES, lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.targets.lookup import target_of


def place_at(value: Expr, size: int, negative: bool = False) -> Index:
    """An integer as a place along a dimension of a size; below 0 it is counted from the end if `negative`."""
    value = cast(value, torch.int64)
    if negative:
        value = a.where(a.lt(value, 0), a.add(value, size), value)
    return Index({Indirect(value, size): 1})


def _fusable(*tensors: Tensor) -> bool:
    return all(target_of(tensor.device).gathers and tensor.dtype in FUSED_DTYPES for tensor in tensors)


@lowers("embedding")
def _embedding(b: Builder, out: Value, weight: Tensor, indices: Tensor, *_: Any) -> Any:
    if not _fusable(weight, indices):
        return NotImplemented
    b.prepare(indices)
    return b.indexed(
        lambda at: weight.at([place_at(indices.at(at[:-1]), weight.sizes[0]), at[-1]]),
        weight,
        indices,
        sizes=tuple(out.shape),
        dtype=out.dtype,
        device=out.device,
        ops=1,
    )


@lowers("index_select")
def _index_select(b: Builder, out: Value, x: Tensor, dim: int, index: Tensor) -> Any:
    if not _fusable(x, index) or not x.sizes or len(index.sizes) != 1:
        return NotImplemented
    dim %= len(x.sizes)
    return b.indexed(
        lambda at: x.at([*at[:dim], place_at(index.at([at[dim]]), x.sizes[dim]), *at[dim + 1 :]]),
        x,
        index,
        sizes=tuple(out.shape),
        dtype=out.dtype,
        device=out.device,
        ops=1,
    )


@lowers("gather")
def _gather(b: Builder, out: Value, x: Tensor, dim: int, index: Tensor, **_: Any) -> Any:
    if not _fusable(x, index) or not x.sizes or len(index.sizes) != len(x.sizes):  # an empty index may have any rank
        return NotImplemented
    dim %= len(x.sizes)
    return b.indexed(
        lambda at: x.at([*at[:dim], place_at(index.at(at), x.sizes[dim]), *at[dim + 1 :]]),
        x,
        index,
        sizes=tuple(out.shape),
        dtype=out.dtype,
        device=out.device,
        ops=1,
    )


@lowers("slice_scatter")
def _slice_scatter(
    b: Builder, out: Value, x: Tensor, source: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1
) -> Any:
    if step != 1 or x.dtype not in FUSED_DTYPES or source.dtype != x.dtype:
        return NotImplemented
    dim %= len(x.sizes)
    first = min(max((start or 0) + (x.sizes[dim] if (start or 0) < 0 else 0), 0), x.sizes[dim])
    last = first + source.sizes[dim]

    def element(at: Sequence[Index]) -> Expr:
        place = index_value(at[dim])
        inside = a.both(a.ge(place, first), a.lt(place, last))
        return masked(inside, source.at([*at[:dim], at[dim] - first, *at[dim + 1 :]]), x.at(at))

    return b.indexed(element, x, source, sizes=tuple(out.shape), dtype=out.dtype, device=out.device, ops=3)
