"""Random numbers as operations that give the same for the same arguments, so that kernels may compute them wherever
they are wanted, and again in a backward.

The generator is Philox4x32-10 (J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC'11): a counter of 128 bits and a key of 64 give four words of 32 bits. Here the key is a number that torch's
generator draws, once for each run of a graph; the counter is (place // 4, draw): which of the graph's draws it is, and
for which four words of it. Word `place` of a draw is one of the four that this counter gives, number `place % 4`.

What this file computes by ATen, the kernels of `triton/` compute with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from framejit.backends.own_operations import NAMESPACE

ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
"""The constants of Philox4x32 (Random123, philox.h): what each round multiplies with, and adds to the key."""

UNIFORM_BITS: Final = {torch.float32: 24, torch.float64: 53}
"""How many bits a number from 0 to 1 has: as many as its dtype holds of any such number. They are those of torch's own
on CPUs (`uniform_real` in aten/src/ATen/core/TransformationHelper.h)."""

DTYPES: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The dtypes of uniform and normal numbers."""

CHUNK: Final = 1 << 22
"""Elements that are computed at a time, by some 150 operations, which take about fifty bytes for each of them."""

_WORD: Final = 0xFFFFFFFF
_LIBRARY: Final = torch.library.Library(NAMESPACE, "DEF")

for _signature in (
    "bernoulli(Tensor key, int draw, SymInt[] size, SymInt[] stride, float p)",
    "uniform(Tensor key, int draw, SymInt[] size, SymInt[] stride, float low, float high, *, ScalarType dtype)",
    "normal(Tensor key, int draw, SymInt[] size, SymInt[] stride, float mean, float std, *, ScalarType dtype)",
):
    _LIBRARY.define(f"philox_{_signature} -> Tensor")

BERNOULLI: Final[torch._ops.OpOverload] = torch.ops.framejit.philox_bernoulli.default
"""(key, draw, size, stride, p): a tensor of bool, each element true with probability p."""
UNIFORM: Final[torch._ops.OpOverload] = torch.ops.framejit.philox_uniform.default
"""(key, draw, size, stride, low, high, dtype=): numbers from `low` on and below `high`."""
NORMAL: Final[torch._ops.OpOverload] = torch.ops.framejit.philox_normal.default
"""(key, draw, size, stride, mean, std, dtype=): normally distributed numbers, all of them finite."""
OPERATIONS: Final = (BERNOULLI, UNIFORM, NORMAL)
"""Each takes a key, int64 of one element on the device of the result, the number of the draw, and sizes and strides of
the result. Which number an element is follows from its place in row-major order, whatever the strides are."""

DRAW_KEY: Final[torch._ops.OpOverload] = torch.ops.aten.randint.low
KEY_RANGE: Final = (-(1 << 63), (1 << 63) - 1)


def draw_key(device: torch.device) -> torch.Tensor:
    """A key, of torch's generator of a device: what a graph's first node draws. Int64, of one element."""
    key: torch.Tensor = DRAW_KEY(*KEY_RANGE, [1], dtype=torch.int64, device=device)
    return key


def threshold(p: float) -> int:
    """The number that a word has to be less than, for that to happen with probability p."""
    return round(p * (1 << 32))


def words(key: torch.Tensor, draw: int, first: int, count: int) -> torch.Tensor:
    """The words of a draw from a place on, a multiple of four: int64 with the shape [count], each from 0 to 2**32 - 1.
    """
    groups = torch.arange(first // 4, first // 4 + -(-count // 4), dtype=torch.int64, device=key.device)
    counter = [groups & _WORD, groups >> 32 & _WORD, torch.full_like(groups, draw), torch.zeros_like(groups)]
    keys = [key & _WORD, key >> 32 & _WORD]
    for _ in range(ROUNDS):
        # a product of 64 bits wraps around to a negative number, whose bits are right
        high, low = counter[0] * MULTIPLIERS[0], counter[2] * MULTIPLIERS[1]
        counter = [
            (low >> 32 & _WORD) ^ counter[1] ^ keys[0], low & _WORD,
            (high >> 32 & _WORD) ^ counter[3] ^ keys[1], high & _WORD,
        ]
        keys = [key + step & _WORD for key, step in zip(keys, KEY_STEPS)]
    return torch.stack(counter, -1).view(-1)[:count]


def _bernoulli(
    key: torch.Tensor, draw: int, size: Sequence[int], stride: Sequence[int], p: float
) -> torch.Tensor:
    return _filled(key, draw, size, stride, torch.bool, 1, lambda drawn: drawn < threshold(p))


def _uniform(
    key: torch.Tensor, draw: int, size: Sequence[int], stride: Sequence[int], low: float, high: float, *,
    dtype: torch.dtype,
) -> torch.Tensor:
    def numbers(drawn: torch.Tensor) -> torch.Tensor:
        kind = computed_in(dtype)
        bits = UNIFORM_BITS[kind]
        if bits > 32:
            drawn = drawn[0::2] << bits - 32 | drawn[1::2] >> 64 - bits
        else:
            drawn = drawn >> 32 - bits
        made = drawn.to(kind) * 2.0**-bits
        if (low, high) != (0, 1):
            made = made * (high - low) + low
        return made.to(dtype).clamp(max=greatest_below(high, low, dtype))

    return _filled(key, draw, size, stride, dtype, 2 if dtype == torch.float64 else 1, numbers)


def _normal(
    key: torch.Tensor, draw: int, size: Sequence[int], stride: Sequence[int], mean: float, std: float, *,
    dtype: torch.dtype,
) -> torch.Tensor:
    """G. Box, M. Muller, "A note on the generation of random normal deviates", 1958. In float32 two elements share
    two uniform numbers, one takes the cosine and the other the sine; in float64 each has two of its own."""

    def numbers(drawn: torch.Tensor) -> torch.Tensor:
        kind = computed_in(dtype)
        if kind == torch.float64:
            radius, angle = (_unit_of_two(drawn[first::4], drawn[first + 1 :: 4]) for first in (0, 2))
            made = torch.sqrt(-2.0 * torch.log(radius)) * torch.cos(angle * (2 * math.pi))
        else:
            radius = torch.sqrt(-2.0 * torch.log(_unit(drawn[0::2])))
            angle = _unit(drawn[1::2]) * (2 * math.pi)
            made = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], -1).view(-1)
        return (made if (mean, std) == (0, 1) else made * std + mean).to(dtype)

    return _filled(key, draw, size, stride, dtype, 4 if dtype == torch.float64 else 1, numbers)


def _unit(drawn: torch.Tensor) -> torch.Tensor:
    """Words as numbers above 0, up to 1, in float32: the middle of 2**32 parts of that, rounded."""
    return drawn.to(torch.float32) * 2.0**-32 + 2.0**-33


def _unit_of_two(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The same of 53 bits of two words, in float64."""
    return (first << 21 | second >> 11).to(torch.float64) * 2.0**-53 + 2.0**-54


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which numbers of a dtype are worked out, before they are rounded to it."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def greatest_below(high: float, low: float, dtype: torch.dtype) -> float:
    """The last number of a dtype before `high`, which rounding must not lead to; `low` if there is none between."""
    end, start = torch.tensor(high, dtype=dtype), torch.tensor(low, dtype=dtype)
    return float(torch.nextafter(end, start))


def _filled(
    key: torch.Tensor, draw: int, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, each: int,
    numbers: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The tensor whose elements `numbers` makes of `each` words for each."""
    made = torch.empty(size, dtype=dtype, device=key.device)
    flat = made.view(-1)
    for start in range(0, flat.numel(), CHUNK):
        part = flat[start : start + CHUNK]
        count = part.numel()
        count += count % 2  # two elements may share words
        part.copy_(numbers(words(key, draw, start * each, count * each))[: part.numel()])
    if made.stride() == tuple(stride):
        return made
    return torch.empty_strided(size, stride, dtype=dtype, device=key.device).copy_(made)


def _shape(
    key: torch.Tensor, draw: int, size: Sequence[Any], stride: Sequence[Any], *_: float, dtype: torch.dtype = torch.bool
) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=key.device)


for _operation, _numbers in zip(OPERATIONS, (_bernoulli, _uniform, _normal)):
    _LIBRARY.impl(_operation._opname, _numbers, "CompositeExplicitAutograd")
    _LIBRARY.impl(_operation._opname, _shape, "Meta")
