"""Scans: running sums, products and extremes along a dimension. Each is a loop nest whose reduction loop is that
dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, cast, const, scan
from framejit.backends.fuse.loop_ir.index import Index, fresh_var, strided
from framejit.backends.fuse.loop_ir.nodes import Store
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.fusable import supports
from framejit.backends.fuse.lowering.lowered_tensor import (
    Tensor,
    by_stride,
    compute_dtype,
    contiguous_strides,
    is_dense,
)
from framejit.backends.fuse.lowering.lowerings import FUSED_DTYPES, lowers
from framejit.backends.fuse.sizes.symbolic_size import as_sizes
from framejit.backends.fuse.targets.lookup import target_of


def _scanned(b: Builder, outs: Sequence[Value], kinds: Sequence[str], x: Tensor, dim: int, kind: torch.dtype) -> Any:
    """Scans of one tensor along one dimension, for each of `outs` one of `kinds`, by one nest, with accumulators of
    dtype `kind`.

    NotImplemented where ATen is to do it.
    """
    if any(out.dtype not in FUSED_DTYPES for out in outs) or x.dtype not in FUSED_DTYPES:
        return NotImplemented
    if not all(supports(f"scan_{name}", kind, x.device) for name in kinds):
        return NotImplemented

    def element(value: Expr) -> Expr:
        # ATen converts to the result's dtype, and so rounds to it, before it adds
        return cast(cast(value, outs[0].dtype) if x.dtype != outs[0].dtype else value, kind)

    if not x.sizes or x.sizes[dim % len(x.sizes)] == 1 or not math.prod(x.sizes):
        # of rows of one element (or of nothing) each element is the result, and 0 its position
        return tuple(
            b.map(
                lambda value, name=name: const(0, torch.int64) if name in ("argmax", "argmin") else element(value),
                x,
                dtype=out.dtype,
            )
            for out, name in zip(outs, kinds)
        )
    dim %= len(x.sizes)
    rows = math.prod(size for each, size in enumerate(x.sizes) if each != dim)
    target = target_of(x.device)
    if (
        target.longest_scan
        and rows == 1
        and any(x.sizes[dim] > target.longest_scan.get(name, x.sizes[dim]) for name in kinds)
    ):
        return NotImplemented
    if target.scan_lanes and rows < target.scan_lanes and "logsumexp" in kinds:
        return NotImplemented
    b.prepare(x)
    strides = [
        as_sizes(out.stride())
        if is_dense(as_sizes(out.shape), as_sizes(out.stride()))
        else contiguous_strides(as_sizes(out.shape))
        for out in outs
    ]
    variables = {each: fresh_var("r" if each == dim else "i", x.sizes[each]) for each in by_stride(x.sizes, strides[0])}
    indices = [Index.of(variables.get(each, 0)) for each in range(len(x.sizes))]
    value = element(x.rounded_at(indices) if "argmax" in kinds or "argmin" in kinds else x.at(indices))
    origins = b.origins_of(x)
    buffers = [b.buffer(out.shape, own, out.dtype, x.device) for out, own in zip(outs, strides)]
    stores = [
        Store(buffer.name, strided(indices, buffer.strides), cast(scan(name, value), buffer.dtype), in_reduction=True)
        for buffer, name in zip(buffers, kinds)
    ]
    b.compute(
        tuple(var for each, var in variables.items() if each != dim), (variables[dim],), stores, x.device, origins
    )
    return tuple(Tensor.of(b.held(buffer)) for buffer in buffers)


def _running(b: Builder, out: Value, kind: str, x: Tensor, dim: int) -> Any:
    """A running sum or the like. ATen's accumulators on a CPU are float64 for float32 (float32 for less), on a GPU of
    the result's dtype."""
    if out.dtype == torch.bool:
        return NotImplemented
    wide = out.dtype.is_floating_point and target_of(x.device).sums_in_double
    results = _scanned(b, [out], [kind], x, dim, torch.float64 if wide else compute_dtype(out.dtype))
    return results if results is NotImplemented else results[0]


@lowers("cumsum")
def _cumsum(b: Builder, out: Value, x: Tensor, dim: int, *, dtype: Any = None) -> Any:
    return _running(b, out, "sum", x, dim)


@lowers("cumprod")
def _cumprod(b: Builder, out: Value, x: Tensor, dim: int, *, dtype: Any = None) -> Any:
    return _running(b, out, "prod", x, dim)


@lowers("logcumsumexp")
def _logcumsumexp(b: Builder, out: Value, x: Tensor, dim: int) -> Any:
    return (
        _running(b, out, "logsumexp", x, dim)
        if out.dtype.is_floating_point and x.dtype == out.dtype
        else NotImplemented
    )


@lowers("cummax")
def _cummax(b: Builder, out: Any, x: Tensor, dim: int) -> Any:
    return _extremes(b, out, ["max", "argmax"], x, dim)


@lowers("cummin")
def _cummin(b: Builder, out: Any, x: Tensor, dim: int) -> Any:
    return _extremes(b, out, ["min", "argmin"], x, dim)


def _extremes(b: Builder, out: Any, kinds: Sequence[str], x: Tensor, dim: int) -> Any:
    """Values and positions."""
    if not isinstance(out, (tuple, list)) or out[0].dtype != x.dtype or out[1].dtype != torch.int64:
        return NotImplemented
    return _scanned(b, out, kinds, x, dim, torch.uint8 if x.dtype == torch.bool else compute_dtype(x.dtype))
