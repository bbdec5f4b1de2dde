"""Softmax and its logarithm."""

from __future__ import annotations

import math
from typing import Any

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import cast, op
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.fusable import supports
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, compute_dtype
from framejit.backends.fuse.lowering.lowerings import FUSED_DTYPES, lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.operators.reductions import Reduction, reduction


def _parts(b: Builder, out: Value, x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """x in the dtype that is computed in, its greatest elements, and the sums of exp(x - greatest); None where ATen is
    to do it."""
    kind = compute_dtype(out.dtype)
    if (
        not out.dtype.is_floating_point
        or out.dtype not in FUSED_DTYPES
        or x.dtype not in FUSED_DTYPES
        or not out.numel()
        or not x.sizes
    ):
        return None
    if not (supports("exp", kind, x.device) and supports("reduce_max", kind, x.device)):
        return None
    if x.dtype != kind:
        x = b.map(lambda value: cast(value, kind), x, dtype=kind, ops=1)
    b.computed_once(x)
    dims = [dim % len(x.sizes)]
    greatest = reduction(b, x, Reduction("max", dims, dtype=kind))
    exponentials = b.map(lambda value, most: op("exp", a.sub(value, most)), x, greatest, dtype=kind, ops=2)
    total = reduction(b, exponentials, Reduction("sum", dims, dtype=kind))
    return x, greatest, total


@lowers("softmax", "_softmax")
def _softmax(b: Builder, out: Value, x: Tensor, dim: int, rest: Any = None, **_: Any) -> Any:
    parts = _parts(b, out, x, dim)
    if parts is None:
        return NotImplemented
    return b.map(lambda value, most, total: a.div(op("exp", a.sub(value, most)), total), *parts, dtype=out.dtype, ops=3)


@lowers("_safe_softmax")
def _safe_softmax(b: Builder, out: Value, x: Tensor, dim: int, rest: Any = None, **_: Any) -> Any:
    """Zeros where all of a row is minus infinity."""
    parts = _parts(b, out, x, dim)
    if parts is None:
        return NotImplemented
    return b.map(
        lambda value, most, total: a.where(a.eq(most, -math.inf), 0.0, a.div(op("exp", a.sub(value, most)), total)),
        *parts, dtype=out.dtype, ops=4,
    )


@lowers("log_softmax", "_log_softmax")
def _log_softmax(b: Builder, out: Value, x: Tensor, dim: int, rest: Any = None, **_: Any) -> Any:
    parts = _parts(b, out, x, dim)
    if parts is None:
        return NotImplemented
    return b.map(lambda value, most, total: a.sub(a.sub(value, most), op("log", total)), *parts, dtype=out.dtype, ops=3)
