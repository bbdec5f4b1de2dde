"""Every operation on every dtype that the CPU generator says it supports, against torch."""
from __future__ import annotations

import itertools
import math

import pytest
import torch

import framejit
from framejit.backends.fuse.llvm.kernel import compile_cpu_kernel
from framejit.backends.fuse.llvm.llvm_support import supports
from framejit.backends.fuse.loop_ir import expr
from framejit.backends.fuse.loop_ir.expr import OPERATIONS, const, load
from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.loop_ir.nodes import Store
from tests.fuse.kernel_reference import Reference, kernel, run, steps_apart

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64]
ALL_DTYPES = [*DTYPES, torch.float16, torch.bfloat16]
ODD_FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, float("inf"), float("-inf"), float("nan"), 1e-40, -1e-40, 1e30, -1e30,
    88.7, -103.9, 89.5, 3e-39,
]


def samples(dtype: torch.dtype, count: int = 1000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if dtype.is_floating_point:
        values = torch.randn(count, generator=generator, dtype=torch.float64) * torch.logspace(
            -2, 1.5, count, dtype=torch.float64
        )
        odd = torch.tensor(list(itertools.product(ODD_FLOATS, ODD_FLOATS)), dtype=torch.float64)[:, 0]
        values[:len(odd)] = odd
        return values.to(dtype)
    limits = torch.iinfo(dtype)
    values = torch.randint(max(limits.min, -1 << 40), min(limits.max, 1 << 40), (count,), generator=generator)
    values[:4] = torch.tensor([limits.min, limits.max, 0, 1])
    values[500:] = torch.randint(-100 if dtype.is_signed else 0, 100, (count - 500,), generator=generator)
    return values.to(dtype)


def second_samples(dtype: torch.dtype, count: int = 1000) -> torch.Tensor:
    values = samples(dtype, count)
    if dtype.is_floating_point:
        odd = torch.tensor(list(itertools.product(ODD_FLOATS, ODD_FLOATS)), dtype=torch.float64)[:, 1].to(dtype)
        rest = values[len(odd):].flip(0)
        return torch.cat([odd, rest])
    return values.flip(0)


def compiled_and_reference(
    name: str, dtype: torch.dtype, operands: list[torch.Tensor], divisor: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    i = Var("i", operands[0].numel())
    tensors = {f"x{position}": tensor for position, tensor in enumerate(operands)}
    loads = [load(buffer, Index.of(i), tensor.dtype) for buffer, tensor in tensors.items()]
    if divisor is not None:
        loads.append(const(divisor, dtype))
    value = expr.op(name, *loads)
    tensors["out"] = torch.zeros(i.size, dtype=value.dtype)
    which = kernel([i], [], [Store("out", Index.of(i), value)], tensors)
    expected = Reference(which, tensors).run()["out"]
    run(compile_cpu_kernel(which), tensors)
    return tensors["out"], expected


NOT_OF_TRUTH_VALUES = ("sub", "neg", "sign", "abs", "floor", "ceil", "trunc", "round")  # to torch
CASES = [
    (name, dtype)
    for name in OPERATIONS
    for dtype in DTYPES
    if supports(name, dtype) and not (dtype == torch.bool and name in NOT_OF_TRUTH_VALUES)
]
LOOSE = {"lgamma": 64, "tan": 4, "erfc": 8, "pow": 4, "floordiv": 0, "mod": 0, "fmod": 0}


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=[f"{name}-{str(dtype)[6:]}" for name, dtype in CASES])
def test_operation(name: str, dtype: torch.dtype) -> None:
    arity = OPERATIONS[name][0]
    operands = [samples(dtype), second_samples(dtype)][:arity]
    if name in ("shl", "shr"):
        operands[1] = torch.randint(-3, 70, (1000,)).clamp(-3 if dtype.is_signed else 0).to(dtype)
    if name == "where":
        operands = [samples(torch.bool), *(samples(dtype), second_samples(dtype))]
    if name in ("fmod", "mod") and dtype == torch.float32:  # where the divisor is denormal, torch's vectors give nan
        operands[1] = torch.where(operands[1].abs() < 1e-37, 1.0, operands[1])
    got, expected = compiled_and_reference(name, dtype, operands)
    if name == "sqrt":  # torch's is not always rounded correctly
        expected = torch.tensor([math.sqrt(x) if x >= 0 else math.nan for x in operands[0].tolist()], dtype=dtype)
    if not got.dtype.is_floating_point:
        assert torch.equal(got, expected)
    else:
        exact = name not in expr_functions()
        assert steps_apart(got, expected) <= (0 if exact else LOOSE.get(name, 2)) or torch.equal(
            got.nan_to_num(), expected.nan_to_num()
        )


def expr_functions() -> set[str]:
    from framejit.backends.fuse.llvm.maths import SLEEF
    return {*SLEEF, "sigmoid", "rsqrt"}


@pytest.mark.parametrize("name", ["floordiv", "truncdiv", "mod", "fmod"])
@pytest.mark.parametrize(
    ("dtype", "divisor"),
    [
        (dtype, divisor)
        for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64)
        for divisor in (3, -7, 1, -1)
        if divisor > 0 or dtype.is_signed
    ],
)
def test_integer_division_by_a_number(name: str, dtype: torch.dtype, divisor: int) -> None:
    assert not supports(name, dtype)
    assert supports(name, dtype, const(divisor, dtype))
    values = samples(dtype)
    if divisor == -1:
        values[values == torch.iinfo(dtype).min] = 0  # torch traps
    got, expected = compiled_and_reference(name, dtype, [values], divisor)
    assert torch.equal(got, expected)


@pytest.mark.parametrize("target", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("source", ALL_DTYPES, ids=str)
def test_cast(source: torch.dtype, target: torch.dtype) -> None:
    x = samples(source)
    if source.is_floating_point and not target.is_floating_point and target != torch.bool:
        x = x.double().nan_to_num(1.0, 2.0, 3.0).clamp(0 if target == torch.uint8 else -100, 100).to(source)
    i = Var("i", x.numel())
    out = torch.zeros(x.numel(), dtype=target)
    which = kernel(
        [i], [], [Store("out", Index.of(i), expr.cast(load("x", Index.of(i), source), target))], {"x": x, "out": out}
    )
    run(compile_cpu_kernel(which), {"x": x, "out": out})
    expected = x.to(target)
    if target.is_floating_point:
        assert steps_apart(out, expected) == 0
    else:
        assert torch.equal(out, expected)


def test_bfloat16_rounds_as_torch_does() -> None:
    bits = torch.arange(0, 1 << 32, 65521, dtype=torch.int64).to(torch.int32)
    near = torch.cat([bits, (bits & ~0xFFFF) | 0x8000, (bits & ~0xFFFF) | 0x7FFF, (bits & ~0xFFFF) | 0x8001])
    x = near.view(torch.float32)
    out = torch.zeros(x.numel(), dtype=torch.bfloat16)
    i = Var("i", x.numel())
    which = kernel(
        [i], [], [Store("out", Index.of(i), expr.cast(load("x", Index.of(i), torch.float32), torch.bfloat16))],
        {"x": x, "out": out},
    )
    run(compile_cpu_kernel(which), {"x": x, "out": out})
    assert steps_apart(out, x.bfloat16()) == 0


@pytest.mark.parametrize("size", [1, 3, 16, 17, 1000])
def test_bitcast(size: int) -> None:
    x = torch.randn(size)
    out = torch.zeros(size, dtype=torch.int32)
    i = Var("i", size)
    which = kernel(
        [i], [], [Store("out", Index.of(i), expr.bitcast(load("x", Index.of(i), torch.float32), torch.int32))],
        {"x": x, "out": out},
    )
    run(compile_cpu_kernel(which), {"x": x, "out": out})
    assert torch.equal(out, x.view(torch.int32))


@pytest.mark.parametrize("target", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
@pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.bfloat16])
def test_floats_that_no_integer_holds(source: torch.dtype, target: torch.dtype) -> None:
    """Known when the kernel is compiled, as ever."""
    for number in (math.nan, math.inf, -math.inf, 1e30, 2.0**63, -2.0**63, 2.0**31, -1.5 * 2.0**31):
        def fn(x: torch.Tensor, number: float = number) -> torch.Tensor:
            filled = x.clone()
            filled[...] = number
            return filled.to(target)

        x = torch.zeros(20, dtype=source)
        assert torch.equal(framejit.optimize(fn, backend="fuse")(x), fn(x)), number
