"""Layer, group, batch and RMS normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, cast, op
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.fusable import supports
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, compute_dtype
from framejit.backends.fuse.lowering.lowerings import FUSED_DTYPES, lowers
from framejit.backends.fuse.lowering.mutation import write
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.operators.moments import moments
from framejit.backends.fuse.lowering.operators.reductions import Reduction, reduction, without_dims
from framejit.backends.fuse.lowering.storages import Storages


def can_normalise(*tensors: Tensor | None) -> bool:
    """Whether kernels can work out moments of the first tensor, and use the others with it."""
    known = [tensor for tensor in tensors if tensor is not None]
    kind = compute_dtype(known[0].dtype)
    return (
        all(
            tensor.dtype.is_floating_point and tensor.dtype in FUSED_DTYPES and tensor.device == known[0].device
            for tensor in known
        )
        and math.prod(known[0].sizes) > 0
        and supports("reduce_sum", kind, known[0].device)
        and supports("rsqrt", kind, known[0].device)
    )


def _rstd(b: Builder, variance: Tensor, eps: float) -> Tensor:
    return b.map(lambda value: op("rsqrt", a.add(value, eps)), variance, dtype=variance.dtype, ops=2)


def _affine(
    b: Builder, dtype: torch.dtype, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """((x - mean) * rstd) * weight + bias, all broadcast."""
    parameters = [parameter for parameter in (weight, bias) if parameter is not None]

    def body(value: Expr, middle: Expr, scale: Expr, *given: Expr) -> Expr:
        values = iter(given)
        value = a.mul(a.sub(value, middle), scale)
        if weight is not None:
            value = a.mul(value, _in(value, next(values)))
        return value if bias is None else a.add(value, _in(value, next(values)))

    return b.map(body, x, mean, rstd, *parameters, dtype=dtype, sizes=x.sizes, ops=2 + len(parameters))


def _in(like: Expr, value: Expr) -> Expr:
    return cast(value, like.dtype)


def _layer_norm(
    b: Builder, dtype: torch.dtype, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None,
    eps: float, exact: bool
) -> Any:
    if not can_normalise(x, weight, bias):
        return NotImplemented
    dims = range(len(x.sizes) - len(shape), len(x.sizes))
    mean, variance = moments(b, x, dims, 0, exact)
    rstd = _rstd(b, variance, eps)
    return _affine(b, dtype, x, mean, rstd, weight, bias), mean, rstd


@lowers("layer_norm")
def _layer_norm_one(
    b: Builder,
    out: Value,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    result = _layer_norm(b, out.dtype, x, shape, weight, bias, eps, exact=False)
    return result if result is NotImplemented else result[0]


@lowers("native_layer_norm")
def _native_layer_norm(
    b: Builder, out: Any, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    return _layer_norm(b, out[0].dtype, x, shape, weight, bias, eps, exact=True)


@lowers("rms_norm")
def _rms_norm(
    b: Builder, out: Value, x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Any:
    if not can_normalise(x, weight):
        return NotImplemented
    b.computed_once(x)
    kind = compute_dtype(x.dtype)
    dims = range(len(x.sizes) - len(shape), len(x.sizes))
    count = float(math.prod(shape))
    eps = torch.finfo(kind).eps if eps is None else eps
    squares = reduction(
        b, x, Reduction("sum", dims, dtype=kind, before=a.square, after=lambda value: a.div(value, count))
    )
    rstd = _rstd(b, squares, eps)
    tensors = [] if weight is None else [weight]
    return b.map(
        lambda value, scale, *w: a.mul(a.mul(value, scale), _in(value, w[0])) if w else a.mul(value, scale),
        x,
        rstd,
        *tensors,
        dtype=out.dtype,
        sizes=x.sizes,
        ops=2,
    )


def _grouped(x: Tensor, groups: int) -> Tensor:
    """x of N, C, ... as N, groups, C / groups, ..."""
    n, c, *rest = x.sizes
    strides = (x.strides[0], x.strides[1] * (c // groups), x.strides[1], *x.strides[2:])
    return Tensor(x.content, (n, groups, c // groups, *rest), strides, x.offset)


def _group_norm(
    b: Builder, dtype: torch.dtype, x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float,
    exact: bool
) -> Any:
    if not can_normalise(x, weight, bias):
        return NotImplemented
    b.computed_once(x)
    if not x.content.dense:
        b.realise(x.content)
    grouped = _grouped(x, groups)
    mean, variance = moments(b, grouped, range(2, len(grouped.sizes)), 0, exact)
    rstd = _rstd(b, variance, eps)
    channels = (1, groups, x.sizes[1] // groups, *(1 for _ in x.sizes[2:]))
    parameters = [
        None
        if p is None
        else Tensor(
            p.content, channels, (0, p.strides[0] * channels[2], p.strides[0], *(0 for _ in x.sizes[2:])), p.offset
        )
        for p in (weight, bias)
    ]
    result = _affine(b, dtype, grouped, mean, rstd, *parameters)
    strides = result.content.strides
    return Tensor(result.content, x.sizes, (strides[0], strides[2], *strides[3:]), 0), mean, rstd


@lowers("group_norm")
def _group_norm_one(
    b: Builder,
    out: Value,
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    result = _group_norm(b, out.dtype, x, groups, weight, bias, eps, exact=False)
    return result if result is NotImplemented else result[0]


@lowers("native_group_norm")
def _native_group_norm(
    b: Builder, out: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hw: int, groups: int,
    eps: float,
) -> Any:
    result = _group_norm(b, out[0].dtype, x, groups, weight, bias, eps, exact=True)
    if result is NotImplemented:
        return NotImplemented
    dims = range(2, len(x.sizes) + 1)
    return result[0], without_dims(b, result[1], dims), without_dims(b, result[2], dims)


def lower_batch_norm(b: Builder, storages: Storages, node: Node) -> Tensor | None:
    """aten::batch_norm, which in training writes into the running statistics though its schema doesn't say so. None
    where ATen is to do it."""
    args, _ = storages.operands(node)
    x, weight, bias, running_mean, running_var, training, momentum, eps = args[:8]
    if not can_normalise(x, weight, bias, running_mean, running_var):
        return None
    dtype = node.result.dtype
    if not training:
        mean, rstd = _by_channel(running_mean, x), _rstd(b, _by_channel(running_var, x), eps)
        return _affine(b, dtype, x, mean, rstd, *(None if p is None else _by_channel(p, x) for p in (weight, bias)))
    dims = [dim for dim in range(len(x.sizes)) if dim != 1]
    count = math.prod(x.sizes[dim] for dim in dims)
    mean, variance = moments(b, x, dims, 0, exact=running_var is not None)
    result = _affine(
        b, dtype, x, mean, _rstd(b, variance, eps), *(None if p is None else _by_channel(p, x) for p in (weight, bias))
    )
    for position, running, batch, over in ((3, running_mean, mean, count), (4, running_var, variance, count - 1)):
        if running is not None:
            flat = Tensor(batch.content, running.sizes, (batch.strides[1],), 0)
            new = b.map(_moved(momentum, count, max(over, 1)), running, flat, dtype=running.dtype, ops=3)
            write(b, storages, node.args[position], new, counted=False)
    return result


def _moved(momentum: float, count: int, over: int) -> Any:
    """A statistic, moved on by what a batch's is with its sum divided by `over` in the place of `count`."""
    if isinstance(count, int):
        return lambda old, new: a.add(a.mul(old, 1 - momentum), a.mul(_in(old, new), momentum * (count / over)))
    return lambda old, new: a.add(
        a.mul(old, 1 - momentum), a.div(a.mul(a.mul(_in(old, new), momentum), count), over)
    )


def _by_channel(parameter: Tensor, x: Tensor) -> Tensor:
    """One value a channel, in the shape in which it is broadcast to x."""
    rest = len(x.sizes) - 2
    return Tensor(
        parameter.content, (1, x.sizes[1], *[1] * rest), (0, parameter.strides[0], *[0] * rest), parameter.offset
    )
