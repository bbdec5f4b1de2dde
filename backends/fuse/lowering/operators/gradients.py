"""Operations that only gradient formulas call. The formulas are those of ATen's kernels (aten/src/ATen/native)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, cast, const, index_value, masked, op
from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.fusable import supports
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, compute_dtype
from framejit.backends.fuse.lowering.lowerings import FUSED_DTYPES, lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.operators.losses import MEAN, NONE, held_in
from framejit.backends.fuse.lowering.operators.normalisation import can_normalise
from framejit.backends.fuse.lowering.operators.pointwise import elementwise, pointwise
from framejit.backends.fuse.lowering.operators.reductions import Reduction, reduction

# ---- activations ----


@pointwise("sigmoid_backward", operands=2, cost=3)
def _sigmoid_backward(grad: Expr, result: Expr) -> Expr:
    return a.mul(grad, a.mul(a.sub(1.0, result), result))


@pointwise("tanh_backward", operands=2, cost=3)
def _tanh_backward(grad: Expr, result: Expr) -> Expr:
    return a.mul(grad, a.sub(1.0, a.square(result)))


@pointwise("threshold_backward", operands=2, cost=2)
def _threshold_backward(grad: Expr, x: Expr, threshold: float) -> Expr:
    return a.where(a.le(x, threshold), 0, grad)


@pointwise("silu_backward", operands=2, cost=6)
def _silu_backward(grad: Expr, x: Expr) -> Expr:
    part = op("sigmoid", x)
    return a.mul(grad, a.mul(part, a.add(1.0, a.mul(x, a.sub(1.0, part)))))


@pointwise("gelu_backward", operands=2, cost=12)
def _gelu_backward(grad: Expr, x: Expr, *, approximate: str = "none") -> Expr:
    if approximate == "none":
        below = a.mul(a.add(op("erf", a.mul(x, math.sqrt(0.5))), 1.0), 0.5)
        density = a.mul(op("exp", a.mul(a.square(x), -0.5)), 1 / math.sqrt(2 * math.pi))
        return a.mul(grad, a.add(below, a.mul(x, density)))
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    squared = a.square(x)
    tanh = op("tanh", a.mul(a.add(x, a.mul(a.mul(squared, x), cubic)), scale))
    left = a.mul(a.add(tanh, 1.0), 0.5)
    slope = a.mul(a.sub(1.0, a.square(tanh)), a.mul(a.add(1.0, a.mul(squared, 3 * cubic)), scale))
    return a.mul(grad, a.add(left, a.mul(a.mul(x, 0.5), slope)))


@pointwise("leaky_relu_backward", operands=2, cost=2)
def _leaky_relu_backward(grad: Expr, x: Expr, slope: float, is_result: bool) -> Expr:
    return a.where(a.gt(x, 0), grad, a.mul(grad, slope))


@lowers("elu_backward")
def _elu_backward(
    b: Builder, out: Value, grad: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor
) -> Any:
    def body(grad: Expr, x: Expr) -> Expr:
        if is_result:
            below = a.mul(a.mul(grad, input_scale), a.add(x, alpha * scale))
        else:
            below = a.mul(a.mul(a.mul(grad, input_scale), alpha * scale), op("exp", a.mul(x, input_scale)))
        return a.where(a.le(x, 0), below, a.mul(grad, scale))

    return elementwise(b, out, body, (grad, x), (), {}, f"elu_backward{alpha, scale, input_scale, is_result}", cost=5)


@pointwise("hardtanh_backward", operands=2, cost=3)
def _hardtanh_backward(grad: Expr, x: Expr, low: float, high: float) -> Expr:
    return a.where(a.either(a.le(x, low), a.ge(x, high)), 0, grad)


@pointwise("hardsigmoid_backward", operands=2, cost=3)
def _hardsigmoid_backward(grad: Expr, x: Expr) -> Expr:
    return a.where(a.both(a.gt(x, -3.0), a.lt(x, 3.0)), a.mul(grad, 1.0 / 6.0), 0)


@pointwise("hardswish_backward", operands=2, cost=5)
def _hardswish_backward(grad: Expr, x: Expr) -> Expr:
    return a.where(a.le(x, -3.0), 0, a.where(a.lt(x, 3.0), a.mul(grad, a.add(a.div(x, 3.0), 0.5)), grad))


@pointwise("softshrink_backward", "hardshrink_backward", operands=2, cost=3)
def _shrink_backward(grad: Expr, x: Expr, bound: float) -> Expr:
    return a.where(a.both(a.ge(x, -bound), a.le(x, bound)), 0, grad)


@pointwise("softplus_backward", operands=2, cost=4)
def _softplus_backward(grad: Expr, x: Expr, beta: float, threshold: float) -> Expr:
    scaled = a.mul(x, beta)
    risen = op("exp", scaled)
    return a.where(a.gt(scaled, threshold), grad, a.div(a.mul(grad, risen), a.add(risen, 1.0)))


@pointwise("log_sigmoid_backward", operands=2, cost=6)
def _log_sigmoid_backward(grad: Expr, x: Expr, buffer: Any) -> Expr:
    is_negative = a.lt(x, 0.0)
    fallen = op("exp", op("neg", op("abs", x)))
    share = a.div(fallen, a.add(fallen, 1.0))
    return a.mul(
        grad, a.sub(a.where(is_negative, 1.0, const(0.0, x.dtype)), a.where(is_negative, share, op("neg", share)))
    )


@pointwise("mish_backward", operands=2, cost=9)
def _mish_backward(grad: Expr, x: Expr) -> Expr:
    tanh = op("tanh", op("log1p", op("exp", x)))
    return a.mul(grad, a.add(tanh, a.mul(a.mul(x, op("sigmoid", x)), a.sub(1.0, a.square(tanh)))))


@pointwise("native_dropout_backward", operands=2, cost=2)
def _dropout_backward(grad: Expr, mask: Expr, scale: float) -> Expr:
    kind = grad.dtype if grad.dtype.is_floating_point else torch.float32
    return a.mul(cast(grad, kind), a.mul(cast(mask, kind), scale))


# ---- softmax and losses ----


@lowers("_softmax_backward_data")
def _softmax_backward(b: Builder, out: Value, grad: Tensor, result: Tensor, dim: int, dtype: torch.dtype) -> Any:
    kind = compute_dtype(grad.dtype)
    if not _can_reduce(grad, result) or not out.numel():
        return NotImplemented
    weighted = b.map(a.mul, grad, result, dtype=kind)
    total = reduction(b, weighted, Reduction("sum", [dim % len(grad.sizes)] if grad.sizes else [], dtype=kind))
    return b.map(lambda value, share, sum: a.mul(share, a.sub(value, sum)), grad, result, total, dtype=out.dtype, ops=2)


@lowers("_log_softmax_backward_data")
def _log_softmax_backward(b: Builder, out: Value, grad: Tensor, result: Tensor, dim: int, dtype: torch.dtype) -> Any:
    kind = compute_dtype(grad.dtype)
    if not _can_reduce(grad, result) or not supports("exp", kind, grad.device) or not out.numel():
        return NotImplemented
    total = reduction(b, grad, Reduction("sum", [dim % len(grad.sizes)] if grad.sizes else [], dtype=kind))
    return b.map(
        lambda value, log, sum: a.sub(value, a.mul(op("exp", log), sum)), grad, result, total, dtype=out.dtype, ops=4
    )


@lowers("nll_loss_backward")
def _nll_loss_backward(
    b: Builder, out: Value, grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduce: int,
    ignore_index: int, total_weight: Tensor
) -> Any:
    if (
        len(x.sizes) != 2
        or weight is not None
        or not out.numel()
        or not out.dtype.is_floating_point
        or out.dtype not in FUSED_DTYPES
    ):
        return NotImplemented
    kind = compute_dtype(out.dtype)
    b.prepare(grad, target, total_weight)

    def element(indices: Sequence[Index]) -> Expr:
        row, column = indices
        label = cast(target.at([row]), torch.int64)
        share = op("neg", cast(grad.at([row] if reduce == NONE else []), kind))
        if reduce == MEAN:
            share = a.div(share, cast(total_weight.at([]), kind))
        chosen = a.both(a.eq(label, index_value(column)), a.ne(label, ignore_index))
        return a.where(chosen, share, const(0.0, kind))

    return b.indexed(
        element, grad, target, total_weight, sizes=tuple(out.shape), dtype=out.dtype, device=x.device, ops=4
    )


def _loss_backward(
    b: Builder, out: Value, name: str, slope: Any, reduce: int, grad: Tensor, x: Tensor, target: Tensor, cost: int = 4
) -> Any:
    """The gradient of a loss for its first argument, given the loss's slope at a place."""
    count = math.prod(x.sizes) if reduce == MEAN else 1

    def body(grad: Expr, x: Expr, target: Expr) -> Expr:
        return a.mul(grad, a.div(slope(x, target), count) if count != 1 else slope(x, target))

    if x.sizes != target.sizes or not x.dtype.is_floating_point:
        return NotImplemented
    return elementwise(b, out, body, (grad, x, target), (), {}, f"{name}{count}", cost=cost)


@lowers("mse_loss_backward")
def _mse_loss_backward(b: Builder, out: Value, grad: Tensor, x: Tensor, target: Tensor, reduce: int) -> Any:
    return _loss_backward(b, out, "mse_loss_backward", lambda p, q: a.mul(a.sub(p, q), 2.0), reduce, grad, x, target)


@lowers("smooth_l1_loss_backward")
def _smooth_l1_loss_backward(
    b: Builder, out: Value, grad: Tensor, x: Tensor, target: Tensor, reduce: int, beta: float
) -> Any:
    beta = held_in(x, beta)

    def slope(p: Expr, q: Expr) -> Expr:
        distance = a.sub(p, q)
        sign = a.where(a.le(distance, -beta), -1.0, a.where(a.ge(distance, beta), 1.0, const(0.0, distance.dtype)))
        if not beta:
            return sign
        return a.where(a.either(a.le(distance, -beta), a.ge(distance, beta)), sign, a.div(distance, beta))

    return _loss_backward(b, out, f"smooth_l1_loss_backward{beta}", slope, reduce, grad, x, target, cost=8)


# ---- norms ----


@lowers("native_layer_norm_backward")
def _layer_norm_backward(
    b: Builder,
    out: Any,
    grad: Tensor,
    x: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    wanted: Sequence[bool],
) -> Any:
    if not can_normalise(x, grad, mean, rstd, weight) or any(
        tensor.dtype not in FUSED_DTYPES for tensor in (grad, mean, rstd)
    ):
        return NotImplemented
    rank, count = len(x.sizes), math.prod(shape)
    kind = compute_dtype(x.dtype)
    inner, outer = range(rank - len(shape), rank), range(rank - len(shape))
    b.computed_once(grad)

    def normal(x: Expr, mean: Expr, rstd: Expr) -> Expr:
        return a.mul(a.sub(x, cast(mean, kind)), cast(rstd, kind))

    results: list[Tensor | None] = [None, None, None]
    if wanted[0]:
        parameters = () if weight is None else (weight,)

        def scaled(grad: Expr, *w: Expr) -> Expr:
            return a.mul(cast(grad, kind), cast(w[0], kind)) if w else cast(grad, kind)

        flow = b.map(scaled, grad, *parameters, dtype=kind, sizes=x.sizes)
        first = reduction(b, flow, Reduction("sum", inner, dtype=kind))
        weighted = b.map(
            lambda g, value, m, r: a.mul(g, normal(value, m, r)), flow, x, mean, rstd, dtype=kind, sizes=x.sizes, ops=3
        )
        second = reduction(b, weighted, Reduction("sum", inner, dtype=kind))

        def moved(g: Expr, value: Expr, m: Expr, r: Expr, first: Expr, second: Expr) -> Expr:
            rest = a.div(a.add(first, a.mul(normal(value, m, r), second)), count)
            return a.mul(a.sub(g, rest), cast(r, kind))

        results[0] = b.map(moved, flow, x, mean, rstd, first, second, dtype=out[0].dtype, sizes=x.sizes, ops=7)
    if wanted[1]:
        each = b.map(
            lambda g, value, m, r: a.mul(cast(g, kind), normal(value, m, r)), grad, x, mean, rstd, dtype=kind,
            sizes=x.sizes, ops=3,
        )
        results[1] = reduction(b, each, Reduction("sum", outer, dtype=out[1].dtype, accumulate=kind, keepdim=False))
    if wanted[2]:
        results[2] = reduction(
            b,
            grad,
            Reduction("sum", outer, dtype=out[2].dtype, accumulate=kind, before=lambda g: cast(g, kind), keepdim=False),
        )
    return tuple(results)


# ---- views ----


@lowers("slice_backward")
def _slice_backward(
    b: Builder, out: Value, grad: Tensor, sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Any:
    dim %= len(sizes)
    size = sizes[dim]
    start = min(max(start + size if start < 0 else start, 0), size)
    if step != 1:
        return NotImplemented
    return _placed(b, out, grad, dim, start, True)


@lowers("select_backward")
def _select_backward(b: Builder, out: Value, grad: Tensor, sizes: Sequence[int], dim: int, index: int) -> Any:
    dim %= len(sizes)
    return _placed(b, out, grad, dim, index % sizes[dim], False)


def _placed(b: Builder, out: Value, grad: Tensor, dim: int, start: int, stays: bool) -> Any:
    """Zeros, but for a gradient that lies in them from `start` on; along a dimension that it has, or for which it has
    one place."""
    if out.dtype not in FUSED_DTYPES or not out.numel() or not math.prod(grad.sizes):
        return NotImplemented
    length = grad.sizes[dim] if stays else 1
    kind = compute_dtype(out.dtype)

    def element(indices: Sequence[Index]) -> Expr:
        place = indices[dim] - start
        own = [*indices[:dim], *([place] if stays else ()), *indices[dim + 1 :]]
        low, high = place.bounds
        inside: Expr | None = None
        if low < 0:
            inside = a.ge(index_value(place), 0)
        if high >= length:
            below = a.lt(index_value(place), length)
            inside = below if inside is None else a.both(inside, below)
        return grad.at(own) if inside is None else masked(inside, grad.at(own), const(0, kind))

    return b.indexed(element, grad, sizes=tuple(out.shape), dtype=out.dtype, device=grad.device, ops=3)


def _can_reduce(grad: Tensor, result: Tensor) -> bool:
    kind = compute_dtype(grad.dtype)
    return (
        grad.dtype == result.dtype
        and grad.dtype.is_floating_point
        and grad.dtype in FUSED_DTYPES
        and supports("reduce_sum", kind, grad.device)
    )
