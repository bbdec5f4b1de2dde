"""Reductions: each becomes a loop nest at once; what comes after or before it is fused by the scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, cast, const, index_value, masked, op, reduce
from framejit.backends.fuse.loop_ir.index import Index, fresh_var, strided
from framejit.backends.fuse.loop_ir.nodes import Store
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.registry import FUSED_DTYPES, lowers
from framejit.backends.fuse.lowering.support import supports
from framejit.backends.fuse.lowering.tensor import Tensor, by_stride, compute_dtype, contiguous_strides
from framejit.backends.fuse.sizes.open_size import OpenSize, as_sizes, surely_divides, surely_equal
from framejit.backends.fuse.targets.lookup import target_of

Step = Callable[[Expr], Expr]

LONG_ROW: Final = 1 << 16
WHOLE: Final = 16
"""Of which parts of a row whose length is not known have a multiple of elements: 16 bytes of the smallest dtype."""


def reduction(
    b: Builder,
    kind: str,
    x: Tensor,
    dims: Sequence[int],
    *,
    dtype: torch.dtype,
    accumulate: torch.dtype | None = None,
    before: Step | None = None,
    after: Step | None = None,
    keepdim: bool = True,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """A tensor of `dtype` with the reduction of `x` over `dims`, in memory.

    `before` is done to each element and `after` to the result, in the dtypes that values are computed in; `accumulate` is the accumulator's.
    """
    device = x.device
    b.prepare(x)
    kept = [1 if dim in dims else size for dim, size in enumerate(x.sizes)]
    sizes = [size for dim, size in enumerate(kept) if keepdim or dim not in dims]
    strides = contiguous_strides(sizes) if strides is None else as_sizes(strides)
    outer_count, inner_count = math.prod(kept), math.prod(x.sizes[dim] for dim in dims)
    accumulate = accumulate or compute_dtype(x.dtype)

    def element(indices: Sequence[Index]) -> Expr:
        value = x.at(indices)
        return before(value) if before else value

    def finished(value: Expr) -> Expr:
        return cast(after(value) if after else value, dtype)

    if not inner_count:
        empty = b.lazy(sizes, strides, dtype, device, lambda _: cast(finished(_identity(kind, accumulate)), compute_dtype(dtype)), (), 1)
        b.realise(empty)
        return Tensor.of(empty)
    positional = kind in ("argmax", "argmin")
    if not positional and inner_count > LONG_ROW and outer_count < target_of(device).few_rows:
        return _in_parts(b, kind, x, dims, accumulate, element, finished, sizes, strides, dtype)
    # a result's own strides order the outer loops; the inner ones follow memory where the order is free
    places = {dim: stride for dim, stride in zip([dim for dim in range(len(kept)) if keepdim or dim not in dims], strides) if dim not in dims}
    outer_dims = [dim for dim in by_stride(kept, [places.get(dim, 0) for dim in range(len(kept))]) if dim not in dims]
    inner_dims = [dim for dim in (sorted(dims) if positional else by_stride(x.sizes, x.strides)) if dim in dims and x.sizes[dim] != 1]
    variables = {dim: fresh_var("r" if dim in dims else "i", x.sizes[dim]) for dim in (*outer_dims, *inner_dims)}
    indices = [Index.of(variables[dim]) if dim in variables else Index({}) for dim in range(len(kept))]
    value = cast(element(indices), accumulate) if not positional else element(indices)
    buffer = b.buffer(sizes, strides, dtype, device)
    place = strided([Index({}) if dim in dims else indices[dim] for dim in places], places.values())
    inner = tuple(variables[dim] for dim in inner_dims)
    result = reduce(kind, value, None if positional else accumulate) if inner else const(0, torch.int64) if positional else value
    b.compute(tuple(variables[dim] for dim in outer_dims), inner, [Store(buffer.name, place, finished(result))], device, b.origins_of(x))
    return Tensor.of(b.held(buffer))


def _in_parts(
    b: Builder,
    kind: str,
    x: Tensor,
    dims: Sequence[int],
    accumulate: torch.dtype,
    element: Callable[[Sequence[Index]], Expr],
    finished: Step,
    sizes: Sequence[int],
    strides: Sequence[int],
    dtype: torch.dtype,
) -> Tensor:
    """Few long rows: parts of each row are reduced on their own first, then the parts."""
    wanted = target_of(x.device).row_parts
    order = [dim for dim in by_stride(x.sizes, x.strides) if dim in dims]
    whole: list[int] = []  # dimensions that go over to the outer loops as they are
    parts = 1
    while parts * x.sizes[order[0]] <= wanted:
        parts *= x.sizes[order[0]]
        whole.append(order.pop(0))
    cut = order[0]
    pieces = max(wanted // parts, 1)
    pieces = next((n for n in range(pieces, pieces // 2, -1) if surely_divides(n, x.sizes[cut])), pieces)
    length = -(-x.sizes[cut] // pieces)
    if isinstance(length, OpenSize):  # so that parts begin where a vectorised access can
        length = (x.sizes[cut] + (pieces * WHOLE - 1)) // (pieces * WHOLE) * WHOLE
    outer_dims = [dim for dim in range(len(x.sizes)) if dim not in dims and x.sizes[dim] != 1]
    outer = {dim: fresh_var("i", x.sizes[dim]) for dim in (*outer_dims, *whole)}
    inner = {dim: fresh_var("r", x.sizes[dim]) for dim in order[1:]}
    piece, rest = fresh_var("i", pieces), fresh_var("r", length)
    indices = [Index.of(outer.get(dim) or inner.get(dim) or 0) for dim in range(len(x.sizes))]
    indices[cut] = Index.of(piece) * length + rest
    value = cast(element(indices), accumulate)
    if not surely_equal(pieces * length, x.sizes[cut]):
        inside = a.lt(index_value(indices[cut]), x.sizes[cut])
        value = masked(inside, value, _identity(kind, accumulate))
    shape = [*(x.sizes[dim] for dim in outer_dims), *(x.sizes[dim] for dim in whole), pieces]
    partial = b.buffer(shape, contiguous_strides(shape), accumulate, x.device)
    loops = (*outer.values(), piece)
    b.compute(
        loops, (rest, *inner.values()), [Store(partial.name, strided(loops, partial.strides), reduce(kind, value, accumulate))], x.device, b.origins_of(x)
    )
    partials = Tensor.of(b.held(partial))
    n = len(outer_dims)
    total = reduction(
        b,
        kind,
        partials,
        range(n, len(shape)),
        dtype=dtype,
        accumulate=accumulate,
        after=finished,
        keepdim=False,
        strides=[stride for size, stride in zip(sizes, strides) if size != 1],
    )
    return Tensor(total.content, tuple(sizes), tuple(strides), 0)


def _identity(kind: str, dtype: torch.dtype) -> Expr:
    neutral: dict[str, Any] = {"sum": 0, "prod": 1, "max": a.lowest(dtype), "min": a.greatest(dtype), "any": False, "all": True, "xor": 0}
    return const(neutral[kind], dtype)


def normal_dims(dims: int | Sequence[int] | None, rank: int) -> list[int]:
    """The dimensions meant, from 0 up; all for None or none."""
    if dims is None:
        return list(range(rank))
    if isinstance(dims, int):
        dims = [dims]
    return [dim % rank for dim in dims] if dims and rank else list(range(rank))


def _can(b: Builder, out: Value, x: Tensor, kind: str, dtype: torch.dtype) -> bool:
    return out.dtype in FUSED_DTYPES and x.dtype in FUSED_DTYPES and supports(f"reduce_{kind}", dtype, x.device)


def reduced(
    b: Builder, out: Value, kind: str, x: Tensor, dims: Any, *, accumulate: torch.dtype, before: Step | None = None, after: Step | None = None
) -> Any:
    """A reduction with the sizes, strides and dtype of `out`, or NotImplemented."""
    if not _can(b, out, x, kind, accumulate):
        return NotImplemented
    return reduction(
        b, kind, x, dims, dtype=out.dtype, accumulate=accumulate, before=before, after=after, keepdim=out.dim() == len(x.sizes), strides=out.stride()
    )


def _sum_dtype(out: Value) -> torch.dtype:
    return compute_dtype(out.dtype) if out.dtype.is_floating_point else torch.int64


@lowers("sum")
def _sum(b: Builder, out: Value, x: Tensor, *rest: Any, dtype: Any = None, dim: Any = None) -> Any:
    kind = _sum_dtype(out)
    return reduced(b, out, "sum", x, normal_dims(rest[0] if rest else dim, len(x.sizes)), accumulate=kind, before=lambda value: cast(value, kind))


@lowers("nansum")
def _nansum(b: Builder, out: Value, x: Tensor, *rest: Any, dtype: Any = None, **_: Any) -> Any:
    kind = _sum_dtype(out)

    def known(value: Expr) -> Expr:
        value = cast(value, kind)
        return a.where(op("isnan", value), 0.0, value) if kind.is_floating_point else value

    return reduced(b, out, "sum", x, normal_dims(rest[0] if rest else None, len(x.sizes)), accumulate=kind, before=known)


@lowers("mean")
def _mean(b: Builder, out: Value, x: Tensor, *rest: Any, dtype: Any = None, dim: Any = None) -> Any:
    if not out.dtype.is_floating_point:
        return NotImplemented
    dims = normal_dims(rest[0] if rest else dim, len(x.sizes))
    kind, count = _sum_dtype(out), math.prod(x.sizes[dim] for dim in dims)
    return reduced(b, out, "sum", x, dims, accumulate=kind, before=lambda value: cast(value, kind), after=lambda value: a.div(value, count))


@lowers("prod")
def _prod(b: Builder, out: Value, x: Tensor, *rest: Any, dtype: Any = None, **kwargs: Any) -> Any:
    kind = _sum_dtype(out)
    return reduced(b, out, "prod", x, normal_dims(rest[0] if rest else None, len(x.sizes)), accumulate=kind, before=lambda value: cast(value, kind))


def _extreme(b: Builder, out: Any, kind: str, x: Tensor, rest: Sequence[Any]) -> Any:
    if rest and isinstance(rest[0], Tensor):  # max.other
        from framejit.backends.fuse.lowering.registry import LOWERINGS

        return LOWERINGS[f"{kind}imum"](b, out, x, rest[0])
    if x.dtype == torch.bool or not math.prod(x.sizes):
        return NotImplemented
    dims = normal_dims(rest[0] if rest else None, len(x.sizes))
    if isinstance(out, Value):
        return reduced(b, out, kind, x, dims, accumulate=compute_dtype(x.dtype))
    if not x.sizes or not _can(b, out[0], x, f"arg{kind}", compute_dtype(x.dtype)):
        return NotImplemented
    b.settle(x)
    values = reduced(b, out[0], kind, x, dims, accumulate=compute_dtype(x.dtype))
    return NotImplemented if values is NotImplemented else (values, reduced(b, out[1], f"arg{kind}", x, dims, accumulate=compute_dtype(x.dtype)))


@lowers("max")
def _max(b: Builder, out: Any, x: Tensor, *rest: Any) -> Any:
    return _extreme(b, out, "max", x, rest)


@lowers("min")
def _min(b: Builder, out: Any, x: Tensor, *rest: Any) -> Any:
    return _extreme(b, out, "min", x, rest)


@lowers("amax")
def _amax(b: Builder, out: Value, x: Tensor, dims: Any = (), keepdim: bool = False) -> Any:
    return _extreme(b, out, "max", x, [dims])


@lowers("amin")
def _amin(b: Builder, out: Value, x: Tensor, dims: Any = (), keepdim: bool = False) -> Any:
    return _extreme(b, out, "min", x, [dims])


@lowers("aminmax")
def _aminmax(b: Builder, out: Any, x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    b.settle(x)
    low = _extreme(b, out[0], "min", x, [dim])
    high = low if low is NotImplemented else _extreme(b, out[1], "max", x, [dim])
    return NotImplemented if high is NotImplemented else (low, high)


def _position(b: Builder, out: Value, kind: str, x: Tensor, dim: int | None) -> Any:
    if not math.prod(x.sizes) or x.dtype == torch.bool:
        return NotImplemented
    return reduced(b, out, kind, x, normal_dims(dim, len(x.sizes)), accumulate=compute_dtype(x.dtype))


@lowers("argmax")
def _argmax(b: Builder, out: Value, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    return _position(b, out, "argmax", x, dim)


@lowers("argmin")
def _argmin(b: Builder, out: Value, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    return _position(b, out, "argmin", x, dim)


@lowers("any")
def _any(b: Builder, out: Value, x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return reduced(b, out, "any", x, normal_dims(dim, len(x.sizes)), accumulate=torch.bool, before=a.truth)


@lowers("all")
def _all(b: Builder, out: Value, x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return reduced(b, out, "all", x, normal_dims(dim, len(x.sizes)), accumulate=torch.bool, before=a.truth)


@lowers("count_nonzero")
def _count_nonzero(b: Builder, out: Value, x: Tensor, dim: Any = None) -> Any:
    return reduced(b, out, "sum", x, normal_dims(dim, len(x.sizes)), accumulate=torch.int64, before=lambda value: cast(a.truth(value), torch.int64))


@lowers("logsumexp")
def _logsumexp(b: Builder, out: Value, x: Tensor, dims: Any, keepdim: bool = False) -> Any:
    if not x.dtype.is_floating_point or not _can(b, out, x, "max", compute_dtype(x.dtype)):
        return NotImplemented
    b.settle(x)
    dims = normal_dims(dims, len(x.sizes))
    kind = compute_dtype(x.dtype)
    # the greatest is taken away first, but not an infinite one, from which only nan would come
    shift = reduction(b, "max", x, dims, dtype=kind, after=lambda value: a.where(op("isinf", value), 0.0, value))
    total = reduction(b, "sum", b.map(lambda value, most: op("exp", a.sub(value, most)), x, shift, dtype=kind, ops=2), dims, dtype=kind)
    result = b.map(lambda value, most: a.add(op("log", value), most), total, shift, dtype=out.dtype, ops=2)
    return without_dims(b, result, dims) if out.dim() != len(x.sizes) else result


def without_dims(b: Builder, x: Tensor, dims: Sequence[int]) -> Tensor:
    """The same without dimensions of one element."""
    kept = [dim for dim in range(len(x.sizes)) if dim not in dims]
    return Tensor(x.content, tuple(x.sizes[dim] for dim in kept), tuple(x.strides[dim] for dim in kept), x.offset)


@lowers("linalg_vector_norm")
def _vector_norm(b: Builder, out: Value, x: Tensor, ord: float = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    dims = normal_dims(dims, len(x.sizes))
    if not out.dtype.is_floating_point or not math.prod(x.sizes) or out.dtype == torch.float16:
        return NotImplemented
    kind = compute_dtype(out.dtype)

    def size_of(value: Expr) -> Expr:
        return op("abs", cast(value, kind))

    kinds: dict[float, tuple[str, Step, Step | None]] = {
        2: ("sum", lambda value: a.square(cast(value, kind)), lambda value: op("sqrt", value)),
        1: ("sum", size_of, None),
        math.inf: ("max", size_of, None),
        -math.inf: ("min", size_of, None),
        0: ("sum", lambda value: cast(a.ne(value, 0), kind), None),
    }
    if ord not in kinds:
        return NotImplemented
    name, before, after = kinds[ord]
    return reduced(b, out, name, x, dims, accumulate=kind, before=before, after=after)


@lowers("norm.ScalarOpt_dim")
def _norm(b: Builder, out: Value, x: Tensor, p: float | None, dims: Any, keepdim: bool = False) -> Any:
    return _vector_norm(b, out, x, 2 if p is None else p, dims, keepdim)


# ---- variances ----


def moments(b: Builder, x: Tensor, dims: Sequence[int], correction: float, exact: bool = True, root: bool = False) -> tuple[Tensor, Tensor]:
    """Mean and variance over `dims`, which stay as dimensions of one element, in the dtype that values are computed in.

    Of values far from zero a sum is only roughly right, and so is a mean made of it. The distances from such a rough mean are exact or nearly so; their
    own mean tells what the rough one lacks, and what their squares have too much. It costs an addition an element, which is saved where `exact` is False:
    what is normalised by them has the rounding error of the mean anyway, and eager's is no better. With `root`, the root of the variance is wanted: squares
    are then summed in double precision on a CPU, as eager's, in which those of huge and tiny distances have room.
    """
    kind = compute_dtype(x.dtype)
    count = math.prod(x.sizes[dim] for dim in dims)
    b.settle(x)
    rough = reduction(b, "sum", x, dims, dtype=kind, after=lambda value: a.div(value, count))
    distance = b.map(a.sub, x, rough, dtype=kind)
    free = _corrected(count, correction)
    if not exact:
        return rough, reduction(b, "sum", distance, dims, dtype=kind, before=a.square, after=lambda value: a.div(value, free))
    # accumulators of float32 end in one of float64 on a CPU, which is kept: of two numbers that are taken from one another, each rounding shows
    wide = torch.float64 if target_of(x.device).sums_in_double else kind
    lacking = reduction(b, "sum", distance, dims, dtype=wide, accumulate=kind, after=lambda value: a.div(cast(value, wide), count))
    summed = wide if root else kind
    squares = reduction(b, "sum", distance, dims, dtype=wide, accumulate=summed, before=lambda value: a.square(cast(value, summed)))

    def variance(total: Expr, lack: Expr) -> Expr:
        surplus = a.mul(a.mul(lack, count), lack)
        rest = a.where(a.lt(surplus, total), a.sub(total, surplus), a.where(a.lt(total, math.inf), a.mul(lack, 0.0), total))
        return a.div(rest, free)

    mean = b.map(lambda value, lack: cast(a.add(cast(value, wide), lack), kind), rough, lacking, dtype=kind)
    return mean, b.map(lambda *sums: cast(variance(*sums), summed), squares, lacking, dtype=summed, ops=5)


def _corrected(count: int, correction: float) -> float:
    """How many deviations are free."""
    return max(0, count - int(correction)) if float(correction).is_integer() else max(0.0, int(count) - correction)


def _variance(b: Builder, out: Any, x: Tensor, rest: Sequence[Any], kwargs: dict[str, Any], root: bool, both: bool) -> Any:
    result = out[0] if both else out
    if not x.dtype.is_floating_point or not _can(b, result, x, "sum", compute_dtype(x.dtype)):
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
