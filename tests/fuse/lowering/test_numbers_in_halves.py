"""Numbers beside tensors of few bits: rounded where eager's operation keeps them in the tensor's dtype or compares with
them there, and only there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.backends.fuse.loop_ir.expr import cast, const, nearest, rounded
from tests.fuse.lowering.plan_checks import check

HALVES = (torch.bfloat16, torch.float16)
NUMBERS = (0.1, -0.3, 1000.1, 2049)


def filled(x: torch.Tensor, place: Any, number: float) -> torch.Tensor:
    x = x.clone()
    x[place(x) if callable(place) else place] = number
    return x


KEPT: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "full_like": torch.full_like,
    "full": lambda x, k: torch.full(x.shape, k, dtype=x.dtype),
    "new_full": lambda x, k: x.new_full(x.shape, k),
    "fill_": lambda x, k: x.clone().fill_(k),
    "copy_": lambda x, k: x.clone().copy_(torch.tensor(k)),
    "masked_fill": lambda x, k: x.masked_fill(x > 0, k),
    "where": lambda x, k: torch.where(x > 0, x, k),
    "where of a 0-d tensor": lambda x, k: torch.where(x > 0, torch.tensor(k, dtype=torch.float64), x),
    "slice": lambda x, k: filled(x, slice(2, 9), k),
    "mask": lambda x, k: filled(x, lambda x: x > 0, k),
    "scalar_tensor": lambda x, k: torch.scalar_tensor(k, dtype=x.dtype),
    "tensor": lambda x, k: torch.tensor(k, dtype=x.dtype),
    "pad": lambda x, k: F.pad(x, (1, 2), value=k),
    "clamp": lambda x, k: x.clamp(-abs(k), abs(k)),
    "clamp_min": lambda x, k: x.clamp_min(k),
    "clamp_max": lambda x, k: x.clamp_max(k),
    "hardtanh": lambda x, k: F.hardtanh(x, -abs(k), abs(k)),
    "threshold": lambda x, k: F.threshold(x, k, k),
    "nan_to_num": lambda x, k: torch.nan_to_num(x, k, k, -k),
    "hardshrink": lambda x, k: F.hardshrink(x, abs(k)),
    "maximum": lambda x, k: torch.maximum(x, torch.tensor(k, dtype=torch.float64)),
    "ints in cat": lambda x, k: torch.cat([x, torch.arange(int(k), int(k) + 3)]),
    "arange": lambda x, k: torch.arange(int(k), int(k) + 9, dtype=x.dtype),
}
COMPUTED: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge, "add": torch.add,
    "sub": torch.sub, "mul": torch.mul, "div": torch.div, "remainder": torch.remainder, "fmod": torch.fmod,
    "floor_divide": torch.floor_divide,
    "div, cut off": lambda x, k: torch.div(x, k, rounding_mode="trunc"),
    "rsub": lambda x, k: k - x,
    "rremainder": lambda x, k: k % x,
    "ints added": lambda x, k: x + torch.arange(int(k), int(k) + len(x)),
    "ints multiplied": lambda x, k: x * torch.arange(int(k), int(k) + len(x)),
    "leaky_relu": F.leaky_relu, "lerp": lambda x, k: x.lerp(torch.zeros_like(x), k),
}


def values(dtype: torch.dtype) -> torch.Tensor:
    """Numbers of all kinds, among them those that the numbers are rounded to."""
    numbers = [*NUMBERS, *(-number for number in NUMBERS), 0.0, -0.0, 1.0, 2.5, 7.0, -3.0, 0.7, 99.5]
    return torch.cat([torch.tensor(numbers).to(dtype), torch.tensor([math.inf, -math.inf, math.nan], dtype=dtype)])


def same(got: torch.Tensor, expected: torch.Tensor) -> bool:
    return got.dtype == expected.dtype and torch.equal(got.isnan(), expected.isnan()) and torch.equal(
        got.nan_to_num(), expected.nan_to_num()
    )


@pytest.mark.parametrize("name", KEPT)
def test_a_number_that_is_kept_is_as_the_dtype_holds_it(name: str) -> None:
    def wide(x: torch.Tensor, k: float) -> torch.Tensor:
        return KEPT[name](x, k).double()

    for dtype in (*HALVES, torch.float32):
        for number in NUMBERS:
            check(wide, values(dtype), number, atol=0.0, rtol=0.0)


@pytest.mark.parametrize("name", COMPUTED)
def test_a_number_that_is_computed_with(name: str) -> None:
    for dtype in HALVES:
        for number in NUMBERS:
            check(COMPUTED[name], values(dtype), number, atol=0.0, rtol=0.0)


@pytest.mark.parametrize("name", [*KEPT, *COMPUTED])
def test_numbers_that_are_left_open(name: str) -> None:
    function = {**KEPT, **COMPUTED}[name]
    for dtype in HALVES:
        compiled = framejit.optimize(function, dynamic=True)
        for number in (5, 257, 2049, 0.1, 1000.1):
            if name not in ("hardshrink", "rremainder"):
                x = values(dtype)
                assert same(compiled(x.clone(), number), function(x.clone(), number)), (dtype, number)


def test_powers_by_a_number_that_halves_round_to_an_integer() -> None:
    """1000.1 is 1000 in bfloat16: a power of a negative number is one."""
    check(lambda x: x**1000.1, torch.tensor([-1.0, -0.5, -2.0, 0.7], dtype=torch.bfloat16))


@pytest.mark.parametrize("number", [70001, 70001.0, -1e9])
@pytest.mark.parametrize("size", [1, 3])
def test_a_number_that_float16_cannot_hold(size: int, number: float) -> None:
    """One element is filled in another way, which takes it."""
    def full(x: torch.Tensor) -> torch.Tensor:
        return torch.full((size,), number, dtype=torch.float16) + x

    x = torch.ones(3, dtype=torch.float16)
    compiled = framejit.optimize(full)
    if size == 1:
        assert torch.equal(compiled(x), full(x))
    else:
        for function in (full, compiled):
            with pytest.raises(RuntimeError, match="without overflow"):
                function(x)


def test_rounding_is_torchs() -> None:
    numbers = torch.cat([
        torch.randn(500, dtype=torch.float64).exp() * 10.0 ** torch.randint(-45, 40, (500,)),
        torch.tensor([0.0, 65504.0, 65519.9, 65520.0, 70000.0, 3.39e38, 3.4e38, 3.5e38, 1e300, 6e-8, 2e-8, 1e-45]),
    ])
    numbers = torch.cat([numbers, -numbers, torch.tensor([math.inf, -math.inf, math.nan])])
    for dtype in (*HALVES, torch.float32, torch.float64):
        for number in numbers.tolist():
            torch.testing.assert_close(
                torch.tensor(nearest(number, dtype), dtype=torch.float64),
                torch.tensor(number, dtype=torch.float64).to(dtype).double(),
                atol=0.0, rtol=0.0, equal_nan=True,
            )


def test_numbers_that_float16_holds_as_0_or_infinite() -> None:
    x = torch.tensor([0.0, 1.0, 0.25, -3.0, 5.0, 0.999], dtype=torch.float16)
    y = x.flip(0)
    check(lambda x, y: x.lerp(y, 1e6), x, y)
    for number in (1e-9, 1e6, 0.1):
        check(lambda x, y: F.smooth_l1_loss(x, y, beta=number, reduction="none"), x, y)  # noqa: B023
        if number < 1:
            check(lambda x: torch.logit(x, number), x)  # noqa: B023


def test_a_number_is_rounded_when_it_is_compiled() -> None:
    number = rounded(const(0.1, torch.float32), torch.bfloat16)
    assert number is const(0.10009765625, torch.float32)
    for value in (0.1, 1e-5, 16777216.0, math.inf, -0.0, math.nan, 1e-45):
        assert str(const(value, torch.float32)) == str(value)
    assert cast(const(0.1, torch.float32), torch.float64) is const(0.10000000149011612, torch.float64)
