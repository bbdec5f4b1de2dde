"""Elementwise operations: how each makes its result of the elements at one place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import COMPUTE, Expr, cast, const, nearest, op, rounded
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.fusable import can_hold, supports_body
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, compute_dtype
from framejit.backends.fuse.lowering.lowerings import FUSED_DTYPES, lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.operators.promotion import result_type
from framejit.environment.nan_bounds import nan_alone_binds

Body = Callable[..., Any]

SLOW: Final = frozenset(("sin", "cos", "tan", "lgamma"))
"""Operations of tens of instructions. 44 kernels of a decoder that each found the sines of positions anew, for each
head, took 30 us on an H200 where reading them takes 9."""


def pointwise(
    *names: str, operands: int = 1, floating: bool = False, cost: int = 1, factor: bool = False
) -> Callable[[Body], Body]:
    """Register what an elementwise operation does with one element.

    The body gets the first `operands` arguments as expressions of the common dtype (None where there is none), and the
    rest as they are. It gives an expression, or NotImplemented for what it can't do. `floating`: integers are taken as
    floats. `cost`: the operations that it takes. `factor` is `elementwise`'s.
    """

    def register(body: Body) -> Body:
        def lower(b: Builder, out: Value, *args: Any, **kwargs: Any) -> Any:
            if floating and not out.dtype.is_floating_point:
                return NotImplemented  # in place on integers: an error
            return elementwise(
                b, out, body, args[:operands], args[operands:], kwargs, names[0], floating, cost, factor=factor
            )

        lowers(*names)(lower)
        return body

    return register


def elementwise(
    b: Builder,
    out: Value,
    body: Body,
    operands: Sequence[Any],
    rest: Sequence[Any],
    kwargs: dict[str, Any],
    name: str,
    floating: bool = False,
    cost: int = 1,
    dtype: torch.dtype | None = None,
    factor: bool = False,
) -> Any:
    """A tensor like `out` that `body` makes of Tensors and numbers, in their common dtype if no `dtype` is given.

    Operands of other dtypes are rounded to it, numbers too. `factor`: but not a number that is the second of two
    operands (on GPUs either), which ATen's operation takes as it is.
    """
    if out.dtype not in FUSED_DTYPES or any(
        isinstance(x, complex) or (isinstance(x, Tensor) and x.dtype not in FUSED_DTYPES) for x in operands
    ):
        return NotImplemented
    common = dtype or common_dtype(operands, floating)
    dtype = compute_dtype(common)
    tensors = [on_device(b, x, out.device) for x in operands if isinstance(x, Tensor)]

    def combine(*values: Expr) -> Any:
        given = iter(values)
        taken: list[Expr | None] = []
        for position, x in enumerate(operands):
            value = next(given) if isinstance(x, Tensor) else None if x is None else const(x, dtype)
            if value is not None:
                as_it_is = isinstance(x, Tensor) and x.dtype == common
                as_it_is |= factor and (position == 1 or out.device.type != "cpu") and _is_number(x)
                value = cast(value, dtype) if as_it_is else rounded(value, common)
            taken.append(value)
        return body(*taken, *rest, **kwargs)

    shown = f"{name}{common}{[x is None or isinstance(x, Tensor) or 0 for x in operands]}{rest}{kwargs}"
    if not tensors or not supports_body(
        shown, combine, tuple(compute_dtype(tensor.dtype) for tensor in tensors), out.device
    ):
        return NotImplemented
    return b.map(combine, *tensors, dtype=out.dtype, sizes=tuple(out.shape), ops=cost, slow=name in SLOW)


def _is_number(x: Any) -> bool:
    """Whether ATen's kernels are handed it as a number: on a GPU, too, they are what is kept in the CPU's memory."""
    return not isinstance(x, Tensor) or not x.sizes and x.device.type == "cpu"


def common_dtype(operands: Sequence[Any], floating: bool) -> torch.dtype:
    """In which dtype an operation on these computes."""
    dtype = result_type(operands)
    return torch.get_default_dtype() if floating and not dtype.is_floating_point else dtype


def on_device(b: Builder, tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor, moved if it is a number kept in the memory of the CPU, as operands of CUDA operations may be."""
    if tensor.device == device or tensor.sizes:
        return tensor
    # ATen would hand the number to the kernel; a kernel of ours reads pointers only, so it is copied.
    moved = b.buffer((), (), tensor.dtype, device)
    b.extern(torch.Tensor.to, (tensor, device), results=moved)
    return Tensor.of(b.held(moved))


# ---- one operand ----

_FLOATING = (
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
)
_SPECIAL = {
    "exp2": "special_exp2",
    "expm1": "special_expm1",
    "log1p": "special_log1p",
    "erf": "special_erf",
    "erfc": "special_erfc",
    "lgamma": "special_gammaln",
    "sigmoid": "special_expit",
}


def _unary(name: str) -> Body:
    return lambda x: op(name, x)


for _name in _FLOATING:
    pointwise(_name, *([_SPECIAL[_name]] if _name in _SPECIAL else []), floating=True)(_unary(_name))


def _unless_integer(name: str) -> Body:
    return lambda x: op(name, x) if x.dtype.is_floating_point else x


for _name in ("floor", "ceil", "trunc"):
    pointwise(_name)(_unless_integer(_name))
pointwise("neg")(_unary("neg"))


@pointwise("round")
def _round(x: Expr, *, decimals: int = 0) -> Any:
    return NotImplemented if decimals else op("round", x) if x.dtype.is_floating_point else x


@pointwise("abs")
def _abs(x: Expr) -> Expr:
    return op("abs", x) if x.dtype.is_signed else x


@pointwise("sign", "sgn")
def _sign(x: Expr) -> Expr:
    if x.dtype.is_floating_point:  # ATen's sign of nan is zero
        return a.sub(cast(a.gt(x, 0), x.dtype), cast(a.lt(x, 0), x.dtype))
    return x if x.dtype == torch.bool else op("sign", x)


@pointwise("positive", "clone", "lift_fresh_copy")
def _same(x: Expr, **_: Any) -> Expr:
    return x


@lowers("_to_copy")
def _to_copy(b: Builder, out: Value, x: Tensor, **_: Any) -> Any:
    if x.device != out.device or out.dtype not in FUSED_DTYPES or x.dtype not in FUSED_DTYPES:
        return NotImplemented
    return b.map(lambda value: _converted(value, x.dtype, out.dtype), x, dtype=out.dtype)


def _converted(value: Expr, before: torch.dtype, dtype: torch.dtype) -> Expr:
    """The value after an explicit conversion, which loses what the dtype has no room for, even if the value goes on
    being computed with. One to float64, as of a number that the program reads, is of what `before` had room for."""
    return rounded(rounded(value, before) if dtype == torch.float64 else value, dtype)


@lowers("copy")
def _copy(b: Builder, out: Value, x: Tensor, source: Tensor | complex, non_blocking: bool = False) -> Any:
    # `x.copy_(2)`: torch makes a tensor of the number, of the widest dtype of its kind
    if not isinstance(source, Tensor):
        if not isinstance(source, (bool, int, float)) or not can_hold(out.dtype, out.device):
            return NotImplemented
        wide = torch.bool if isinstance(source, bool) else torch.float64 if isinstance(source, float) else torch.int64
        element = rounded(const(source, wide), out.dtype)
        return b.indexed(lambda _: element, sizes=tuple(out.shape), dtype=out.dtype, device=out.device)
    if source.device != out.device or out.dtype not in FUSED_DTYPES or source.dtype not in FUSED_DTYPES:
        return NotImplemented
    return b.map(
        lambda value: _converted(value, source.dtype, out.dtype), source, dtype=out.dtype, sizes=tuple(out.shape)
    )


@pointwise("square")
def _square(x: Expr) -> Expr:
    return a.mul(x, x)


@pointwise("bitwise_not")
def _bitwise_not(x: Expr) -> Expr:
    return op("bitnot", x)


@pointwise("logical_not")
def _logical_not(x: Expr) -> Expr:
    return a.negated(a.truth(x))


@pointwise("isnan")
def _isnan(x: Expr) -> Expr:
    return op("isnan", x) if x.dtype.is_floating_point else const(False, torch.bool)


@pointwise("isinf")
def _isinf(x: Expr) -> Expr:
    return op("isinf", x) if x.dtype.is_floating_point else const(False, torch.bool)


@pointwise("isfinite", cost=2)
def _isfinite(x: Expr) -> Expr:
    return a.lt(op("abs", x), math.inf) if x.dtype.is_floating_point else const(True, torch.bool)


@pointwise("isposinf")
def _isposinf(x: Expr) -> Expr:
    return a.eq(x, math.inf) if x.dtype.is_floating_point else const(False, torch.bool)


@pointwise("isneginf")
def _isneginf(x: Expr) -> Expr:
    return a.eq(x, -math.inf) if x.dtype.is_floating_point else const(False, torch.bool)


@pointwise("signbit")
def _signbit(x: Expr) -> Expr:
    if x.dtype.is_floating_point:
        return op("signbit", x)
    return a.lt(x, 0) if x.dtype.is_signed else const(False, torch.bool)


@pointwise("frac", cost=2)
def _frac(x: Expr) -> Expr:
    return a.sub(x, op("trunc", x))


@pointwise("deg2rad", floating=True)
def _deg2rad(x: Expr) -> Expr:
    return a.mul(x, math.pi / 180)


@pointwise("rad2deg", floating=True)
def _rad2deg(x: Expr) -> Expr:
    return a.mul(x, 180 / math.pi)


@lowers("nan_to_num")
def _nan_to_num(
    b: Builder, out: Value, x: Tensor, nan: float | None = None, posinf: float | None = None,
    neginf: float | None = None,
) -> Any:
    if not x.dtype.is_floating_point:
        return elementwise(b, out, _same, (x,), (), {}, "clone")
    limits = torch.finfo(x.dtype)
    high, low = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf

    def body(value: Expr, odd: Expr, high: Expr, low: Expr) -> Expr:
        finite = a.where(a.eq(value, math.inf), high, a.where(a.eq(value, -math.inf), low, value))
        return a.where(op("isnan", value), odd, finite)

    return elementwise(b, out, body, (x, nan or 0.0, high, low), (), {}, "nan_to_num", dtype=x.dtype, cost=6)


# ---- two operands ----


def _add(x: Expr, y: Expr, alpha: Any = 1) -> Any:
    if x.dtype == torch.bool:
        return a.either(x, y) if alpha else x
    return a.add(x, y if alpha == 1 else a.mul(y, alpha))


def _sub(x: Expr, y: Expr, alpha: Any = 1) -> Any:
    return a.sub(x, y if alpha == 1 else a.mul(y, alpha))


@lowers("add")
def _lower_add(b: Builder, out: Value, x: Any, y: Any, alpha: Any = 1) -> Any:
    return _sum(b, out, _add, x, y, alpha, "add")


@lowers("sub")
def _lower_sub(b: Builder, out: Value, x: Any, y: Any, alpha: Any = 1) -> Any:
    return _sum(b, out, _sub, x, y, alpha, "sub")


@lowers("rsub")
def _rsub(b: Builder, out: Value, x: Any, y: Any, alpha: Any = 1) -> Any:
    return _sum(b, out, _sub, y, x, alpha, "sub")


def _sum(b: Builder, out: Value, body: Body, x: Any, y: Any, alpha: Any, name: str) -> Any:
    """ATen rounds the numbers in sums to the dtype on CPUs, and not on GPUs."""
    as_it_is = out.device.type != "cpu"
    common = common_dtype((x, y), False)
    if common in COMPUTE and isinstance(alpha, (int, float)) and not as_it_is:
        alpha = nearest(alpha, common)
    return elementwise(b, out, body, (x, y), (alpha,), {}, name, factor=as_it_is)


@pointwise("mul", "multiply", operands=2, factor=True)
def _mul(x: Expr, y: Expr) -> Expr:
    return a.both(x, y) if x.dtype == torch.bool else a.mul(x, y)


@lowers("floor_divide")
def _floor_divide(b: Builder, out: Value, x: Any, y: Any) -> Any:
    return _rounded_division(b, out, x, y, "floor")


@lowers("div", "divide", "true_divide")
def _div(b: Builder, out: Value, x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        body = partial(times_inverse, number=y) if _is_inverted(out, y) else a.div
        return elementwise(b, out, body, (x, y), (), {}, "div", floating=True, factor=True)
    return _rounded_division(b, out, x, y, rounding_mode)


def _is_inverted(out: Value, y: Any) -> bool:
    """Whether ATen multiplies with the inverse of a divisor: of a number, on GPUs (BinaryDivTrueKernel.cu)."""
    return out.device.type != "cpu" and _is_number(y)


def times_inverse(x: Expr, y: Expr, number: Any = None) -> Expr:
    """The quotient by a number, `y` where it stands in the kernel, as ATen finds it on GPUs."""
    return a.mul(x, _inverse(y, number))


def _inverse(y: Expr, number: Any = None) -> Expr:
    """The inverse of `y`, in its dtype. Of a number of Python's it is found in double precision and rounded then: for
    10.1 in float32 another one than that of the rounded number. Divisions that are cut off or rounded down take the
    latter: with the former 16 of 1,040 multiples of 10.1 differed from torch 2.11's on an H100."""
    if y.op != "const":
        return op("reciprocal", y)
    exact = number if isinstance(number, (int, float)) else y.attr
    return const(1 / exact if exact else math.copysign(math.inf, exact), y.dtype)


def floor_of_inverted(x: Expr, y: Expr) -> Expr:
    """The quotient by a number, rounded to minus infinity, as ATen finds it on GPUs: from the exact remainder."""
    inverse, rest = _inverse(y), op("fmod", x, y)
    product = a.mul(x, inverse)
    quotient = a.mul(a.sub(x, rest), inverse)
    below = a.both(a.ne(rest, 0.0), op("bitxor", a.lt(y, 0.0), a.lt(rest, 0.0)))
    quotient = a.where(below, a.sub(quotient, 1.0), quotient)
    floor = op("floor", quotient)
    whole = a.where(a.gt(a.sub(quotient, floor), 0.5), a.add(floor, 1.0), floor)
    whole = a.where(a.eq(quotient, 0.0), op("copysign", const(0.0, x.dtype), product), whole)
    return a.where(a.eq(y, 0.0), product, whole)


def _rounded_division(b: Builder, out: Value, x: Any, y: Any, mode: str) -> Any:
    dtype = common_dtype((x, y), False)
    if not dtype.is_floating_point and not _safe_divisor(y):
        return NotImplemented
    if mode == "trunc" and dtype.is_floating_point:
        # the quotient by a tensor is rounded to its dtype before it is cut off: bfloat16's 17.99 gives 18; that by a
        # number is not
        kept = compute_dtype(dtype) if _is_number(y) else dtype
        divide = times_inverse if _is_inverted(out, y) else a.div
        return elementwise(
            b, out, lambda p, q: op("trunc", rounded(divide(p, q), kept)), (x, y), (), {}, f"div_trunc{kept}", cost=2,
            factor=True,
        )
    if dtype.is_floating_point and _is_inverted(out, y):
        return elementwise(b, out, floor_of_inverted, (x, y), (), {}, "floor_of_inverted", factor=True, cost=4)
    name = "floordiv" if mode == "floor" else "truncdiv"
    return elementwise(b, out, lambda p, q: op(name, p, q), (x, y), (), {}, name, factor=True)


def _safe_divisor(y: Any) -> bool:
    """Whether an integer division by it surely neither raises nor overflows."""
    return isinstance(y, int) and y not in (0, -1)


@lowers("remainder")
def _remainder(b: Builder, out: Value, x: Any, y: Any) -> Any:
    if not common_dtype((x, y), False).is_floating_point and not _safe_divisor(y):
        return NotImplemented
    return elementwise(b, out, lambda p, q: op("mod", p, q), (x, y), (), {}, "remainder", cost=4)


@lowers("fmod")
def _fmod(b: Builder, out: Value, x: Any, y: Any) -> Any:
    if not common_dtype((x, y), False).is_floating_point:
        return NotImplemented
    return elementwise(b, out, lambda p, q: op("fmod", p, q), (x, y), (), {}, "fmod", cost=4)


def _binary(name: str) -> Body:
    return lambda x, y: op(name, x, y)


for _name in ("fmax", "fmin"):
    pointwise(_name, operands=2)(
        lambda x, y, _name=_name: op(_name if x.dtype.is_floating_point else _name.replace("f", "") + "imum", x, y)
    )
for _name in ("copysign", "atan2"):
    pointwise(_name, operands=2, floating=True)(_binary(_name))
pointwise("hypot", operands=2)(_binary("hypot"))


@lowers("nextafter")
def _nextafter(b: Builder, out: Value, x: Tensor, y: Tensor) -> Any:
    if compute_dtype(out.dtype) != out.dtype:
        return NotImplemented  # the next one in the dtype that is computed in is another
    return elementwise(b, out, _binary("nextafter"), (x, y), (), {}, "nextafter")


for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    pointwise(_name, f"__{_name.removeprefix('bitwise_')}__", operands=2)(_binary(_name.replace("wise_", "")))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    pointwise(_name, operands=2)(_binary(_name))
for _name, _long in (
    ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal"),
):
    pointwise(_long, operands=2)(_binary(_name))


def _extremum(name: str, logical: Callable[[Expr, Expr], Expr]) -> Body:
    return lambda x, y: logical(x, y) if x.dtype == torch.bool else op(name, x, y)


pointwise("maximum", operands=2)(_extremum("maximum", a.either))
pointwise("minimum", operands=2)(_extremum("minimum", a.both))


@pointwise("logical_and", operands=2)
def _logical_and(x: Expr, y: Expr) -> Expr:
    return a.both(a.truth(x), a.truth(y))


@pointwise("logical_or", operands=2)
def _logical_or(x: Expr, y: Expr) -> Expr:
    return a.either(a.truth(x), a.truth(y))


@pointwise("logical_xor", operands=2)
def _logical_xor(x: Expr, y: Expr) -> Expr:
    return op("bitxor", a.truth(x), a.truth(y))


@pointwise("xlogy", "special_xlogy", operands=2, floating=True, cost=4)
def _xlogy(x: Expr, y: Expr) -> Expr:
    return a.where(op("isnan", y), math.nan, a.where(a.eq(x, 0), 0, a.mul(x, op("log", y))))


@pointwise("logaddexp", operands=2, floating=True, cost=6)
def _logaddexp(x: Expr, y: Expr) -> Expr:
    tail = op("log1p", op("exp", op("neg", op("abs", a.sub(x, y)))))
    return a.where(a.both(op("isinf", x), a.eq(x, y)), x, a.add(a.maximum(x, y), tail))


@pointwise("logaddexp2", operands=2, floating=True, cost=6)
def _logaddexp2(x: Expr, y: Expr) -> Expr:
    tail = a.mul(op("log1p", op("exp2", op("neg", op("abs", a.sub(x, y))))), 1 / math.log(2))
    return a.where(a.both(op("isinf", x), a.eq(x, y)), x, a.add(a.maximum(x, y), tail))


@pointwise("special_xlog1py", operands=2, floating=True, cost=4)
def _xlog1py(x: Expr, y: Expr) -> Expr:
    return a.where(op("isnan", y), math.nan, a.where(a.eq(x, 0), 0, a.mul(x, op("log1p", y))))


@pointwise("heaviside", operands=2, cost=3)
def _heaviside(x: Expr, at_zero: Expr) -> Expr:
    return a.where(a.eq(x, 0), at_zero, cast(a.gt(x, 0), x.dtype))


@pointwise("sinc", "special_sinc", floating=True, cost=4)
def _sinc(x: Expr) -> Expr:
    angle = a.mul(x, math.pi)
    return a.where(a.eq(x, 0), 1.0, a.div(op("sin", angle), angle))


@pointwise("special_entr", floating=True, cost=5)
def _entr(x: Expr) -> Expr:
    return a.where(
        op("isnan", x),
        x,
        a.where(a.gt(x, 0), op("neg", a.mul(x, op("log", x))), a.where(a.eq(x, 0), 0.0, const(-math.inf, x.dtype))),
    )


@lowers("pow")
def _pow(b: Builder, out: Value, x: Any, y: Any) -> Any:
    if isinstance(y, (int, float)) and not isinstance(y, bool):
        if out.dtype in COMPUTE:
            y = nearest(y, out.dtype)
        # of minus infinity a root is nan, and a power infinity or 0; ATen takes the root but for float16
        if out.dtype == torch.float16 and abs(y) == 0.5:
            return elementwise(b, out, lambda p: a.power(p, float(y)), (x,), (), {}, f"pow_half{y}", cost=8)
        return elementwise(
            b, out, _pow_by, (x,), (y,), {}, "pow", dtype=out.dtype if out.dtype in FUSED_DTYPES else None, cost=2
        )
    if not common_dtype((x, y), False).is_floating_point:
        return NotImplemented  # a negative exponent is an error
    return elementwise(b, out, lambda p, q: op("pow", p, q), (x, y), (), {}, "pow_tensor", cost=8)


def _pow_by(x: Expr, exponent: float) -> Any:
    if not x.dtype.is_floating_point:
        if exponent not in (1, 2, 3):
            return NotImplemented
    elif exponent in (0.5, -0.5):
        return op("sqrt" if exponent > 0 else "rsqrt", x)
    elif exponent == -1:
        return op("reciprocal", x)
    elif exponent == -2:
        return op("reciprocal", a.mul(x, x))
    if exponent in (1, 2, 3):
        return x if exponent == 1 else a.mul(x, x) if exponent == 2 else a.mul(a.mul(x, x), x)
    return a.power(x, float(exponent))


# ---- three operands ----


@lowers("where")
def _where(b: Builder, out: Value, condition: Tensor, x: Any = None, y: Any = None) -> Any:
    if (
        x is None
        or out.dtype not in FUSED_DTYPES
        or isinstance(x, complex)
        or isinstance(y, complex)
        or condition.dtype not in (torch.bool, torch.uint8)
    ):
        return NotImplemented
    dtype = compute_dtype(out.dtype)
    if not all(x.dtype in FUSED_DTYPES for x in (x, y) if isinstance(x, Tensor)):
        return NotImplemented
    tensors = [on_device(b, value, out.device) for value in (condition, x, y) if isinstance(value, Tensor)]

    def body(chosen: Expr, *values: Expr) -> Expr:
        given = iter(values)
        p, q = (
            cast(next(given), dtype)
            if isinstance(value, Tensor) and value.dtype == out.dtype
            else rounded(next(given) if isinstance(value, Tensor) else const(value, dtype), out.dtype)
            for value in (x, y)
        )
        return a.where(a.truth(chosen), p, q)

    return b.map(body, *tensors, dtype=out.dtype, sizes=tuple(out.shape))


@lowers("masked_fill")
def _masked_fill(b: Builder, out: Value, x: Tensor, mask: Tensor, value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype not in FUSED_DTYPES:
        return NotImplemented
    return _where(b, out, mask, value, x)


def _clamp(x: Expr, low: Expr | None = None, high: Expr | None = None) -> Expr:
    if low is not None:
        x = a.maximum(x, low)
    return x if high is None else a.minimum(x, high)


def holds_bound(bound: Any, dtype: torch.dtype) -> bool:
    """Whether an integer dtype is sure to hold a bound: one that it can't hold binds nothing from torch 2.15 on, where
    it does not raise."""
    if bound is None or isinstance(bound, Tensor) or dtype.is_floating_point or dtype == torch.int64:
        return True
    info = torch.iinfo(dtype)
    return not isinstance(bound, torch.SymInt) and info.min <= bound <= info.max


def _is_nan(bound: Any) -> bool:
    return isinstance(bound, float) and math.isnan(bound)


@lowers("clamp", "clip")
def _lower_clamp(b: Builder, out: Value, x: Tensor, min: Any = None, max: Any = None) -> Any:
    if not (holds_bound(min, out.dtype) and holds_bound(max, out.dtype)):
        return NotImplemented
    if (min is None or max is None) and (_is_nan(min) or _is_nan(max)) and not nan_alone_binds():
        return NotImplemented
    return elementwise(b, out, _clamp, (x, min, max), (), {}, "clamp", cost=2)


@lowers("clamp_min")
def _clamp_min(b: Builder, out: Value, x: Tensor, min: Any) -> Any:
    return (
        elementwise(b, out, a.maximum, (x, min), (), {}, "clamp_min") if holds_bound(min, out.dtype) else NotImplemented
    )


@lowers("clamp_max")
def _clamp_max(b: Builder, out: Value, x: Tensor, max: Any) -> Any:
    return (
        elementwise(b, out, a.minimum, (x, max), (), {}, "clamp_max") if holds_bound(max, out.dtype) else NotImplemented
    )


@lowers("lerp")
def _lower_lerp(b: Builder, out: Value, start: Any, end: Any, weight: Any) -> Any:
    if isinstance(weight, Tensor):
        return elementwise(b, out, _lerp, (start, end, weight), (), {}, "lerp", cost=4)
    # ATen's operation takes the number as it is, also of halves
    return elementwise(
        b, out, lambda p, q, k: _lerp(p, q, const(k, p.dtype)), (start, end), (weight,), {}, "lerp", cost=4
    )


def _lerp(start: Expr, end: Expr, weight: Expr) -> Expr:
    step = a.sub(end, start)
    return a.where(
        a.lt(op("abs", weight), 0.5), a.add(start, a.mul(weight, step)), a.sub(end, a.mul(step, a.sub(1.0, weight)))
    )


@lowers("addcmul")
def _addcmul(b: Builder, out: Value, x: Any, p: Any, q: Any, *, value: Any = 1) -> Any:
    return _added(b, out, a.mul, (x, p, q), value, "addcmul")


@lowers("addcdiv")
def _addcdiv(b: Builder, out: Value, x: Any, p: Any, q: Any, *, value: Any = 1) -> Any:
    return _added(b, out, a.div, (x, p, q), value, "addcdiv") if out.dtype.is_floating_point else NotImplemented


def _added(b: Builder, out: Value, body: Body, operands: tuple[Any, ...], value: Any, name: str) -> Any:
    """x + value * body(p, q), in the order in which ATen's overflows: on CPUs `value` is a factor of `p`, on GPUs of
    what `body` gives."""

    def combine(x: Expr, p: Expr, q: Expr, *, value: Any) -> Expr:
        if value == 1:
            return a.add(x, body(p, q))
        return a.add(x, body(a.mul(p, value), q) if out.device.type == "cpu" else a.mul(body(p, q), value))

    return elementwise(b, out, combine, operands, (), {"value": value}, name, name == "addcdiv", 3)
