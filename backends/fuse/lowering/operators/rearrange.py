"""Operations that put elements elsewhere and compute nothing: concatenation, flips, rolls, repetition, padding,
triangles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, cast, const, index_value, masked, op, rounded
from framejit.backends.fuse.loop_ir.index import Index, Indirect
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import Cuts, Tensor, compute_dtype
from framejit.backends.fuse.lowering.lowerings import FUSED_DTYPES, lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.sizes.symbolic_size import as_size, roughly_less
from framejit.backends.fuse.targets.lookup import target_of

MOST_PIECES: Final = 8
SHORTEST_RUN: Final = 16
"""Neighbouring elements of a piece, under which it is not stored by loops of its own: a cache line of float32."""


def _moved(b: Builder, out: Value, x: Tensor, source: Callable[[Sequence[Index]], Sequence[Index]]) -> Any:
    """The elements of x that `source` tells for each place of the result."""
    if x.dtype not in FUSED_DTYPES or out.dtype != x.dtype:
        return NotImplemented
    return b.indexed(lambda indices: x.at(source(indices)), x, sizes=tuple(out.shape), dtype=x.dtype, device=x.device)


@lowers("flip")
def _flip(b: Builder, out: Value, x: Tensor, dims: Sequence[int]) -> Any:
    turned = {dim % len(x.sizes) for dim in dims} if x.sizes else set()
    return _moved(
        b,
        out,
        x,
        lambda indices: [
            x.sizes[dim] - 1 + index * -1 if dim in turned else index for dim, index in enumerate(indices)
        ],
    )


@lowers("roll")
def _roll(b: Builder, out: Value, x: Tensor, shifts: Any, dims: Any = ()) -> Any:
    shifts, dims = ([value] if isinstance(value, int) else list(value) for value in (shifts, dims))
    if not dims or not out.numel():
        return NotImplemented
    moves = [0] * len(x.sizes)
    for shift, dim in zip(shifts, dims):
        moves[dim % len(x.sizes)] += shift
    return _moved(
        b,
        out,
        x,
        lambda indices: [
            (index + (-move) % size) % size if move % size else index
            for index, move, size in zip(indices, moves, x.sizes)
        ],
    )


@lowers("repeat")
def _repeat(b: Builder, out: Value, x: Tensor, repeats: Sequence[int]) -> Any:
    if not out.numel():
        return NotImplemented
    return _moved(
        b, out, x,
        lambda indices: [index % size for index, size in zip(indices[len(repeats) - len(x.sizes) :], x.sizes)],
    )


@lowers("cat", "concat", "concatenate")
def _cat(b: Builder, out: Value, tensors: Sequence[Tensor], dim: int = 0) -> Any:
    pieces = [tensor for tensor in tensors if tensor.sizes != (0,)]
    if (
        not pieces
        or len(pieces) > MOST_PIECES
        or out.dtype not in FUSED_DTYPES
        or not all(p.dtype in FUSED_DTYPES and p.device == out.device for p in pieces)
    ):
        return NotImplemented
    dim %= out.dim()
    return _joined(
        b, out, [(piece, piece.sizes[dim]) for piece in pieces], dim,
        lambda indices, start: [*indices[:dim], indices[dim] - start, *indices[dim + 1 :]]
    )


@lowers("stack")
def _stack(b: Builder, out: Value, tensors: Sequence[Tensor], dim: int = 0) -> Any:
    if (
        len(tensors) > MOST_PIECES
        or out.dtype not in FUSED_DTYPES
        or not all(p.dtype in FUSED_DTYPES and p.device == out.device for p in tensors)
    ):
        return NotImplemented
    dim %= out.dim()
    return _joined(
        b, out, [(piece, 1) for piece in tensors], dim, lambda indices, start: [*indices[:dim], *indices[dim + 1 :]]
    )


def _joined(
    b: Builder, out: Value, pieces: Sequence[tuple[Tensor, int]], dim: int,
    source: Callable[[Sequence[Index], int], list[Index]],
) -> Any:
    """Pieces one after the other along a dimension, each with its length. `source`: a piece's indices, given where the
    piece starts.

    Where it is needed in memory, each piece is stored by loops of its own; what reads it element by element chooses the
    piece by the place.
    """
    kind = compute_dtype(out.dtype)
    pieces = [(piece, length) for piece, length in pieces if length]

    def element(indices: Sequence[Index]) -> Expr:
        place, (low, high) = index_value(indices[dim]), indices[dim].bounds
        end = sum(length for _, length in pieces)
        value: Expr | None = None
        for piece, length in reversed(pieces):
            start = end - length
            if start <= high and low < end:
                own = piece.at(source(indices, start))
                own = cast(own, kind) if piece.dtype == out.dtype else rounded(own, out.dtype)
                conditions = [a.ge(place, start)] if low < start else []
                conditions += [a.lt(place, end)] if value is not None else []
                # the last piece, too, may be read at its own places only
                value = (
                    masked(a.both(*conditions) if len(conditions) > 1 else conditions[0], own, value or const(0, kind))
                    if conditions
                    else own
                )
            end = start
        return value or const(0, kind)

    made = b.indexed(
        element, *(piece for piece, _ in pieces), sizes=tuple(out.shape), dtype=out.dtype, device=out.device,
        ops=2 * len(pieces),
    )
    costly = any(piece.content.buffer is None and not piece.content.is_cheap for piece, _ in pieces)
    if len(pieces) > 1 and out.numel() and _stands_apart(out, dim, [length for _, length in pieces], costly):
        made.content.cuts = Cuts(dim, tuple(length for _, length in pieces), costly)
    return made


def _stands_apart(out: Value, dim: int, lengths: Sequence[int], costly: bool) -> bool:
    """Whether pieces had better be put into memory by loops of their own. Those of equal pieces can be those of one
    kernel."""
    if any(length * out.stride(dim) < SHORTEST_RUN for length in lengths):
        return False
    if len(set(lengths)) == 1:
        return True
    # where a piece is stored, the others are computed too
    target = target_of(out.device)
    few = roughly_less(as_size(out.numel()), target.few_elements + 1)
    return not few and (costly or not target.hides_work)


@lowers("constant_pad_nd")
def _constant_pad(b: Builder, out: Value, x: Tensor, pad: Sequence[int], value: Any = 0) -> Any:
    if x.dtype not in FUSED_DTYPES or isinstance(value, complex) or not out.numel():
        return NotImplemented
    rank = len(x.sizes)
    before = [0] * rank
    for position in range(len(pad) // 2):
        before[rank - 1 - position] = pad[2 * position]
    kind = compute_dtype(x.dtype)
    other = rounded(const(value, kind), x.dtype)

    def element(indices: Sequence[Index]) -> Expr:
        own = [index - start for index, start in zip(indices, before)]
        inside: Expr | None = None
        for index, size in zip(own, x.sizes):
            low, high = index.bounds
            for needed, test in ((low < 0, a.ge), (high >= size, a.lt)):
                if needed:
                    part = test(index_value(index), 0 if test is a.ge else size)
                    inside = part if inside is None else a.both(inside, part)
        return x.at(own) if inside is None else masked(inside, x.at(own), other)

    return b.indexed(element, x, sizes=tuple(out.shape), dtype=x.dtype, device=x.device, ops=3)


def _padded(b: Builder, out: Value, x: Tensor, pad: Sequence[int], place: Callable[[Expr, int], Expr]) -> Any:
    """Padding of the last dimensions whose elements are others of x; `place` brings a place outside of a dimension of
    some size back into it."""
    if not out.numel() or not x.sizes:
        return NotImplemented
    rank = len(x.sizes)

    def source(indices: Sequence[Index]) -> list[Index]:
        own = list(indices)
        for position in range(len(pad) // 2):
            dim = rank - 1 - position
            shifted = own[dim] - pad[2 * position]
            low, high = shifted.bounds
            inside = low >= 0 and high < x.sizes[dim]
            own[dim] = (
                shifted if inside else Index({Indirect(place(index_value(shifted), x.sizes[dim]), x.sizes[dim]): 1})
            )
        return own

    return _moved(b, out, x, source)


@lowers("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def _reflection_pad(b: Builder, out: Value, x: Tensor, pad: Sequence[int]) -> Any:
    return _padded(b, out, x, pad, lambda place, size: a.sub(size - 1, op("abs", a.sub(size - 1, op("abs", place)))))


@lowers("replication_pad1d", "replication_pad2d", "replication_pad3d")
def _replication_pad(b: Builder, out: Value, x: Tensor, pad: Sequence[int]) -> Any:
    return _padded(b, out, x, pad, lambda place, size: a.minimum(a.maximum(place, 0), size - 1))


@lowers("rot90")
def _rot90(b: Builder, out: Value, x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    first, second = (dim % len(x.sizes) for dim in dims)

    rows, columns = x.sizes[first] - 1, x.sizes[second] - 1

    def source(indices: Sequence[Index]) -> list[Index]:
        own = list(indices)
        i, j = indices[first], indices[second]
        own[first], own[second] = (
            (i, j), (j, columns + i * -1), (rows + i * -1, columns + j * -1), (rows + j * -1, i),
        )[k % 4]
        return own

    return _moved(b, out, x, source)


@lowers("diag_embed")
def _diag_embed(b: Builder, out: Value, x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    if x.dtype not in FUSED_DTYPES or not out.numel() or not math.prod(x.sizes):
        return NotImplemented
    row, column = dim1 % out.dim(), dim2 % out.dim()

    def element(indices: Sequence[Index]) -> Expr:
        rest = [index for dim, index in enumerate(indices) if dim not in (row, column)]
        on_diagonal = a.eq(index_value(indices[column]), index_value(indices[row] + offset))
        own = indices[row] if offset >= 0 else indices[column]
        inside = a.lt(index_value(own), x.sizes[-1])
        return masked(a.both(on_diagonal, inside), x.at([*rest, own]), const(0, compute_dtype(x.dtype)))

    return b.indexed(element, x, sizes=tuple(out.shape), dtype=out.dtype, device=out.device, ops=3)


@lowers("pixel_shuffle")
def _pixel_shuffle(b: Builder, out: Value, x: Tensor, factor: int) -> Any:
    if not out.numel():
        return NotImplemented
    return _moved(
        b,
        out,
        x,
        lambda at: [
            *at[:-3], at[-3] * factor**2 + at[-2] % factor * factor + at[-1] % factor, at[-2] // factor,
            at[-1] // factor,
        ],
    )


def _triangle(b: Builder, out: Value, x: Tensor, diagonal: int, keeps: Callable[[Expr, Expr], Expr]) -> Any:
    if x.dtype not in FUSED_DTYPES:
        return NotImplemented

    def element(indices: Sequence[Index]) -> Expr:
        kept = keeps(index_value(indices[-1]), index_value(Index.of(indices[-2]) + diagonal))
        return a.where(kept, x.at(indices), const(0, compute_dtype(x.dtype)))

    return b.indexed(element, x, sizes=tuple(out.shape), dtype=x.dtype, device=x.device, ops=2)


@lowers("tril")
def _tril(b: Builder, out: Value, x: Tensor, diagonal: int = 0) -> Any:
    return _triangle(b, out, x, diagonal, a.le)


@lowers("triu")
def _triu(b: Builder, out: Value, x: Tensor, diagonal: int = 0) -> Any:
    return _triangle(b, out, x, diagonal, a.ge)


@lowers("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def _upsample_nearest(b: Builder, out: Value, x: Tensor, size: Sequence[int], *scales: Any) -> Any:
    if scales and isinstance(scales[0], (tuple, list)):
        scales = tuple(scales[0])
    given, made = x.sizes[2:], tuple(out.shape[2:])
    if not out.numel() or any(new % old for old, new in zip(given, made)):
        return NotImplemented
    factors = [new // old for old, new in zip(given, made)]
    if any(scale is not None and scale != factor for scale, factor in zip(scales, factors)):
        return NotImplemented
    return _moved(
        b, out, x, lambda indices: [*indices[:2], *(index // factor for index, factor in zip(indices[2:], factors))]
    )
