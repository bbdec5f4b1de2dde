"""Each operation of `expr.OPERATIONS` as LLVM instructions, on scalars and vectors alike."""
from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Final

import torch

from framejit.backends.fuse.llvm import maths
from framejit.backends.fuse.llvm.assembler import Assembler, Value, integer, like, suffix, truth, vector_type
from framejit.backends.fuse.llvm.types import BITS, REGISTER

Operation = Callable[[Assembler, torch.dtype, tuple[Value, ...]], Value]

IS_X86: Final = platform.machine() in ("x86_64", "AMD64")
COMPARISONS: Final = {
    "eq": ("oeq", "eq"), "ne": ("une", "ne"), "lt": ("olt", "lt"), "le": ("ole", "le"), "gt": ("ogt", "gt"),
    "ge": ("oge", "ge"),
}
ARITHMETIC: Final = {"add": ("fadd", "add", "or"), "sub": ("fsub", "sub", "xor"), "mul": ("fmul", "mul", "and")}
BITWISE: Final = {"bitand": "and", "bitor": "or", "bitxor": "xor"}
ROUNDING: Final = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven"}
SPECIAL: Final = {"maximum": ("maximum", "max", "or"), "minimum": ("minimum", "min", "and")}


def operation(asm: Assembler, name: str, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    """The result of an operation on operands of `dtype`, which all have equally many lanes (`where`: dtype of the
    values)."""
    if name in maths.SLEEF and dtype.is_floating_point:
        return maths.function(asm, name, *values)
    if name in COMPARISONS:
        return _compare(asm, name, dtype, *values)
    if name in ARITHMETIC:
        real, whole, logical = ARITHMETIC[name]
        return asm.binary(logical if dtype == torch.bool else real if dtype.is_floating_point else whole, *values)
    if name in BITWISE:
        return asm.binary(BITWISE[name], *values)
    if name in SPECIAL:
        return extreme(asm, name, dtype, *values)
    if name in ROUNDING:
        return asm.intrinsic(ROUNDING[name], *values) if dtype.is_floating_point else values[0]
    return OTHERS[name](asm, dtype, values)


def extreme(asm: Assembler, name: str, dtype: torch.dtype, a: Value, b: Value) -> Value:
    """`maximum` or `minimum`; nan if either is."""
    real, whole, logical = SPECIAL[name]
    if dtype == torch.bool:
        return asm.binary(logical, a, b)
    if dtype.is_floating_point:
        return asm.intrinsic(real, a, b, flags="nsz ")  # which zero comes of 0.0 and -0.0 differs in eager too
    return asm.intrinsic(("s" if dtype.is_signed else "u") + whole, a, b)


def _compare(asm: Assembler, name: str, dtype: torch.dtype, a: Value, b: Value) -> Value:
    real, whole = COMPARISONS[name]
    if dtype.is_floating_point:
        return asm.compare(real, a, b)
    if name in ("eq", "ne"):
        return asm.compare(whole, a, b)
    return asm.compare(("s" if dtype.is_signed and dtype != torch.bool else "u") + whole, a, b)


def _divisor(asm: Assembler, dtype: torch.dtype, a: Value, b: Value) -> Value:
    """A divisor that does not trap: lanes that are not wanted may hold a zero, and the least integer over -1 does not
    fit."""
    if not b.text.startswith("%"):
        return like(b, 1) if b.text in ("0", like(b, 0).text) else b
    bad = asm.compare("eq", b, like(b, 0))
    if dtype.is_signed:
        least = integer(-(1 << (a.bits - 1)), a.type, a.lanes)
        bad = asm.binary("or", bad, asm.binary("and", asm.compare("eq", b, like(b, -1)), asm.compare("eq", a, least)))
    return asm.select(bad, like(b, 1), b)


def _truncdiv(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    a, b = values
    if dtype.is_floating_point:
        return asm.intrinsic("trunc", asm.binary("fdiv", a, b))
    return asm.binary("sdiv" if dtype.is_signed else "udiv", a, _divisor(asm, dtype, a, b))


def _opposed(asm: Assembler, rest: Value, b: Value) -> Value:
    """Whether a remainder is not zero and has another sign than the divisor."""
    if rest.is_float:
        opposite = asm.binary("xor", asm.compare("olt", rest, like(rest, 0)), asm.compare("olt", b, like(b, 0)))
        return asm.binary("and", asm.compare("une", rest, like(rest, 0)), opposite)
    return asm.binary(
        "and", asm.compare("ne", rest, like(rest, 0)), asm.compare("slt", asm.binary("xor", rest, b), like(rest, 0))
    )


def _floordiv(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    a, b = values
    if not dtype.is_floating_point:
        b = _divisor(asm, dtype, a, b)
        if not dtype.is_signed:
            return asm.binary("udiv", a, b)
        quotient = asm.binary("sdiv", a, b)
        rest = asm.binary("sub", a, asm.binary("mul", quotient, b))
        return asm.select(_opposed(asm, rest, b), asm.binary("sub", quotient, like(a, 1)), quotient)
    plain = asm.binary("fdiv", a, b)
    rest = maths.function(asm, "fmod", a, b)
    quotient = asm.binary("fdiv", asm.binary("fsub", a, rest), b)
    quotient = asm.select(_opposed(asm, rest, b), asm.binary("fsub", quotient, like(a, 1)), quotient)
    whole = asm.intrinsic("floor", quotient)  # the division may have rounded to just below an integer
    whole = asm.select(
        asm.compare("ogt", asm.binary("fsub", quotient, whole), like(a, 0.5)),
        asm.binary("fadd", whole, like(a, 1)),
        whole,
    )
    whole = asm.select(asm.compare("oeq", quotient, like(a, 0)), asm.intrinsic("copysign", like(a, 0), plain), whole)
    finite = asm.compare("olt", asm.intrinsic("fabs", a), like(a, float("inf")))
    # Sleef gives up where the quotient is huge
    whole = asm.select(asm.binary("and", finite, asm.compare("uno", rest, rest)), plain, whole)
    return asm.select(asm.compare("oeq", b, like(b, 0)), plain, whole)


def _mod(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    a, b = values
    if dtype.is_floating_point:
        rest = maths.function(asm, "fmod", a, b)
        return asm.select(_opposed(asm, rest, b), asm.binary("fadd", rest, b), rest)
    b = _divisor(asm, dtype, a, b)
    if not dtype.is_signed:
        return asm.binary("urem", a, b)
    rest = asm.binary("srem", a, b)
    return asm.select(_opposed(asm, rest, b), asm.binary("add", rest, b), rest)


def _fmod(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:  # of integers
    a, b = values
    return asm.binary("srem" if dtype.is_signed else "urem", a, _divisor(asm, dtype, a, b))


def _shift(left: bool) -> Operation:
    def emit(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
        a, b = values
        last = integer(a.bits - 1, a.type, a.lanes)
        inside = asm.compare("ule", b, last)  # a negative count is a large one
        if not left and dtype.is_signed:
            return asm.binary("ashr", a, asm.select(inside, b, last))
        return asm.select(
            inside, asm.binary("shl" if left else "lshr", a, asm.select(inside, b, like(b, 0))), like(a, 0)
        )

    return emit


def _neg(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    a, = values
    return asm.put(f"fneg {a}", a.type, a.lanes) if a.is_float else asm.binary("sub", like(a, 0), a)


def _abs(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    a, = values
    if a.is_float:
        return asm.intrinsic("fabs", a)
    return asm.intrinsic("abs", a, truth(False)) if dtype.is_signed else a


def _sign(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    a, = values
    if dtype == torch.bool:
        return a
    zero, one = like(a, 0), like(a, 1)
    if not a.is_float:
        negative = asm.binary("ashr", a, integer(a.bits - 1, a.type, a.lanes)) if dtype.is_signed else zero
        return asm.select(asm.compare("sgt" if dtype.is_signed else "ugt", a, zero), one, negative)
    unit = asm.select(asm.compare("olt", a, zero), like(a, -1), asm.select(asm.compare("uno", a, a), a, zero))
    return asm.select(asm.compare("ogt", a, zero), one, unit)


def _bitnot(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    a, = values
    return asm.binary("xor", a, truth(True, a.lanes) if dtype == torch.bool else like(a, -1))


def _signbit(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    a, = values
    if not dtype.is_signed:
        return truth(False, a.lanes)
    return asm.compare("slt", _as_integer(asm, a), integer(0, f"i{a.bits}", a.lanes))


def _isnan(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    a, = values
    return asm.compare("uno", a, a) if a.is_float else truth(False, a.lanes)


def _isinf(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    a, = values
    return asm.compare("oeq", asm.intrinsic("fabs", a), like(a, float("inf"))) if a.is_float else truth(False, a.lanes)


def _reciprocal(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    return asm.binary("fdiv", like(values[0], 1), values[0])


def _sqrt(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    return asm.intrinsic("sqrt", *values)


def _rsqrt(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    return _reciprocal(asm, dtype, (_sqrt(asm, dtype, values),))


def _sigmoid(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    a, = values
    negated = asm.put(f"fneg {a}", a.type, a.lanes)
    return _reciprocal(asm, dtype, (asm.binary("fadd", like(a, 1), maths.function(asm, "exp", negated)),))


def _div(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    return asm.binary("fdiv", *values)


def _named(name: str) -> Operation:
    return lambda asm, dtype, values: asm.intrinsic(name, *values)


def _where(asm: Assembler, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    return asm.select(*values)


OTHERS: Final[dict[str, Operation]] = {
    "div": _div, "truncdiv": _truncdiv, "floordiv": _floordiv, "mod": _mod, "fmod": _fmod, "shl": _shift(True),
    "shr": _shift(False), "neg": _neg, "abs": _abs,
    "sign": _sign, "bitnot": _bitnot, "signbit": _signbit, "isnan": _isnan, "isinf": _isinf, "reciprocal": _reciprocal,
    "sqrt": _sqrt, "rsqrt": _rsqrt,
    "sigmoid": _sigmoid, "fmax": _named("maxnum"), "fmin": _named("minnum"), "copysign": _named("copysign"),
    "where": _where,
}


def _as_integer(asm: Assembler, a: Value) -> Value:
    return asm.put(f"bitcast {a} to {vector_type(f'i{a.bits}', a.lanes)}", f"i{a.bits}", a.lanes) if a.is_float else a


def bitcast(asm: Assembler, a: Value, dtype: torch.dtype) -> Value:
    """The bits of a value as another dtype of the same width."""
    type = REGISTER[dtype]
    return a if a.type == type else asm.put(f"bitcast {a} to {vector_type(type, a.lanes)}", type, a.lanes)


def cast(asm: Assembler, a: Value, source: torch.dtype, target: torch.dtype) -> Value:
    """A value in another dtype, as C converts; float16 and bfloat16 by way of float32, as eager does."""
    if source == target:
        return a
    if source == torch.bfloat16:
        return cast(asm, _widened(asm, a), torch.float32, target)
    if target == torch.bfloat16:
        return _narrowed(asm, cast(asm, a, source, torch.float32))
    if source == torch.float16 and target != torch.float32:
        return cast(asm, asm.convert("fpext", a, "float"), torch.float32, target)
    if target == torch.float16 and source != torch.float32:
        return cast(asm, cast(asm, a, source, torch.float32), torch.float32, target)
    type = REGISTER[target]
    if target == torch.bool:
        return asm.compare("une" if a.is_float else "ne", a, like(a, 0))
    if a.is_float:
        if target.is_floating_point:
            return asm.convert("fptrunc" if BITS[type] < a.bits else "fpext", a, type)
        return asm.convert("trunc", _whole(asm, a, type if BITS[type] >= 32 else "i32"), type)
    signed = source.is_signed and source != torch.bool
    if target.is_floating_point:
        return asm.convert("sitofp" if signed else "uitofp", a, type)
    if BITS[type] == a.bits:
        return a
    return asm.convert("trunc" if BITS[type] < a.bits else "sext" if signed else "zext", a, type)


def _whole(asm: Assembler, a: Value, type: str) -> Value:
    """The whole part of a float as a signed integer of 32 or 64 bits. What does not fit becomes what the machine's own
    conversion, eager's, makes of it: the least integer on x86 (Intel's manual, CVTTSD2SI), elsewhere the nearest one,
    and 0 of nan. LLVM leaves it undefined, and takes any number where it knows the float when it compiles."""
    if not IS_X86:
        name = f"llvm.fptosi.sat.{suffix(type, a.lanes)}.{suffix(a.type, a.lanes)}"
        return asm.call(name, type, a.lanes, a)
    end = 2.0 ** (BITS[type] - 1)
    fits = asm.binary("and", asm.compare("oge", a, like(a, -end)), asm.compare("olt", a, like(a, end)))
    return asm.select(fits, asm.convert("fptosi", a, type), integer(-int(end), type, a.lanes))


def _widened(asm: Assembler, a: Value) -> Value:
    """bfloat16's bits as a float32."""
    wide = asm.binary("shl", asm.convert("zext", a, "i32"), integer(16, "i32", a.lanes))
    return asm.put(f"bitcast {wide} to {vector_type('float', a.lanes)}", "float", a.lanes)


def _narrowed(asm: Assembler, a: Value) -> Value:
    """A float32 rounded to bfloat16's bits, halves to even; nan becomes the quiet one that torch writes."""
    bits = _as_integer(asm, a)
    odd = asm.binary("and", asm.binary("lshr", bits, integer(16, "i32", a.lanes)), integer(1, "i32", a.lanes))
    rounded = asm.binary(
        "lshr",
        asm.binary("add", asm.binary("add", bits, integer(0x7FFF, "i32", a.lanes)), odd),
        integer(16, "i32", a.lanes),
    )
    return asm.convert("trunc", asm.select(asm.compare("uno", a, a), integer(0x7FC0, "i32", a.lanes), rounded), "i16")
