"""Loss functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, cast, const, masked, nearest, op
from framejit.backends.fuse.loop_ir.index import Index, Indirect
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, broadcast_sizes, compute_dtype
from framejit.backends.fuse.lowering.lowerings import lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.operators.pointwise import elementwise
from framejit.backends.fuse.lowering.operators.reductions import Reduction, reduction
from framejit.backends.fuse.targets.lookup import target_of

NONE, MEAN, SUM = 0, 1, 2


def _loss(
    b: Builder, out: Value, name: str, body: Callable[..., Expr], reduce: int, *operands: Tensor, cost: int = 3
) -> Any:
    """What `body` makes of the operands, averaged or summed as asked for."""
    if reduce == NONE:
        return elementwise(b, out, body, operands, (), {}, name, cost=cost)
    shape = broadcast_sizes(*(operand.sizes for operand in operands))
    if not out.dtype.is_floating_point or not math.prod(shape):
        return NotImplemented
    kind = compute_dtype(out.dtype)
    each = b.map(
        lambda *values: body(*(cast(value, kind) for value in values)), *operands, dtype=kind, sizes=shape, ops=cost
    )
    count = math.prod(shape)
    after = (lambda value: a.div(value, count)) if reduce == MEAN else None
    return reduction(
        b, each, Reduction("sum", range(len(shape)), dtype=out.dtype, accumulate=kind, after=after, keepdim=False)
    )


@lowers("mse_loss")
def _mse_loss(b: Builder, out: Value, x: Tensor, target: Tensor, reduction: int = MEAN) -> Any:
    return _loss(b, out, "mse_loss", lambda p, q: a.square(a.sub(p, q)), reduction, x, target)


def held_in(x: Tensor, beta: float) -> float:
    """The number as ATen's smooth_l1_loss takes it: in the dtype of its operands, but not in bfloat16 on CPUs."""
    return beta if x.dtype == torch.bfloat16 and x.device.type == "cpu" else nearest(beta, x.dtype)


@lowers("smooth_l1_loss")
def _smooth_l1_loss(b: Builder, out: Value, x: Tensor, target: Tensor, reduction: int = MEAN, beta: float = 1.0) -> Any:
    beta = held_in(x, beta)

    def body(p: Expr, q: Expr) -> Expr:
        distance = op("abs", a.sub(p, q))
        return (
            a.where(
                a.lt(distance, beta), a.div(a.mul(a.mul(distance, 0.5), distance), beta), a.sub(distance, 0.5 * beta)
            )
            if beta
            else distance
        )

    return _loss(b, out, f"smooth_l1_loss{beta}", body, reduction, x, target, cost=6)


@lowers("huber_loss")
def _huber_loss(b: Builder, out: Value, x: Tensor, target: Tensor, reduction: int = MEAN, delta: float = 1.0) -> Any:
    def body(p: Expr, q: Expr) -> Expr:
        distance = op("abs", a.sub(p, q))
        return a.where(
            a.le(distance, delta), a.mul(a.mul(distance, 0.5), distance), a.mul(a.sub(distance, 0.5 * delta), delta)
        )

    return _loss(b, out, f"huber_loss{delta}", body, reduction, x, target, cost=6)


@lowers("binary_cross_entropy_with_logits")
def _bce_with_logits(
    b: Builder, out: Value, x: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None,
    reduction: int = MEAN
) -> Any:
    if weight is not None or pos_weight is not None or not x.dtype.is_floating_point:
        return NotImplemented

    def body(p: Expr, q: Expr) -> Expr:
        log = a.sub(a.minimum(p, 0.0), op("log1p", op("exp", op("neg", op("abs", p)))))
        return a.sub(a.mul(a.sub(1.0, q), p), log)

    return _loss(b, out, "bce_with_logits", body, reduction, x, target, cost=8)


@lowers("nll_loss_forward")
def _nll_loss(
    b: Builder, out: Any, x: Tensor, target: Tensor, weight: Tensor | None, reduce: int, ignore_index: int
) -> Any:
    # on the CPU ATen raises for targets that are no class; on CUDA it asserts on the device, asynchronously
    if (
        not target_of(x.device).gathers
        or len(x.sizes) != 2
        or weight is not None
        or not x.sizes[0]
        or not x.dtype.is_floating_point
    ):
        return NotImplemented
    rows, classes = x.sizes
    kind = compute_dtype(x.dtype)
    b.prepare(x, target)

    def loss(indices: Any) -> Expr:
        label = cast(target.at(indices), torch.int64)
        counts = a.ne(label, ignore_index)
        return masked(counts, op("neg", x.at([*indices, Index({Indirect(label, classes): 1})])), const(0.0, kind))

    each = b.indexed(loss, x, target, sizes=(rows,), dtype=kind, device=x.device, ops=4)
    counted = b.map(lambda label: cast(a.ne(label, ignore_index), kind), target, dtype=kind, ops=2)
    if reduce == NONE:
        return b.map(lambda value: value, each, dtype=out[0].dtype, ops=0), b.indexed(
            lambda _: const(0.0, kind), sizes=(), dtype=out[1].dtype, device=x.device
        )
    b.realise(each.content)  # with the softmax, a row a program: the sum is only one program's work
    total = reduction(b, each, Reduction("sum", [0], dtype=kind, keepdim=False))
    count = reduction(b, counted, Reduction("sum", [0], dtype=kind, keepdim=False))
    result = total if reduce == SUM else b.map(a.div, total, count, dtype=kind)
    return b.map(lambda value: value, result, dtype=out[0].dtype, ops=0), b.map(
        lambda value: value, count, dtype=out[1].dtype, ops=0
    )
