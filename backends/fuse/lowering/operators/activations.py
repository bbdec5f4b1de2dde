"""Activation functions."""

from __future__ import annotations

import math
from typing import Any

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, nearest, op
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import Tensor
from framejit.backends.fuse.lowering.lowerings import lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.operators.pointwise import elementwise, holds_bound, pointwise


@pointwise("relu")
def _relu(x: Expr) -> Expr:
    return x if x.dtype == torch.bool else a.maximum(x, 0)


@pointwise("relu6", cost=2)
def _relu6(x: Expr) -> Expr:
    return a.minimum(a.maximum(x, 0), 6)


@pointwise("silu", cost=2)
def _silu(x: Expr) -> Expr:
    return a.mul(x, op("sigmoid", x)) if x.dtype.is_floating_point else NotImplemented


@pointwise("gelu", cost=6)
def _gelu(x: Expr, *, approximate: str = "none") -> Expr:
    half = a.mul(x, 0.5)
    if approximate == "none":
        return a.mul(half, a.add(op("erf", a.mul(x, math.sqrt(0.5))), 1.0))
    cube = a.mul(a.mul(x, x), x)
    inner = a.mul(a.add(x, a.mul(cube, 0.044715)), math.sqrt(2 / math.pi))
    return a.mul(half, a.add(op("tanh", inner), 1.0))


@pointwise("hardsigmoid", cost=4)
def _hardsigmoid(x: Expr) -> Expr:
    return a.div(a.minimum(a.maximum(a.add(x, 3.0), 0.0), 6.0), 6.0)


@pointwise("hardswish", cost=5)
def _hardswish(x: Expr) -> Expr:
    return a.div(a.mul(x, a.minimum(a.maximum(a.add(x, 3.0), 0.0), 6.0)), 6.0)


@lowers("hardtanh")
def _lower_hardtanh(b: Builder, out: Value, x: Tensor, low: Any = -1.0, high: Any = 1.0) -> Any:
    held = holds_bound(low, out.dtype) and holds_bound(high, out.dtype)
    if not held:
        return NotImplemented
    return elementwise(b, out, _hardtanh, (x, low, high), (), {}, "hardtanh", dtype=x.dtype, cost=2)


def _hardtanh(x: Expr, low: Expr, high: Expr) -> Expr:
    return a.minimum(a.maximum(x, low), high)


@pointwise("leaky_relu", cost=2)
def _leaky_relu(x: Expr, slope: float = 0.01) -> Expr:
    return a.where(a.gt(x, 0), x, a.mul(x, slope))


@pointwise("elu", cost=5)
def _elu(x: Expr, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Expr:
    return a.where(a.le(x, 0), a.mul(op("expm1", a.mul(x, input_scale)), alpha * scale), a.mul(x, scale))


@pointwise("selu", cost=5)
def _selu(x: Expr) -> Expr:
    return _elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@pointwise("celu", cost=5)
def _celu(x: Expr, alpha: float = 1.0) -> Expr:
    return _elu(x, alpha, 1.0, 1.0 / alpha)


@pointwise("mish", cost=8)
def _mish(x: Expr) -> Expr:
    return a.mul(x, op("tanh", op("log1p", op("exp", x))))


@pointwise("softplus", cost=6)
def _softplus(x: Expr, beta: float = 1, threshold: float = 20) -> Expr:
    scaled = a.mul(x, beta)
    return a.where(a.gt(scaled, threshold), x, a.div(op("log1p", op("exp", scaled)), beta))


@pointwise("log_sigmoid", cost=6)
def _log_sigmoid(x: Expr) -> Expr:
    return a.sub(a.minimum(x, 0.0), op("log1p", op("exp", op("neg", op("abs", x)))))


@lowers("threshold")
def _lower_threshold(b: Builder, out: Value, x: Tensor, threshold: float, value: float) -> Any:
    return elementwise(b, out, _threshold, (x, value), (threshold,), {}, "threshold", dtype=x.dtype, cost=2)


def _threshold(x: Expr, value: Expr, threshold: float) -> Expr:
    return a.where(a.le(x, threshold), value, x)


@pointwise("softshrink", cost=4)
def _softshrink(x: Expr, bound: float = 0.5) -> Expr:
    # zero times nan keeps nan
    return a.where(a.gt(x, bound), a.sub(x, bound), a.where(a.lt(x, -bound), a.add(x, bound), a.mul(x, 0)))


@lowers("hardshrink")
def _lower_hardshrink(b: Builder, out: Value, x: Tensor, bound: float = 0.5) -> Any:
    return elementwise(b, out, _hardshrink, (x, bound), (), {}, "hardshrink", dtype=x.dtype, cost=3)


def _hardshrink(x: Expr, bound: Expr) -> Expr:
    return a.where(a.both(a.ge(x, op("neg", bound)), a.le(x, bound)), 0, x)


@pointwise("_prelu_kernel", operands=2, cost=2)
def _prelu(x: Expr, weight: Expr) -> Expr:
    return a.where(a.gt(x, 0), x, a.mul(x, weight))


@lowers("logit", "special_logit")
def _lower_logit(b: Builder, out: Value, x: Any, eps: float | None = None) -> Any:
    if not out.dtype.is_floating_point:
        return NotImplemented
    least, greatest = eps, None if eps is None else 1 - eps
    if eps is not None and out.device.type == "cpu":
        least = nearest(eps, out.dtype)
        greatest = nearest(1 - least, out.dtype)
    return elementwise(b, out, _logit, (x,), (least, greatest), {}, "logit", True, 4)


def _logit(x: Expr, least: float | None, greatest: float | None) -> Expr:
    if least is not None and greatest is not None:
        # in this order: above a half the bounds have changed places
        x = a.where(a.lt(x, least), least, a.where(a.gt(x, greatest), greatest, x))
    return op("log", a.div(x, a.sub(1.0, x)))


@lowers("glu")
def _glu(b: Builder, out: Value, x: Tensor, dim: int = -1) -> Any:
    dim %= len(x.sizes)
    half = x.sizes[dim] // 2
    sizes = (*x.sizes[:dim], half, *x.sizes[dim + 1 :])
    b.computed_once(x)
    first = Tensor(x.content, sizes, x.strides, x.offset)
    second = Tensor(x.content, sizes, x.strides, x.offset + half * x.strides[dim])
    return elementwise(b, out, lambda p, q: a.mul(p, op("sigmoid", q)), (first, second), (), {}, "glu", cost=2)
