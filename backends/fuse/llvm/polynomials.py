"""The commonest functions of float32 in place, within about 1 unit in the last place: everything stays in registers,
where a call would spill them.

The coefficients are weighted least-squares fits brought near to minimax by reweighting, computed in extended precision
and rounded to float32.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from framejit.backends.fuse.llvm.assembler import Assembler, Value, floating, integer, vector_type
from framejit.backends.fuse.llvm.machine import machine

EXP: Final = [
    0.0013814320554956794, 0.00836885068565607, 0.041668400168418884, 0.1666651964187622, 0.4999999403953552, 1.0,
    1.0,
]
"""exp(r) for |r| <= ln(2) / 2."""
TANH: Final = [
    0.002126227365806699, -0.008159555494785309, 0.021693680435419083, -0.05394551903009415, 0.13333196938037872,
    -0.3333333134651184,
]
"""(tanh(x) - x) / x^3 by powers of x^2, for |x| <= 0.63."""
ERF: Final = [
    7.853882561903447e-05, -0.0008010200690478086, 0.005188328679651022, -0.026853812858462334, 0.1128358542919159,
    -0.3761262595653534, 0.1283791065216064,
]
"""(erf(x) - x) / x by powers of x^2, for |x| <= 1."""
LOG_ERFC: Final = [
    -2.1686757463612594e-05, 0.00044133522897027433, -0.004204555880278349, 0.025208240374922752, -0.1084185466170311,
    -0.6332198977470398, -1.1295783519744873, 0.0001880368363345042,
]
"""log(1 - erf(x)) for 1 <= x <= 3.95."""
LOG: Final = [
    0.06746640056371689, -0.11675652116537094, 0.11888162046670914, -0.1240558922290802, 0.14219552278518677,
    -0.1666799634695053, 0.2000211924314499, -0.25000008940696716, 0.3333331346511841,
]
"""(log(1 + f) - f + f^2 / 2) / f^3 for sqrt(1/2) <= 1 + f <= sqrt(2)."""
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6
"""ln(2) in two parts, the first so short that its product with an exponent is exact."""


def _number(value: float, x: Value) -> Value:
    return floating(value, "float", x.lanes)


def _fma(asm: Assembler, a: Value, b: Value, c: Value) -> Value:
    return asm.intrinsic("fma", a, b, c)


def _below(asm: Assembler, x: Value, bound: float) -> Value:
    """The lesser of a value and a bound; nan stays nan."""
    top = _number(bound, x)
    return asm.select(asm.compare("ogt", x, top), top, x)


def _polynomial(asm: Assembler, x: Value, coefficients: list[float]) -> Value:
    """By Horner's rule; the coefficient of the highest power first."""
    result = _number(coefficients[0], x)
    for coefficient in coefficients[1:]:
        result = _fma(asm, result, x, _number(coefficient, x))
    return result


def exp(asm: Assembler, x: Value) -> Value:
    """exp(x), denormal results included."""
    bottom = _number(-104.5, x)
    x = _below(asm, x, 89.0)
    return _exp_within(asm, asm.select(asm.compare("olt", x, bottom), bottom, x))


def _exp_within(asm: Assembler, x: Value) -> Value:
    """exp(x) = 2^n exp(r) with n the integer nearest to x / ln 2, for x that neither overflows nor vanishes
    altogether."""
    n = asm.intrinsic("roundeven", asm.binary("fmul", x, _number(1 / math.log(2), x)))
    r = _fma(asm, n, _number(-LN2_HIGH, x), x)
    r = _fma(asm, n, _number(-LN2_LOW, x), r)
    return _scaled(asm, _polynomial(asm, r, EXP), n)


def _scaled(asm: Assembler, x: Value, exponent: Value) -> Value:
    """x * 2^exponent, the exponent an integer within -300 to 300 or nan; denormal results are rounded once."""
    lanes = x.lanes
    if machine().is_avx512 and lanes == 16:
        all_lanes, rounding_as_set = Value("-1", "i16"), Value("4", "i32")
        return asm.call(
            "llvm.x86.avx512.mask.scalef.ps.512", "float", 16, x, exponent, Value("zeroinitializer", "float", 16),
            all_lanes, rounding_as_set,
        )
    # two factors, each a normal number, though their product may be none
    whole = asm.put(f"freeze {asm.convert('fptosi', exponent, 'i32')}", "i32", lanes)
    half = asm.binary("ashr", whole, integer(1, "i32", lanes))
    for part in (half, asm.binary("sub", whole, half)):
        bits = asm.binary("shl", asm.binary("add", part, integer(127, "i32", lanes)), integer(23, "i32", lanes))
        x = asm.binary("fmul", x, asm.put(f"bitcast {bits} to {vector_type('float', lanes)}", "float", lanes))
    return x


def tanh(asm: Assembler, x: Value) -> Value:
    """Near zero a polynomial; else 1 - 2 / (exp(2|x|) + 1), with the sign of x."""
    size = asm.intrinsic("fabs", x)
    square = asm.binary("fmul", x, x)
    near = _fma(asm, asm.binary("fmul", _polynomial(asm, square, TANH), square), x, x)
    bounded = _below(asm, size, 9.5)
    power = _exp_within(asm, asm.binary("fadd", bounded, bounded))
    far = asm.binary("fsub", _number(1, x), asm.binary("fdiv", _number(2, x), asm.binary("fadd", power, _number(1, x))))
    return asm.intrinsic("copysign", asm.select(asm.compare("olt", size, _number(0.63, x)), near, far), x)


def erf(asm: Assembler, x: Value) -> Value:
    """Near zero a polynomial; else 1 - exp(a polynomial of |x|), with the sign of x."""
    size = asm.intrinsic("fabs", x)
    near = _fma(asm, _polynomial(asm, asm.binary("fmul", x, x), ERF), x, x)
    rest = _exp_within(asm, _polynomial(asm, _below(asm, size, 3.95), LOG_ERFC))
    far = asm.intrinsic("copysign", asm.binary("fsub", _number(1, x), rest), x)
    return asm.select(asm.compare("olt", size, _number(1, x)), near, far)


def log(asm: Assembler, x: Value) -> Value:
    """log(x) = e ln 2 + log(m) with x = m 2^e and m between sqrt(1/2) and sqrt(2)."""
    lanes = x.lanes
    is_small = asm.compare("olt", x, _number(2.0**-126, x))
    normal = asm.select(is_small, asm.binary("fmul", x, _number(2.0**24, x)), x)
    bits = asm.put(f"bitcast {normal} to {vector_type('i32', lanes)}", "i32", lanes)
    shift, root = integer(23, "i32", lanes), integer(0x3F3504F3, "i32", lanes)  # the bits of sqrt(1/2)
    whole = asm.binary("ashr", asm.binary("sub", bits, root), shift)
    mantissa = asm.binary("sub", bits, asm.binary("shl", whole, shift))
    f = asm.binary(
        "fsub", asm.put(f"bitcast {mantissa} to {vector_type('float', lanes)}", "float", lanes), _number(1, x)
    )
    e = asm.binary("fsub", asm.convert("sitofp", whole, "float"), asm.select(is_small, _number(24, x), _number(0, x)))
    square = asm.binary("fmul", f, f)
    rest = _fma(
        asm, asm.binary("fmul", _polynomial(asm, f, LOG), f), square, asm.binary("fmul", e, _number(LN2_LOW, x))
    )
    rest = _fma(asm, square, _number(-0.5, x), rest)
    result = _fma(asm, e, _number(LN2_HIGH, x), asm.binary("fadd", f, rest))
    # zero, infinity, negative numbers and nan have no exponent to speak of
    result = asm.select(asm.compare("ult", x, _number(math.inf, x)), result, x)
    result = asm.select(asm.compare("oeq", x, _number(0, x)), _number(-math.inf, x), result)
    return asm.select(
        asm.compare("uge", x, _number(0, x)), asm.select(asm.compare("uno", x, x), x, result), _number(math.nan, x)
    )


INLINE: Final[dict[str, Callable[[Assembler, Value], Value]]] = {"exp": exp, "tanh": tanh, "erf": erf, "log": log}
