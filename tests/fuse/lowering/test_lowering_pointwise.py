"""Elementwise operations."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.fuse.lowering.lowering_checks import check, externs, kernels, lowered

SPECIAL = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.7, 100.0, -100.0, math.inf, -math.inf, math.nan, 1e-40, 20.5]
)
UNARY = [
    "sqrt",
    "rsqrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "lgamma",
    "sigmoid",
    "reciprocal",
    "floor",
    "ceil",
    "trunc",
    "round",
    "neg",
    "abs",
    "sign",
    "square",
    "frac",
    "isnan",
    "isinf",
    "isfinite",
    "isposinf",
    "isneginf",
    "signbit",
    "logical_not",
    "deg2rad",
    "rad2deg",
    "nan_to_num",
    "relu",
    "positive",
    "logit",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "atan2",
    "copysign",
    "hypot",
    "nextafter",
    "fmod",
    "remainder",
    "pow",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "xlogy",
    "logaddexp",
    "true_divide",
    "floor_divide",
]
ACTIVATIONS = [
    F.relu,
    F.relu6,
    F.silu,
    F.gelu,
    lambda x: F.gelu(x, approximate="tanh"),
    F.hardsigmoid,
    F.hardswish,
    F.hardtanh,
    F.leaky_relu,
    F.elu,
    F.selu,
    F.celu,
    F.mish,
    F.softplus,
    F.logsigmoid,
    lambda x: F.threshold(x, 0.3, 7),
    F.softshrink,
    F.hardshrink,
    F.tanhshrink,
    F.softsign,
]


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    check(lambda x: getattr(torch, name)(x), SPECIAL)


@pytest.mark.parametrize(
    "name",
    [
        "sqrt", "exp", "sigmoid", "neg", "abs", "sign", "isnan", "signbit", "floor", "reciprocal", "logical_not",
        "bitwise_not", "relu",
    ],
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8])
def test_unary_of_integers(name, dtype):
    check(lambda x: getattr(torch, name)(x), torch.arange(0 if dtype == torch.uint8 else -5, 9).to(dtype))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    check(lambda x, y: getattr(torch, name)(x, y), SPECIAL[:, None], SPECIAL[None, :].clone())


@pytest.mark.parametrize("f", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activation(f, dtype):
    # oneDNN's gelu of infinity is nan; bfloat16 is rounded less often here than by eager
    check(f, SPECIAL[:11].to(dtype), **({"atol": 1e-2, "rtol": 2e-2} if dtype == torch.bfloat16 else {}))


@pytest.mark.parametrize(
    "a", [torch.int32, torch.int64, torch.float32, torch.bfloat16, torch.bool, torch.uint8, torch.float64]
)
@pytest.mark.parametrize("b", [torch.int8, torch.float16, torch.float32, torch.bool])
@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x < y, lambda x, y: torch.where(x > 1, x, y),
        lambda x, y: x / (y + 2),
    ],
    ids=["add", "mul", "lt", "where", "div"],
)
def test_promotion(a, b, f):
    check(f, torch.arange(6).to(a), torch.arange(6).flip(0).to(b), fused=False)


@pytest.mark.parametrize("number", [2, 2.5, -1])
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.bfloat16, torch.bool])
@pytest.mark.parametrize(
    "f",
    [
        lambda x, n: x + n, lambda x, n: n - x.float(), lambda x, n: x * n, lambda x, n: x / n, lambda x, n: x == n,
        lambda x, n: x.float() ** n,
    ],
    ids=["add", "rsub", "mul", "div", "eq", "pow"],
)
def test_numbers(number, dtype, f):
    check(lambda x: f(x, number), torch.arange(6).to(dtype), fused=False)


def test_tensors_of_no_dimension_do_not_promote():
    check(lambda x, s: (x + s, x.half() * s, x.long() + s), torch.randn(5), torch.tensor(2.5, dtype=torch.float64))


@pytest.mark.parametrize("divisor", [3, -3, 1, 7])
def test_integer_division_by_a_number(divisor):
    x = torch.arange(-10, 10)
    check(lambda x: (x // divisor, x % divisor, torch.div(x, divisor, rounding_mode="trunc"), x / divisor), x)


def test_integer_division_by_a_tensor_is_left_to_aten():
    graph = check(lambda x, y: (x // y, x % y), torch.arange(-6, 6), torch.full((12,), 4), fused=False)
    assert externs(graph) == ["floor_divide", "remainder"]


@pytest.mark.parametrize("mode", ["floor", "trunc", None])
def test_division_of_floats(mode):
    check(lambda x, y: torch.div(x, y, rounding_mode=mode), SPECIAL[:, None], SPECIAL[None, :].clone())


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.5, -3])
def test_powers(exponent):
    check(lambda x: x**exponent, SPECIAL)


def test_power_of_a_number():
    check(lambda x: 2.0**x, SPECIAL)


def test_chosen_and_clamped():
    x = SPECIAL
    check(
        lambda x: (
            x.clamp(-1, 1), x.clamp(min=0), x.clamp(max=x[4]), torch.where(x > 0, x, 0.0), x.masked_fill(x < 0, -1.5),
        ),
        x,
    )
    check(
        lambda x: (torch.lerp(x, x * 2, 0.3), torch.addcmul(x, x, x, value=0.5), torch.addcdiv(x, x, x + 1, value=2)), x
    )
    check(lambda x: (x.add(x, alpha=3), torch.sub(x, 1, alpha=2), torch.rsub(x, 5, alpha=2)), x)
    # as C++ calls them
    check(lambda x: (torch.ops.aten.add.Scalar(x, 1, 3), torch.ops.aten.sub.Scalar(x, 1, 2)), x)


def test_bits():
    x, y = torch.arange(-4, 4), torch.arange(8)
    check(lambda x, y: (x & y, x | y, x ^ y, ~x, (x > 0) & (y > 3), ~(x > 0)), x, y)


def test_conversions():
    check(
        lambda x: (
            x.to(torch.bfloat16), x.bfloat16().float(), x.to(torch.int32), x.bool(), x.double() * 2, x.half() + 1,
        ),
        torch.randn(20) * 3,
    )


@pytest.mark.parametrize("sizes", [((4, 1, 5), (3, 5)), ((0, 3), (3,)), ((), (2,)), ((), ())])
def test_broadcasting(sizes):
    check(lambda x, y: (x + y) * 2, torch.randn(sizes[0]), torch.randn(sizes[1]))


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(4, 5).t(),
        torch.randn(3, 1).expand(3, 4),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(10)[1::2],
        torch.randn(4, 6)[:, 2:4],
        torch.randn(3, 4, 5).permute(2, 0, 1),
    ],
)
def test_strides_of_the_result(x):
    check(lambda x: (x + 1, x.relu() * x, x.exp().sum(0), x.clone(), x.contiguous() * 2), x)


def test_many_operands_make_one_loop_nest():
    tensors = [torch.randn(8) for _ in range(64)]

    def f(tensors):
        total = tensors[0]
        for tensor in tensors[1:]:
            total = total + tensor
        return total

    assert len(kernels(lowered(f, tensors))) == 1
    check(f, tensors)


def test_long_chains_do_not_exhaust_the_stack():
    def f(x):
        for _ in range(300):
            x = (x * 1.01).sin()
        return x

    check(f, torch.randn(5))


def test_complex_numbers_are_left_to_aten():
    check(lambda x: (x * 2 + 1).real, torch.randn(4, dtype=torch.complex64), fused=False)


def test_source_lines_are_kept():
    def f(x):
        y = x.sin()
        return y + 1

    (kernel,) = kernels(lowered(f, torch.randn(3)))
    assert [origin.rpartition(": ")[2] for origin in kernel.origins] == ["y = x.sin()", "return y + 1"]
