"""Reductions: each becomes a loop nest at once; what comes after or before it is fused by the scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import COMPUTE, Expr, cast, const, index_value, jumps, masked, op, reduce
from framejit.backends.fuse.loop_ir.index import Index, fresh_var, strided
from framejit.backends.fuse.loop_ir.nodes import Store
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.fusable import supports
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, by_stride, compute_dtype, contiguous_strides
from framejit.backends.fuse.lowering.lowerings import FUSED_DTYPES, lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize, as_sizes, hint, surely_divides, surely_equal
from framejit.backends.fuse.targets.lookup import target_of
from framejit.late_dataclass import dataclass

Step = Callable[[Expr], Expr]

WHOLE: Final = 16
"""Parts of a row whose length is not known have a multiple of so many elements: 16 bytes of the smallest dtype."""


@dataclass(frozen=True)
class Reduction:
    """A reduction as lowerings describe it, in the dtypes that values are computed in: `before` is done to each
    element, then comes the reduction, `after` is done to its result."""

    kind: str
    """One of REDUCTIONS."""
    dims: Sequence[int]
    """What it is over."""
    dtype: torch.dtype
    """The result's, in memory."""
    accumulate: torch.dtype | None = None
    """The accumulator's; None for that which the elements are computed in."""
    before: Step | None = None
    after: Step | None = None
    keepdim: bool = True
    strides: Sequence[int] | None = None
    """The result's; None if they are to be contiguous."""

    @property
    def is_positional(self) -> bool:
        """Whether the result is a position."""
        return self.kind in ("argmax", "argmin")

    def accumulator(self, x: Tensor) -> torch.dtype:
        return self.accumulate or compute_dtype(x.dtype)

    def element(self, x: Tensor, indices: Sequence[Index]) -> Expr:
        """The expression that goes into the reduction for the element of `x` at these indices, in the dtype it
        accumulates in."""
        value = x.at(indices)
        made = self.before(value) if self.before else value
        if x.dtype in COMPUTE and (self.is_positional or jumps(made, (value,))):
            value = x.rounded_at(indices)
            made = self.before(value) if self.before else value
        return made

    def finished(self, value: Expr) -> Expr:
        """The expression that is stored, in the result's dtype, for a reduction's value."""
        return cast(self.after(value) if self.after else value, self.dtype)

    def result(self, x: Tensor) -> tuple[list[int], Sequence[int]]:
        """The result's sizes and strides."""
        sizes = [
            1 if dim in self.dims else size for dim, size in enumerate(x.sizes) if self.keepdim or dim not in self.dims
        ]
        return sizes, contiguous_strides(sizes) if self.strides is None else as_sizes(self.strides)


def reduction(b: Builder, x: Tensor, what: Reduction) -> Tensor:
    """A tensor with a reduction of `x`, in memory."""
    b.finish_products(x)
    b.prepare(x)
    sizes, strides = what.result(x)
    if not math.prod(x.sizes[dim] for dim in what.dims):
        neutral = _identity(what.kind, what.accumulator(x))
        empty = b.lazy(
            sizes, strides, what.dtype, x.device, lambda _: cast(what.finished(neutral), compute_dtype(what.dtype)),
            (), 1,
        )
        b.realise(empty)
        return Tensor.of(empty)
    parts = 1 if what.is_positional else _parts(x, what)
    return _in_parts(b, x, what, parts) if parts > 1 else at_once(b, x, what)


def _parts(x: Tensor, what: Reduction) -> int:
    """Into how many parts each row had better be split."""
    rows = math.prod(size for dim, size in enumerate(x.sizes) if dim not in what.dims)
    length = math.prod(x.sizes[dim] for dim in what.dims)
    return target_of(x.device).parts(rows, length, lambda: _crosses(x, what))


def _crosses(x: Tensor, what: Reduction) -> bool:
    """Whether most of what is read lies so that neighbours in memory belong to different rows."""
    variables = [fresh_var("i", size) for size in x.sizes]
    within = {variables[dim] for dim in what.dims}
    moved = {True: 0, False: 0}
    for load in what.element(x, [Index.of(var) for var in variables]).loads():
        index: Index = load.attr[1]
        fast = next((var for var in variables if surely_equal(abs(index.stride(var)), 1)), None)
        if fast is not None:
            moved[fast not in within] += load.dtype.itemsize * math.prod(hint(var.size) for var in index.vars())
    return moved[True] > moved[False]


def at_once(b: Builder, x: Tensor, what: Reduction) -> Tensor:
    """Each row by one turn of the parallel loops."""
    dims, accumulate = what.dims, what.accumulator(x)
    sizes, strides = what.result(x)
    rank = len(x.sizes)
    # a result's own strides order the parallel loops; the reductions follow memory where the order is free
    places = {
        dim: stride
        for dim, stride in zip([dim for dim in range(rank) if what.keepdim or dim not in dims], strides)
        if dim not in dims
    }
    kept = [1 if dim in dims else size for dim, size in enumerate(x.sizes)]
    parallel_dims = [dim for dim in by_stride(kept, [places.get(dim, 0) for dim in range(rank)]) if dim not in dims]
    reduction_dims = [
        dim
        for dim in (sorted(dims) if what.is_positional else by_stride(x.sizes, x.strides))
        if dim in dims and x.sizes[dim] != 1
    ]
    variables = {dim: fresh_var("r" if dim in dims else "i", x.sizes[dim]) for dim in (*parallel_dims, *reduction_dims)}
    indices = [Index.of(variables[dim]) if dim in variables else Index({}) for dim in range(rank)]
    value = what.element(x, indices)
    value = value if what.is_positional else cast(value, accumulate)
    buffer = b.buffer(sizes, strides, what.dtype, x.device)
    place = strided([Index({}) if dim in dims else indices[dim] for dim in places], places.values())
    reduction_vars = tuple(variables[dim] for dim in reduction_dims)
    if reduction_vars:
        value = reduce(what.kind, value, None if what.is_positional else accumulate)
    elif what.is_positional:
        value = const(0, torch.int64)
    b.compute(
        tuple(variables[dim] for dim in parallel_dims), reduction_vars,
        [Store(buffer.name, place, what.finished(value))],
        x.device, b.origins_of(x),
    )
    return Tensor.of(b.held(buffer))


def _in_parts(b: Builder, x: Tensor, what: Reduction, wanted: int) -> Tensor:
    """Few long rows: parts of each row are reduced on their own first, then the parts."""
    dims, accumulate = what.dims, what.accumulator(x)
    whole, order = _outermost(x, dims, wanted)
    cut = order[0]
    pieces, length = _cut(x.sizes[cut], max(wanted // math.prod(x.sizes[dim] for dim in whole), 1))
    parallel_dims = [dim for dim in range(len(x.sizes)) if dim not in dims and x.sizes[dim] != 1]
    parallel_vars = {dim: fresh_var("i", x.sizes[dim]) for dim in (*parallel_dims, *whole)}
    reduction_vars = {dim: fresh_var("r", x.sizes[dim]) for dim in order[1:]}
    piece, rest = fresh_var("i", pieces), fresh_var("r", length)
    indices = [Index.of(parallel_vars.get(dim) or reduction_vars.get(dim) or 0) for dim in range(len(x.sizes))]
    indices[cut] = Index.of(piece) * length + rest
    value = cast(what.element(x, indices), accumulate)
    if not surely_equal(pieces * length, x.sizes[cut]):
        inside = a.lt(index_value(indices[cut]), x.sizes[cut])
        value = masked(inside, value, _identity(what.kind, accumulate))
    shape = [*(x.sizes[dim] for dim in parallel_dims), *(x.sizes[dim] for dim in whole), pieces]
    partial = b.buffer(shape, contiguous_strides(shape), accumulate, x.device)
    loops = (*parallel_vars.values(), piece)
    store = Store(partial.name, strided(loops, partial.strides), reduce(what.kind, value, accumulate))
    b.compute(loops, (rest, *reduction_vars.values()), [store], x.device, b.origins_of(x))
    sizes, strides = what.result(x)
    own = [stride for size, stride in zip(sizes, strides) if size != 1]
    of_parts = replace(
        what, dims=range(len(parallel_dims), len(shape)), accumulate=accumulate, before=None, after=what.finished,
        keepdim=False, strides=own,
    )
    total = reduction(b, Tensor.of(b.held(partial)), of_parts)
    return Tensor(total.content, tuple(sizes), tuple(strides), 0)


def _outermost(x: Tensor, dims: Sequence[int], wanted: int) -> tuple[list[int], list[int]]:
    """As many of the reduced dimensions, those with the longest steps first, as do not make more parts than wanted; and
    the rest, one at least."""
    order = [dim for dim in by_stride(x.sizes, x.strides) if dim in dims]
    whole: list[int] = []
    parts = 1
    while len(order) > 1 and parts * x.sizes[order[0]] <= wanted:
        parts *= x.sizes[order[0]]
        whole.append(order.pop(0))
    return whole, order


def _cut(size: Any, wanted: int) -> tuple[int, Any]:
    """Into how many pieces a dimension is cut, about as many as wanted, and how long they are. The last may be
    shorter."""
    pieces = next((n for n in range(wanted, wanted // 2, -1) if surely_divides(n, size)), wanted)
    length = -(-size // pieces)
    if isinstance(length, SymbolicSize):  # so that parts begin where a vectorised access can
        length = (size + (pieces * WHOLE - 1)) // (pieces * WHOLE) * WHOLE
    return pieces, length


def split_in_parts(b: Builder, x: Tensor, dims: Sequence[int]) -> tuple[Tensor, list[int], list[int], int] | None:
    """`x` with a dimension cut in two, where it is reduced in parts and neighbours in memory belong to different rows;
    the dimensions of a part, and those that count parts; the dimension that is new. None where it isn't, or the parts
    would not be equal."""
    if target_of(x.device).sums_in_double:
        return None
    what = Reduction("sum", dims, dtype=compute_dtype(x.dtype))
    wanted = _parts(x, what)
    if wanted == 1 or not _crosses(x, what):
        return None
    whole, order = _outermost(x, dims, wanted)
    cut, least = order[0], max(1, wanted // math.prod(x.sizes[dim] for dim in whole))
    near = (*range(least, 4 * least), *range(least, max(1, least // 4), -1))
    pieces = next((n for n in near if surely_divides(n, x.sizes[cut])), None)
    if pieces is None:
        return None
    length = x.sizes[cut] // pieces

    def reader(indices: Sequence[Index]) -> Expr:
        return x.at([*indices[:cut], indices[cut] * length + indices[cut + 1], *indices[cut + 2 :]])

    sizes = [*x.sizes[:cut], pieces, length, *x.sizes[cut + 1 :]]
    parted = b.indexed(reader, x, sizes=sizes, dtype=x.dtype, device=x.device)
    moved = [dim if dim <= cut else dim + 1 for dim in (*whole, *order)]
    return parted, [cut + 1, *moved[len(whole) + 1 :]], moved[: len(whole) + 1], cut + 1


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


def can_reduce(b: Builder, out: Value, x: Tensor, kind: str, dtype: torch.dtype) -> bool:
    return out.dtype in FUSED_DTYPES and x.dtype in FUSED_DTYPES and supports(f"reduce_{kind}", dtype, x.device)


def reduced(
    b: Builder, out: Value, kind: str, x: Tensor, dims: Any, *, accumulate: torch.dtype, before: Step | None = None,
    after: Step | None = None
) -> Any:
    """A reduction with the sizes, strides and dtype of `out`, or NotImplemented."""
    if not can_reduce(b, out, x, kind, accumulate):
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
    if not x.sizes or not can_reduce(b, out[0], x, f"arg{kind}", compute_dtype(x.dtype)):
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
    if not x.dtype.is_floating_point or not can_reduce(b, out, x, "max", compute_dtype(x.dtype)):
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
