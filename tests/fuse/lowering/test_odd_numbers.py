"""Kernels for odd numbers: what is no number, overflows, denormals, rounding, mixed dtypes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tests.fuse.lowering.plan_checks import check, planned

INF, NAN = math.inf, math.nan
SPECIAL = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-45, -1e-45, 1e-39, 3.4e38, -3.4e38, 0.5, 2.5, -2.5, 1e-8]
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_special_numbers(dtype):
    x = SPECIAL.to(dtype)
    check(
        lambda x, y: (
            x + y, x * y, x / y, x.maximum(y), x.minimum(y), torch.fmax(x, y), x.relu(), x.clamp(-1, 1), x.sigmoid(),
            x.tanh(), x.exp(), x.log(), x.sqrt(),
            x.rsqrt(), x.reciprocal(), x.abs(), -x, x.sign(), x.round(), x.floor(), x.trunc(), x == y, x < y, x != x,
            x.isnan(), x.isinf(), x.isfinite(),
        ),
        x, x.flip(0),
    )


def test_special_numbers_in_reductions():
    rows = torch.stack([SPECIAL.roll(k)[:5] for k in range(16)])
    check(
        lambda x: (
            x.amax(1), x.amin(1), x.argmax(1), x.argmin(1), x.max(1), (x * 1e-30).sum(1), x.softmax(1),
            x.isnan().any(1), x.logsumexp(1),
        ),
        rows,
    )


@pytest.mark.parametrize(
    "op",
    [
        lambda x: x * 1, lambda x: x.abs(), lambda x: -x, lambda x: x + 0.0, lambda x: x - 0.0, lambda x: x * 0,
        lambda x: x.round(), lambda x: x.sin(),
        lambda x: 0.0 - x, lambda x: x.relu(), lambda x: x.clamp(min=0.0), lambda x: x.trunc(), lambda x: x / -1,
        lambda x: x.float() - x,
    ],
)
def test_the_sign_of_zero(op):
    x = torch.tensor([0.0, -0.0, -0.4, 0.4])
    check(lambda x: (op(x), torch.copysign(torch.ones_like(x), op(x)), op(x).signbit()), x)


def test_denormals_survive():
    x = torch.tensor([1e-40, -1e-44, 1.1754944e-38, 5e-39])
    (graph,) = check(lambda x: (x * 0.5, x + x, x.abs(), x * 1), x, atol=0, rtol=0)
    assert graph.kernels
    check(lambda x: (x * 0.5, x + x), x.to(torch.bfloat16), atol=0, rtol=0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integers_wrap_around(dtype):
    limits = torch.iinfo(dtype)
    x = torch.tensor([limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1], dtype=dtype)
    check(lambda x: (x + 1, x - 1, x * 3, -x, x.abs(), x * x, x << 1, x >> 1, ~x, x.sum(), x.cumsum(0), x.square()), x)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_integer_division_rounds_as_eager_does(dtype):
    x = torch.tensor([7, -7, 8, -8, 0, 1, -1, 127, -128], dtype=dtype)
    check(lambda x: (x // 3, x // -3, x % 3, x % -3, torch.div(x, 3, rounding_mode="trunc"), x / 3), x)
    check(lambda x: (torch.fmod(x, 3), torch.fmod(x, -3), x.float() // 3, x.float() % -3), x)
    y = torch.tensor([3, -3, 5, -5, 7, -1, 1, 2, 100], dtype=dtype)
    check(lambda x, y: (x // y, x % y, torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), x / y), x, y)


def test_integer_division_by_zero_raises():
    compiled, _ = planned(lambda x, y: (x + 1) // y)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(torch.tensor([1, 2]), torch.tensor([1, 0]))


def test_float_division_by_zero():
    x = torch.tensor([1.0, -1.0, 0.0, NAN, INF])
    check(lambda x: (x / 0.0, x // 0.0, x % 0.0, x / -0.0, torch.fmod(x, 0.0)), x)


def test_floats_to_integers_and_back():
    x = torch.tensor([1.9, -1.9, 0.0, -0.0, 255.0, 100.5])
    check(
        lambda x: (
            x.int(), x.long(), x.bool(), x.to(torch.uint8), x.int().float(), x.to(torch.bfloat16).float(),
            x.double() * 0.1,
        ),
        x,
    )


PROMOTED = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("first", PROMOTED)
def test_type_promotion(first):
    x = torch.tensor([0, 1, 2, 3]).to(first)
    for second in PROMOTED:
        y, scalar = torch.tensor([1, 1, 0, 2]).to(second), torch.tensor(2).to(second)
        check(
            lambda x, y, s: (
                x + y, x * s, s + x, x == y, torch.where(x > 0, x, y), x * 2, x * 2.5, torch.maximum(x, y),
            ),
            x,
            y,
            scalar,
        )


@pytest.mark.parametrize(
    "reduce",
    [
        lambda x: x.sum(), lambda x: x.sum(-1), lambda x: x.sum(0), lambda x: x.mean(), lambda x: x.var(1),
        lambda x: x.std(0), lambda x: x.softmax(1),
        lambda x: x.logsumexp(1), lambda x: x.norm(dim=1), lambda x: nn.functional.layer_norm(x, x.shape[1:]),
        lambda x: x.view(-1).var(),
    ],
)
@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_reductions_are_as_exact_as_eager(reduce, shift):
    x = torch.randn(64, 4099) + shift
    compiled, graphs = planned(lambda x: reduce(x * 1.0))
    exact = reduce(x.double())
    mine, theirs = ((result.double() - exact).abs().max() for result in (compiled(x), reduce(x)))
    assert not graphs[0].reason
    assert mine <= 2 * theirs + 4 * torch.finfo(torch.float32).eps * exact.abs().max()


def test_a_long_sum_of_bfloat16():
    x = torch.full((1 << 18,), 0.01, dtype=torch.bfloat16)
    compiled, _ = planned(lambda x: (x * 1).sum())
    exact = x.double().sum()
    assert abs(compiled(x).double() - exact) <= abs(x.sum().double() - exact) + 0.01 * exact
