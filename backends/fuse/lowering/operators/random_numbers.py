"""Random numbers that are computed where they are read. The formulas are those of `random_numbers/operations.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, bitcast, cast, const, index_value, op, rounded
from framejit.backends.fuse.loop_ir.index import Index, strided
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.fusable import can_hold, supports
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, contiguous_strides
from framejit.backends.fuse.lowering.lowerings import lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.random_numbers.operations import UNIFORM_BITS, computed_in, greatest_below, threshold
from framejit.backends.fuse.sizes.symbolic_size import as_sizes

COST: Final = 12
"""Operations for a number: Philox is some fifty for four of them."""

Word = Callable[[Expr], Expr]
"""The word at a place."""


@lowers("philox_bernoulli")
def _bernoulli(
    b: Builder, out: Value, key: Tensor, draw: int, size: Sequence[int], stride: Sequence[int], p: float
) -> Any:
    return _drawn(b, out, key, draw, lambda place, word: a.lt(word(place), threshold(p)))


@lowers("philox_uniform")
def _uniform(
    b: Builder, out: Value, key: Tensor, draw: int, size: Sequence[int], stride: Sequence[int], low: float, high: float,
    *, dtype: torch.dtype,
) -> Any:
    kind = computed_in(dtype)
    bits = UNIFORM_BITS[kind]

    def number(place: Expr, word: Word) -> Expr:
        if bits > 32:
            drawn = _joined(word(a.mul(place, 2)), word(a.add(a.mul(place, 2), 1)), bits)
        else:
            drawn = op("shr", word(place), const(32 - bits, torch.int64))
        made = a.mul(cast(drawn, kind), 2.0**-bits)
        if (low, high) != (0, 1):
            made = a.add(a.mul(made, high - low), low)
        elif kind == dtype:
            return made  # as many bits as it has room for
        return a.minimum(rounded(made, dtype), greatest_below(high, low, dtype))

    return _drawn(b, out, key, draw, number)


@lowers("philox_normal")
def _normal(
    b: Builder, out: Value, key: Tensor, draw: int, size: Sequence[int], stride: Sequence[int], mean: float, std: float,
    *, dtype: torch.dtype,
) -> Any:
    kind = computed_in(dtype)
    bits = torch.int64 if kind == torch.float64 else torch.int32

    def number(place: Expr, word: Word) -> Expr:
        if kind == torch.float64:
            first, second, third, fourth = (word(a.add(a.mul(place, 4), number)) for number in range(4))
            radius, angle = (
                a.add(a.mul(cast(drawn, kind), 2.0**-53), 2.0**-54)
                for drawn in (_joined(first, second, 53), _joined(third, fourth, 53))
            )
            wave = op("cos", a.mul(angle, 2 * math.pi))
        else:
            first, second = op("bitand", place, const(-2, torch.int64)), op("bitor", place, const(1, torch.int64))
            radius, angle = (
                a.add(a.mul(cast(word(each), kind), 2.0**-32), 2.0**-33) for each in (first, second)
            )
            angle = a.mul(angle, 2 * math.pi)
            is_odd = a.eq(place, second)
            wave = a.where(is_odd, op("sin", angle), op("cos", angle))
        made = a.mul(op("sqrt", a.mul(op("log", radius), -2.0)), wave)
        # what looks at its bits takes no approximation, which kernels would differ in
        made = bitcast(bitcast(made, bits), kind)
        return rounded(made if (mean, std) == (0, 1) else a.add(a.mul(made, std), mean), dtype)

    return _drawn(b, out, key, draw, number)


def _joined(first: Expr, second: Expr, bits: int) -> Expr:
    """The first bits of two words."""
    high = op("shl", first, const(bits - 32, torch.int64))
    return op("bitor", high, op("shr", second, const(64 - bits, torch.int64)))


def _drawn(b: Builder, out: Value, key: Tensor, draw: int, number: Callable[[Expr, Word], Expr]) -> Any:
    """A tensor like `out`, each element of which `number` makes of its place and of words."""
    if not can_hold(out.dtype, out.device) or not supports("philox", torch.int64, out.device):
        return NotImplemented
    sizes = as_sizes(out.shape)

    def element(indices: Sequence[Index]) -> Expr:
        drawn_key = key.at([Index.of(0)])
        place = index_value(strided(indices, contiguous_strides(sizes)))
        return number(place, lambda place: op("philox", drawn_key, const(draw, torch.int64), place))

    return b.indexed(element, key, sizes=sizes, dtype=out.dtype, device=out.device, ops=COST)
