"""Means and variances: of whole tensors and of dimensions, and as normalisations take them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from framejit.backends.fuse.loop_ir.expr import Expr, cast, op
from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, compute_dtype, contiguous_strides
from framejit.backends.fuse.lowering.lowerings import lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.operators.reductions import (
    Reduction,
    at_once,
    can_reduce,
    normal_dims,
    reduction,
    split_in_parts,
    without_dims,
)
from framejit.backends.fuse.targets.lookup import target_of


def moments(
    b: Builder, x: Tensor, dims: Sequence[int], correction: float, exact: bool = True, root: bool = False
) -> tuple[Tensor, Tensor]:
    """Mean and variance over `dims`, which stay as dimensions of one element, in the dtype that values are computed in.

    Of values far from zero a sum is only roughly right, and so is a mean made of it. The distances from such a rough
    mean are exact or nearly so; their own mean tells what the rough one lacks, and what their squares have too much. It
    costs an addition an element, which is saved where `exact` is False: what is normalised by them has the rounding
    error of the mean anyway, and eager's is no better. On GPUs, what is reduced in parts over columns is gone through
    only once (`_moments_in_parts`). With `root`, the root of the variance is wanted: squares are
    then summed in double precision on a CPU, as eager's, in which those of huge and tiny distances have room.
    """
    kind = compute_dtype(x.dtype)
    count = math.prod(x.sizes[dim] for dim in dims)
    b.computed_once(x)
    split = None if root else split_in_parts(b, x, dims)
    if split is not None:
        return _moments_in_parts(b, *split, count, _corrected(count, correction))
    rough = reduction(b, x, Reduction("sum", dims, dtype=kind, after=lambda value: a.div(value, count)))
    distance = b.map(a.sub, x, rough, dtype=kind)
    free = _corrected(count, correction)
    if not exact:
        return rough, reduction(
            b, distance, Reduction("sum", dims, dtype=kind, before=a.square, after=lambda value: a.div(value, free))
        )
    # accumulators of float32 end in one of float64 on a CPU, which is kept: of two numbers that are taken from one
    # another, each rounding shows
    wide = torch.float64 if target_of(x.device).sums_in_double else kind
    lacking = reduction(
        b,
        distance,
        Reduction("sum", dims, dtype=wide, accumulate=kind, after=lambda value: a.div(cast(value, wide), count)),
    )
    summed = wide if root else kind
    squares = reduction(
        b,
        distance,
        Reduction("sum", dims, dtype=wide, accumulate=summed, before=lambda value: a.square(cast(value, summed))),
    )

    mean = b.map(lambda value, lack: cast(a.add(cast(value, wide), lack), kind), rough, lacking, dtype=kind)
    return mean, b.map(
        lambda sums, lack: cast(_variance_of(sums, lack, count, free), summed), squares, lacking, dtype=summed, ops=5
    )


def _variance_of(squares: Expr, lacking: Expr, count: int, free: float) -> Expr:
    """What the squares of distances from a rough mean come to, whose own mean is `lacking`."""
    surplus = a.mul(a.mul(lacking, count), lacking)
    rest = a.where(
        a.lt(surplus, squares),
        a.sub(squares, surplus),
        a.where(a.lt(squares, math.inf), a.mul(lacking, 0.0), squares),
    )
    return a.div(rest, free)


def _moments_in_parts(
    b: Builder, x: Tensor, inside: Sequence[int], parts: Sequence[int], extra: int, count: int, free: float
) -> tuple[Tensor, Tensor]:
    """`moments` of what was split, which is gone through once: of each part the sums of distances from its first
    element and of their squares; of these those of distances from the mean of all first elements. (How sums about one
    number become those about another: Chan, Golub, LeVeque, Updating Formulae and a Pairwise Algorithm for Computing
    Sample Variances, 1979.)

    What cancels is bounded: an element of n numbers is no further from their mean than the root of n times their
    variance, so that squares have at most n times the rounding error that they would have about the mean; in data
    without such outliers, some three times.
    """
    kind = compute_dtype(x.dtype)
    length = math.prod(x.sizes[dim] for dim in inside)
    number = math.prod(x.sizes[dim] for dim in parts)
    sizes = [1 if dim in inside else size for dim, size in enumerate(x.sizes)]
    # what comes of a row's parts lies side by side
    order = [dim for dim in range(len(x.sizes)) if dim not in parts and dim not in inside] + [*parts]
    strides = [0] * len(x.sizes)
    for dim, stride in zip(order, contiguous_strides([x.sizes[dim] for dim in order])):
        strides[dim] = stride

    def total(value: Tensor, dims: Sequence[int], divisor: int = 1, square: bool = False) -> Tensor:
        before, after = a.square if square else None, (lambda value: a.div(value, divisor)) if divisor > 1 else None
        own = strides if dims is inside else None
        return at_once(b, value, Reduction("sum", dims, kind, before=before, after=after, strides=own))

    first = b.indexed(
        lambda indices: cast(x.at([Index({}) if dim in inside else index for dim, index in enumerate(indices)]), kind),
        x, sizes=sizes, dtype=kind, device=x.device,
    )
    distance = b.map(a.sub, x, first, dtype=kind)
    # first elements are kept as sums are: the kernel that puts parts together then goes through memory in one order
    first, lacking, squares = total(first, inside), total(distance, inside), total(distance, inside, square=True)
    common = total(first, parts, number)
    between = b.map(a.sub, first, common, dtype=kind)
    lack = b.map(lambda own, apart: a.add(own, a.mul(apart, length)), lacking, between, dtype=kind, ops=2)
    moved = b.map(
        lambda own, lacks, apart: a.add(own, a.mul(apart, a.add(a.mul(lacks, 2), a.mul(apart, length)))),
        squares, lacking, between, dtype=kind, ops=5,
    )
    rest = total(lack, parts, count)
    # eager's moments of what is not finite are NaN
    mean = b.map(lambda value, more: a.add(a.add(value, more), a.mul(more, 0.0)), common, rest, dtype=kind, ops=3)
    variance = b.map(
        lambda sums, more: a.add(_variance_of(sums, more, count, free), a.mul(more, 0.0)), total(moved, parts), rest,
        dtype=kind, ops=7,
    )
    return without_dims(b, mean, [extra]), without_dims(b, variance, [extra])


def _corrected(count: int, correction: float) -> float:
    """How many deviations are free."""
    return max(0, count - int(correction)) if float(correction).is_integer() else max(0.0, int(count) - correction)


def _variance(
    b: Builder, out: Any, x: Tensor, rest: Sequence[Any], kwargs: dict[str, Any], root: bool, both: bool
) -> Any:
    result = out[0] if both else out
    if not x.dtype.is_floating_point or not can_reduce(b, result, x, "sum", compute_dtype(x.dtype)):
        return NotImplemented
    if rest and isinstance(rest[0], bool):  # var(x, unbiased)
        dims, correction = None, float(rest[0])
    else:
        dims = rest[0] if rest else kwargs.get("dim")
        given = rest[1] if len(rest) > 1 else kwargs.get("correction")
        correction = 1.0 if given is None else float(given)
    dims = normal_dims(dims, len(x.sizes))
    if _corrected(math.prod(x.sizes[dim] for dim in dims), correction) <= 0 or any(size == 0 for size in x.sizes):
        return NotImplemented  # ATen warns of it
    mean, variance = moments(b, x, dims, correction, root=root)
    if root:
        variance = b.map(lambda value: op("sqrt", value), variance, dtype=result.dtype)
    pair = [b.map(lambda value: value, item, dtype=result.dtype, ops=0) for item in (variance, mean)]
    if result.dim() != len(x.sizes):
        pair = [without_dims(b, item, dims) for item in pair]
    return tuple(pair) if both else pair[0]


@lowers("var")
def _var(b: Builder, out: Any, x: Tensor, *rest: Any, **kwargs: Any) -> Any:
    return _variance(b, out, x, rest, kwargs, root=False, both=False)


@lowers("std")
def _std(b: Builder, out: Any, x: Tensor, *rest: Any, **kwargs: Any) -> Any:
    return _variance(b, out, x, rest, kwargs, root=True, both=False)


@lowers("var_mean")
def _var_mean(b: Builder, out: Any, x: Tensor, *rest: Any, **kwargs: Any) -> Any:
    return _variance(b, out, x, rest, kwargs, root=False, both=True)


@lowers("std_mean")
def _std_mean(b: Builder, out: Any, x: Tensor, *rest: Any, **kwargs: Any) -> Any:
    return _variance(b, out, x, rest, kwargs, root=True, both=True)
