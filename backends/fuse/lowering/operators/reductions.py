"""Reductions: each becomes a loop nest at once; what comes after or before it is fused by the scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, cast, const, index_value, masked, op, reduce
from framejit.backends.fuse.loop_ir.index import Index, fresh_var, strided
from framejit.backends.fuse.loop_ir.nodes import Store
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, by_stride, compute_dtype, contiguous_strides
from framejit.backends.fuse.lowering.lowerings import FUSED_DTYPES, lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.support import supports
from framejit.backends.fuse.sizes.open_size import OpenSize, as_sizes, surely_divides, surely_equal
from framejit.backends.fuse.targets.lookup import target_of

Step = Callable[[Expr], Expr]

LONG_ROW: Final = 1 << 16
WHOLE: Final = 16
"""Of which parts of a row whose length is not known have a multiple of elements: 16 bytes of the smallest dtype."""


@dataclass(frozen=True)
class Reduction:
    """What is done to the elements of a tensor, in the dtypes that values are computed in: `before` to each, the
    reduction, `after` to its result."""

    kind: str
    """One of REDUCTIONS."""
    dims: Sequence[int]
    """What it is over."""
    dtype: torch.dtype
    """Of the result, in memory."""
    accumulate: torch.dtype | None = None
    """The accumulator's; None for that which the elements are computed in."""
    before: Step | None = None
    after: Step | None = None
    keepdim: bool = True
    strides: Sequence[int] | None = None
    """Of the result; None if they are to be contiguous."""

    @property
    def is_positional(self) -> bool:
        """Whether the result is a position."""
        return self.kind in ("argmax", "argmin")

    def accumulator(self, x: Tensor) -> torch.dtype:
        return self.accumulate or compute_dtype(x.dtype)

    def element(self, x: Tensor, indices: Sequence[Index]) -> Expr:
        """What goes into the reduction at a place."""
        value = x.at(indices)
        return self.before(value) if self.before else value

    def finished(self, value: Expr) -> Expr:
        """What is stored of its result."""
        return cast(self.after(value) if self.after else value, self.dtype)

    def result(self, x: Tensor) -> tuple[list[int], Sequence[int]]:
        """The result's sizes and strides."""
        sizes = [
            1 if dim in self.dims else size for dim, size in enumerate(x.sizes) if self.keepdim or dim not in self.dims
        ]
        return sizes, contiguous_strides(sizes) if self.strides is None else as_sizes(self.strides)


def reduction(b: Builder, x: Tensor, what: Reduction) -> Tensor:
    """A tensor with a reduction of `x`, in memory."""
    b.prepare(x)
    sizes, strides = what.result(x)
    kept = [1 if dim in what.dims else size for dim, size in enumerate(x.sizes)]
    outer_count, inner_count = math.prod(kept), math.prod(x.sizes[dim] for dim in what.dims)
    if not inner_count:
        neutral = _identity(what.kind, what.accumulator(x))
        empty = b.lazy(
            sizes, strides, what.dtype, x.device, lambda _: cast(what.finished(neutral), compute_dtype(what.dtype)),
            (), 1,
        )
        b.realise(empty)
        return Tensor.of(empty)
    if not what.is_positional and inner_count > LONG_ROW and outer_count < target_of(x.device).few_rows:
        return _in_parts(b, x, what)
    return _at_once(b, x, what)


def _at_once(b: Builder, x: Tensor, what: Reduction) -> Tensor:
    """Each row by one turn of the outer loops."""
    dims, accumulate = what.dims, what.accumulator(x)
    sizes, strides = what.result(x)
    rank = len(x.sizes)
    # a result's own strides order the outer loops; the inner ones follow memory where the order is free
    places = {
        dim: stride
        for dim, stride in zip([dim for dim in range(rank) if what.keepdim or dim not in dims], strides)
        if dim not in dims
    }
    kept = [1 if dim in dims else size for dim, size in enumerate(x.sizes)]
    outer_dims = [dim for dim in by_stride(kept, [places.get(dim, 0) for dim in range(rank)]) if dim not in dims]
    inner_dims = [
        dim
        for dim in (sorted(dims) if what.is_positional else by_stride(x.sizes, x.strides))
        if dim in dims and x.sizes[dim] != 1
    ]
    variables = {dim: fresh_var("r" if dim in dims else "i", x.sizes[dim]) for dim in (*outer_dims, *inner_dims)}
    indices = [Index.of(variables[dim]) if dim in variables else Index({}) for dim in range(rank)]
    value = what.element(x, indices)
    value = value if what.is_positional else cast(value, accumulate)
    buffer = b.buffer(sizes, strides, what.dtype, x.device)
    place = strided([Index({}) if dim in dims else indices[dim] for dim in places], places.values())
    inner = tuple(variables[dim] for dim in inner_dims)
    if inner:
        value = reduce(what.kind, value, None if what.is_positional else accumulate)
    elif what.is_positional:
        value = const(0, torch.int64)
    b.compute(
        tuple(variables[dim] for dim in outer_dims), inner, [Store(buffer.name, place, what.finished(value))],
        x.device, b.origins_of(x),
    )
    return Tensor.of(b.held(buffer))


def _in_parts(b: Builder, x: Tensor, what: Reduction) -> Tensor:
    """Few long rows: parts of each row are reduced on their own first, then the parts."""
    dims, accumulate = what.dims, what.accumulator(x)
    wanted = target_of(x.device).row_parts
    order = [dim for dim in by_stride(x.sizes, x.strides) if dim in dims]
    whole: list[int] = []  # dimensions that go over to the outer loops as they are
    parts = 1
    while parts * x.sizes[order[0]] <= wanted:
        parts *= x.sizes[order[0]]
        whole.append(order.pop(0))
    cut = order[0]
    pieces, length = _cut(x.sizes[cut], max(wanted // parts, 1))
    outer_dims = [dim for dim in range(len(x.sizes)) if dim not in dims and x.sizes[dim] != 1]
    outer = {dim: fresh_var("i", x.sizes[dim]) for dim in (*outer_dims, *whole)}
    inner = {dim: fresh_var("r", x.sizes[dim]) for dim in order[1:]}
    piece, rest = fresh_var("i", pieces), fresh_var("r", length)
    indices = [Index.of(outer.get(dim) or inner.get(dim) or 0) for dim in range(len(x.sizes))]
    indices[cut] = Index.of(piece) * length + rest
    value = cast(what.element(x, indices), accumulate)
    if not surely_equal(pieces * length, x.sizes[cut]):
        inside = a.lt(index_value(indices[cut]), x.sizes[cut])
        value = masked(inside, value, _identity(what.kind, accumulate))
    shape = [*(x.sizes[dim] for dim in outer_dims), *(x.sizes[dim] for dim in whole), pieces]
    partial = b.buffer(shape, contiguous_strides(shape), accumulate, x.device)
    loops = (*outer.values(), piece)
    store = Store(partial.name, strided(loops, partial.strides), reduce(what.kind, value, accumulate))
    b.compute(loops, (rest, *inner.values()), [store], x.device, b.origins_of(x))
    sizes, strides = what.result(x)
    own = [stride for size, stride in zip(sizes, strides) if size != 1]
    of_parts = replace(
        what, dims=range(len(outer_dims), len(shape)), accumulate=accumulate, before=None, after=what.finished,
        keepdim=False, strides=own,
    )
    total = reduction(b, Tensor.of(b.held(partial)), of_parts)
    return Tensor(total.content, tuple(sizes), tuple(strides), 0)


def _cut(size: Any, wanted: int) -> tuple[int, Any]:
    """Into how many pieces a dimension is cut, about as many as wanted, and how long they are. The last may be
    shorter."""
    pieces = next((n for n in range(wanted, wanted // 2, -1) if surely_divides(n, size)), wanted)
    length = -(-size // pieces)
    if isinstance(length, OpenSize):  # so that parts begin where a vectorised access can
        length = (size + (pieces * WHOLE - 1)) // (pieces * WHOLE) * WHOLE
    return pieces, length


def _identity(kind: str, dtype: torch.dtype) -> Expr:
    neutral: dict[str, Any] = {
        "sum": 0, "prod": 1, "max": a.lowest(dtype), "min": a.greatest(dtype), "any": False, "all": True, "xor": 0,
    }
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
    b: Builder, out: Value, kind: str, x: Tensor, dims: Any, *, accumulate: torch.dtype, before: Step | None = None,
    after: Step | None = None
) -> Any:
    """A reduction with the sizes, strides and dtype of `out`, or NotImplemented."""
    if not _can(b, out, x, kind, accumulate):
        return NotImplemented
    keepdim = out.dim() == len(x.sizes)
    return reduction(b, x, Reduction(kind, dims, out.dtype, accumulate, before, after, keepdim, out.stride()))


def _sum_dtype(out: Value) -> torch.dtype:
    return compute_dtype(out.dtype) if out.dtype.is_floating_point else torch.int64


@lowers("sum")
def _sum(b: Builder, out: Value, x: Tensor, *rest: Any, dtype: Any = None, dim: Any = None) -> Any:
    kind = _sum_dtype(out)
    return reduced(
        b, out, "sum", x, normal_dims(rest[0] if rest else dim, len(x.sizes)), accumulate=kind,
        before=lambda value: cast(value, kind),
    )


@lowers("nansum")
def _nansum(b: Builder, out: Value, x: Tensor, *rest: Any, dtype: Any = None, **_: Any) -> Any:
    kind = _sum_dtype(out)

    def known(value: Expr) -> Expr:
        value = cast(value, kind)
        return a.where(op("isnan", value), 0.0, value) if kind.is_floating_point else value

    return reduced(
        b, out, "sum", x, normal_dims(rest[0] if rest else None, len(x.sizes)), accumulate=kind, before=known
    )


@lowers("mean")
def _mean(b: Builder, out: Value, x: Tensor, *rest: Any, dtype: Any = None, dim: Any = None) -> Any:
    if not out.dtype.is_floating_point:
        return NotImplemented
    dims = normal_dims(rest[0] if rest else dim, len(x.sizes))
    kind, count = _sum_dtype(out), math.prod(x.sizes[dim] for dim in dims)
    return reduced(
        b, out, "sum", x, dims, accumulate=kind, before=lambda value: cast(value, kind),
        after=lambda value: a.div(value, count),
    )


@lowers("prod")
def _prod(b: Builder, out: Value, x: Tensor, *rest: Any, dtype: Any = None, **kwargs: Any) -> Any:
    kind = _sum_dtype(out)
    return reduced(
        b, out, "prod", x, normal_dims(rest[0] if rest else None, len(x.sizes)), accumulate=kind,
        before=lambda value: cast(value, kind),
    )


def _extreme(b: Builder, out: Any, kind: str, x: Tensor, rest: Sequence[Any]) -> Any:
    if rest and isinstance(rest[0], Tensor):  # max.other
        from framejit.backends.fuse.lowering.lowerings import LOWERINGS

        return LOWERINGS[f"{kind}imum"](b, out, x, rest[0])
    if x.dtype == torch.bool or not math.prod(x.sizes):
        return NotImplemented
    dims = normal_dims(rest[0] if rest else None, len(x.sizes))
    if isinstance(out, Value):
        return reduced(b, out, kind, x, dims, accumulate=compute_dtype(x.dtype))
    if not x.sizes or not _can(b, out[0], x, f"arg{kind}", compute_dtype(x.dtype)):
        return NotImplemented
    b.computed_once(x)
    values = reduced(b, out[0], kind, x, dims, accumulate=compute_dtype(x.dtype))
    return (
        NotImplemented
        if values is NotImplemented
        else (values, reduced(b, out[1], f"arg{kind}", x, dims, accumulate=compute_dtype(x.dtype)))
    )


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
    b.computed_once(x)
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
    return reduced(
        b, out, "sum", x, normal_dims(dim, len(x.sizes)), accumulate=torch.int64,
        before=lambda value: cast(a.truth(value), torch.int64),
    )


@lowers("logsumexp")
def _logsumexp(b: Builder, out: Value, x: Tensor, dims: Any, keepdim: bool = False) -> Any:
    if not x.dtype.is_floating_point or not _can(b, out, x, "max", compute_dtype(x.dtype)):
        return NotImplemented
    b.computed_once(x)
    dims = normal_dims(dims, len(x.sizes))
    kind = compute_dtype(x.dtype)
    # the greatest is taken away first, but not an infinite one, from which only nan would come
    shift = reduction(
        b, x, Reduction("max", dims, dtype=kind, after=lambda value: a.where(op("isinf", value), 0.0, value))
    )
    total = reduction(
        b,
        b.map(lambda value, most: op("exp", a.sub(value, most)), x, shift, dtype=kind, ops=2),
        Reduction("sum", dims, dtype=kind),
    )
    result = b.map(lambda value, most: a.add(op("log", value), most), total, shift, dtype=out.dtype, ops=2)
    return without_dims(b, result, dims) if out.dim() != len(x.sizes) else result


def without_dims(b: Builder, x: Tensor, dims: Sequence[int]) -> Tensor:
    """The tensor without some of its dimensions of one element."""
    kept = [dim for dim in range(len(x.sizes)) if dim not in dims]
    return Tensor(x.content, tuple(x.sizes[dim] for dim in kept), tuple(x.strides[dim] for dim in kept), x.offset)


@lowers("linalg_vector_norm")
def _vector_norm(
    b: Builder, out: Value, x: Tensor, ord: float = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
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


def moments(
    b: Builder, x: Tensor, dims: Sequence[int], correction: float, exact: bool = True, root: bool = False
) -> tuple[Tensor, Tensor]:
    """Mean and variance over `dims`, which stay as dimensions of one element, in the dtype that values are computed in.

    Of values far from zero a sum is only roughly right, and so is a mean made of it. The distances from such a rough
    mean are exact or nearly so; their own mean tells what the rough one lacks, and what their squares have too much. It
    costs an addition an element, which is saved where `exact` is False: what is normalised by them has the rounding
    error of the mean anyway, and eager's is no better. With `root`, the root of the variance is wanted: squares are
    then summed in double precision on a CPU, as eager's, in which those of huge and tiny distances have room.
    """
    kind = compute_dtype(x.dtype)
    count = math.prod(x.sizes[dim] for dim in dims)
    b.computed_once(x)
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

    def variance(total: Expr, lack: Expr) -> Expr:
        surplus = a.mul(a.mul(lack, count), lack)
        rest = a.where(
            a.lt(surplus, total), a.sub(total, surplus), a.where(a.lt(total, math.inf), a.mul(lack, 0.0), total)
        )
        return a.div(rest, free)

    mean = b.map(lambda value, lack: cast(a.add(cast(value, wide), lack), kind), rough, lacking, dtype=kind)
    return mean, b.map(lambda *sums: cast(variance(*sums), summed), squares, lacking, dtype=summed, ops=5)


def _corrected(count: int, correction: float) -> float:
    """How many deviations are free."""
    return max(0, count - int(correction)) if float(correction).is_integer() else max(0.0, int(count) - correction)


def _variance(
    b: Builder, out: Any, x: Tensor, rest: Sequence[Any], kwargs: dict[str, Any], root: bool, both: bool
) -> Any:
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
