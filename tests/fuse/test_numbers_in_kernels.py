"""Numbers in kernels: ints that are left open, sizes among them, are integers; names of inputs are the program's
own."""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest
import torch

import framejit
from framejit.config import config

HUGE = 1_700_000_000_123_456_789
FUNCTIONS = {
    "add": operator.add,
    "radd": lambda x, k: k + x,
    "sub": operator.sub,
    "rsub": lambda x, k: k - x,
    "mul": operator.mul,
    "eq": operator.eq,
    "lt": operator.lt,
    "ge": operator.ge,
    "mod": operator.mod,
    "floordiv": operator.floordiv,
    "div": operator.truediv,
    "pow": lambda x, k: x ** (k % 3 + 1),
    "and": operator.and_,
    "xor": operator.xor,
    "clamp": lambda x, k: x.clamp(max=k),
    "clamp_min": lambda x, k: x.clamp(min=k),
    "where": lambda x, k: torch.where(x > 5, x, k),
    "masked_fill": lambda x, k: x.masked_fill(x > 5, k),
    "fill": lambda x, k: x.clone().fill_(k) + x,
    "full": lambda x, k: torch.full((3,), k) + x.sum(),
    "arange": lambda x, k: torch.arange(k, k + 4) + x.sum(),
    "maximum": lambda x, k: torch.maximum(x, torch.tensor(k)),
    "alpha": lambda x, k: torch.add(x, x, alpha=k),
    "shift": lambda x, k: x >> (k % 5),
    "float": lambda x, k: x * (k * 0.5),
    "add_": lambda x, k: x.clone().add_(k),
    "product": lambda x, k: x + k * k,
    "negative": lambda x, k: x % -k,
    "scalar_tensor": lambda x, k: x + torch.tensor(k),
    "fmod": lambda x, k: torch.fmod(x, k),
    "ne": operator.ne,
    "addcmul": lambda x, k: torch.addcmul(x, x, x, value=k),
    "new_full": lambda x, k: x.new_full((2,), k) + x.amax(),
}
DTYPES = (torch.int64, torch.int32, torch.uint8, torch.float64, torch.float32, torch.bool)


def outcome(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def same(got: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return (
            isinstance(got, torch.Tensor)
            and got.dtype == expected.dtype
            and got.stride() == expected.stride()
            and torch.equal(got, expected)
        )
    return bool(got == expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_open_ints_with_tensors(name: str) -> None:
    function = FUNCTIONS[name]
    for dtype in DTYPES:
        compiled = framejit.optimize(function)
        values = (
            [True, False]
            if dtype == torch.bool
            else [HUGE, 2**53 + 1, 16777217, 7, 1]
            if dtype == torch.int64
            else [77, 7, 1]
        )
        x = torch.tensor(values, dtype=dtype)
        for k in (5, 6, 7, 16777217, 2**40 + 1, 9, 300, 2**53 + 1):
            expected, got = outcome(function, x.clone(), k), outcome(compiled, x.clone(), k)
            assert same(got, expected), (name, dtype, k, expected, got)


# of the sizes for which `HUGE * n` is no int64, which torch takes modulo 2**64, and kernels do not
@pytest.mark.filterwarnings("default:.*int too big to convert:framejit.errors.FramejitWarning")
@pytest.mark.parametrize("dynamic", (True, None))
def test_sizes_left_open_with_tensors(dynamic: bool | None) -> None:
    def program(ids: torch.Tensor) -> Any:
        n = ids.shape[0]
        return (
            ids + n, ids == HUGE + n, ids * n, ids % n, ids // n, ids.clamp(max=HUGE + n), torch.full((n,), HUGE) + n,
            torch.arange(n) + HUGE * n,
        )

    compiled = framejit.optimize(program, dynamic=dynamic)
    for n in (2, 3, 4, 5, 6, 7):
        ids = torch.arange(n) + HUGE
        for got, expected in zip(compiled(ids), program(ids)):
            assert same(got, expected)


def test_names_of_inputs_are_apart_from_names_of_buffers() -> None:
    def program(
        t1: torch.Tensor, t2: torch.Tensor, constant0: torch.Tensor, i0: torch.Tensor, ints: torch.Tensor
    ) -> Any:
        return (
            (t1 * 2).sum(), t2.softmax(-1), constant0 + torch.tensor([1.0, 2.0, 3.0]), (i0 @ i0).cos(),
            ints.mean(0, keepdim=True) - t1,
        )

    args = [torch.randn(3, 3) for _ in range(5)]
    with config.patch(debug=True):  # an internal error is no reason to run as ATen
        for _ in range(2):
            compiled = framejit.optimize(program)
            torch.testing.assert_close(compiled(*args), program(*args))


@pytest.mark.parametrize("eps", [0.1, 0.5, 0.6])
def test_bounds_of_logit(eps):
    x = torch.tensor([-0.5, 0.05, 0.1, 0.3, 0.45, 0.5, 0.55, 0.65, 0.95, 1.0, 2.0, float("nan")])
    compiled = framejit.optimize(lambda x: torch.logit(x * 1, eps))
    torch.testing.assert_close(compiled(x), torch.logit(x * 1, eps), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_bounds_that_are_nan(dtype):
    def fn(x):
        y = x * 2
        return (
            y.clamp(min=math.nan), y.clamp(max=math.nan), torch.clip(y, math.nan, 1), y.clamp(-1.0, math.nan),
            y.clamp_min(math.nan), y.clamp_max(math.nan),
        )

    compiled = framejit.optimize(fn, backend="fuse")
    for _ in range(2):
        x = torch.arange(-20, 21).to(dtype)
        torch.testing.assert_close(compiled(x), fn(x), rtol=0, atol=0, equal_nan=True)
