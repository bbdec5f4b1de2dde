"""Tensors made of nothing."""

from __future__ import annotations

from typing import Any

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, cast, const, index_value, rounded
from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.fusable import can_hold
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, compute_dtype
from framejit.backends.fuse.lowering.lowerings import FUSED_DTYPES, lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.operators.pointwise import on_device


def _filled(b: Builder, out: Value, value: Any) -> Any:
    if isinstance(value, complex) or not can_hold(out.dtype, out.device):
        return NotImplemented
    element = rounded(const(value, compute_dtype(out.dtype)), out.dtype)
    return b.indexed(lambda _: element, sizes=tuple(out.shape), dtype=out.dtype, device=out.device)


@lowers("full", "new_full", "full_like")
def _full(b: Builder, out: Value, like: Any, *rest: Any, **_: Any) -> Any:
    return _filled(b, out, rest[-1])


@lowers("zeros", "zeros_like", "new_zeros", "zero")
def _zeros(b: Builder, out: Value, *_: Any, **__: Any) -> Any:
    return _filled(b, out, 0)


@lowers("ones", "ones_like", "new_ones")
def _ones(b: Builder, out: Value, *_: Any, **__: Any) -> Any:
    return _filled(b, out, 1)


@lowers("scalar_tensor")
def _scalar_tensor(b: Builder, out: Value, value: Any, **_: Any) -> Any:
    return _filled(b, out, value)


@lowers("fill")
def _fill(b: Builder, out: Value, x: Tensor, value: Any) -> Any:
    if not isinstance(value, Tensor):
        return _filled(b, out, value)
    if out.dtype not in FUSED_DTYPES or value.dtype not in FUSED_DTYPES:
        return NotImplemented
    return b.map(
        lambda element: element if value.dtype == out.dtype else rounded(element, out.dtype),
        on_device(b, value, out.device), dtype=out.dtype, sizes=tuple(out.shape), ops=0,
    )


@lowers("arange")
def _arange(b: Builder, out: Value, *args: Any, **kwargs: Any) -> Any:
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else kwargs.get("step", 1))
    if not can_hold(out.dtype, out.device):
        return NotImplemented

    def element(indices: Any) -> Expr:
        if not out.dtype.is_floating_point:
            return cast(index_value(Index.of(indices[0]) * int(step) + int(start)), out.dtype)
        if float(start).is_integer() and float(step).is_integer():
            return rounded(index_value(Index.of(indices[0]) * int(step) + int(start)), out.dtype)
        # ATen adds up in double precision, too
        return rounded(a.add(a.mul(cast(index_value(indices[0]), torch.float64), float(step)), float(start)), out.dtype)

    return b.indexed(element, sizes=tuple(out.shape), dtype=out.dtype, device=out.device)


@lowers("eye")
def _eye(b: Builder, out: Value, *_: Any, **__: Any) -> Any:
    if not can_hold(out.dtype, out.device):
        return NotImplemented
    kind = compute_dtype(out.dtype)
    return b.indexed(
        lambda indices: cast(a.eq(index_value(indices[0]), index_value(indices[1])), kind), sizes=tuple(out.shape),
        dtype=out.dtype, device=out.device
    )
