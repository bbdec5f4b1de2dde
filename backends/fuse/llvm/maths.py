"""Mathematical functions on vectors: Sleef's, which libtorch_cpu exports and eager uses too, or the C library's one
lane at a time."""
from __future__ import annotations

import math
from typing import Final

from framejit.backends.fuse.llvm.assembler import Assembler, Value, like, suffix, vector_type
from framejit.backends.fuse.llvm.machine import machine
from framejit.backends.fuse.llvm.polynomials import INLINE
from framejit.backends.fuse.llvm.processor import address_of

SLEEF: Final[dict[str, str]] = {
    **{
        name: f"{name}|_u10"
        for name in (
            "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
            "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "lgamma", "pow", "atan2",
        )
    },
    "erfc": "erfc|_u15",
    "hypot": "hypot|_u05",
    "fmod": "fmod|",
    "nextafter": "nextafter|",
}
"""Functions of Sleef: name and the suffix that says its accuracy, in tenths of a unit in the last place."""

PURE: Final = " nounwind willreturn memory(none)"


def function(asm: Assembler, name: str, *arguments: Value) -> Value:
    """A function of SLEEF on `float`s or `double`s."""
    first = arguments[0]
    if name in INLINE and first.type == "float" and machine().has_fma:
        return INLINE[name](asm, first)
    if name in ("asinh", "acosh"):
        return _far_out(asm, name, first)
    return library(asm, name, *arguments)


def _far_out(asm: Assembler, name: str, x: Value) -> Value:
    """asinh or acosh, which Sleef squares the argument for: of large ones it is the logarithm of twice the argument."""
    size = asm.intrinsic("fabs", x)
    large = asm.binary("fadd", function(asm, "log", size), like(x, math.log(2)))
    large = asm.intrinsic("copysign", large, x) if name == "asinh" else large
    beyond = asm.compare("ogt", size if name == "asinh" else x, like(x, 1e9))
    return asm.select(beyond, large, library(asm, name, x))


def library(asm: Assembler, name: str, *arguments: Value) -> Value:
    """A function of numbers by a call of Sleef or of the C library."""
    first = arguments[0]
    stem, accuracy = SLEEF[name].split("|")
    letter = "f" if first.type == "float" else "d"
    widest = machine().vector_bytes * 8 // first.bits
    for width in (widest, widest // 2):
        symbol = f"Sleef_{stem}{letter}{width}{accuracy}"
        if width > 1 and (width <= first.lanes or first.lanes == 1 or width == widest // 2) and address_of(symbol):
            return _in_parts(asm, symbol, width, arguments)
    symbol = stem + ("f" if first.type == "float" else "")
    result = Value("poison", first.type, first.lanes)
    if first.lanes == 1:
        return asm.call(symbol, first.type, 1, *arguments, attributes=PURE)
    for lane in range(first.lanes):
        one = asm.call(symbol, first.type, 1, *(asm.extract(argument, lane) for argument in arguments), attributes=PURE)
        result = asm.insert(result, one, lane)
    return result


def _in_parts(asm: Assembler, symbol: str, width: int, arguments: tuple[Value, ...]) -> Value:
    """Calls of a function of `width` lanes, as many as needed; lanes left over are given zeros."""
    type, lanes = arguments[0].type, arguments[0].lanes
    if lanes < width:
        zero = Value("zeroinitializer", type, width)
        if lanes == 1:
            wide = [asm.insert(zero, argument, 0) for argument in arguments]
            return asm.extract(asm.call(symbol, type, width, *wide, attributes=PURE), 0)
        low = list(range(lanes))
        wide = [
            asm.shuffle(argument, Value("zeroinitializer", type, lanes), low + [lanes] * (width - lanes))
            for argument in arguments
        ]
        return asm.shuffle(asm.call(symbol, type, width, *wide, attributes=PURE), None, low)
    if lanes == width:
        return asm.call(symbol, type, width, *arguments, attributes=PURE)
    parts = []
    for start in range(0, lanes, width):
        pieces = [asm.shuffle(argument, None, list(range(start, start + width))) for argument in arguments]
        parts.append(asm.call(symbol, type, width, *pieces, attributes=PURE))
    return concatenated(asm, parts)


def concatenated(asm: Assembler, parts: list[Value]) -> Value:
    """Vectors of one width, a power of two of them, behind one another."""
    while len(parts) > 1:
        parts = [asm.shuffle(a, b, list(range(a.lanes * 2))) for a, b in zip(parts[::2], parts[1::2])]
    return parts[0]


def without_extremes(asm: Assembler, divisor: Value) -> tuple[Value, Value]:
    """(divisor * scale, scale): the scale is 1, or a power of two that keeps the reciprocal of a very small or large
    divisor in range."""
    far = 2.0**100 if divisor.type == "float" else 2.0**900
    size = asm.intrinsic("fabs", divisor)
    scale = asm.select(asm.compare("olt", size, like(divisor, 1 / far)), like(divisor, far), like(divisor, 1))
    scale = asm.select(asm.compare("ogt", size, like(divisor, far)), like(divisor, 1 / far), scale)
    return asm.binary("fmul", divisor, scale), scale


def quotient(asm: Assembler, a: Value, reciprocal: Value, divisor: Value, scale: Value) -> Value:
    """a * scale / divisor, as a division would round it: the error of the product with the reciprocal is exact in a
    fused operation, and is made up for.

    Only where `a` is so small (2^-100 in float32) that this error is denormal may the last place differ.
    """
    a = asm.binary("fmul", a, scale)
    first = asm.binary("fmul", a, reciprocal)
    error = asm.intrinsic("fma", asm.put(f"fneg {first}", a.type, a.lanes), divisor, a)
    finite = asm.put(
        f"call {vector_type('i1', a.lanes)} @{_classify(asm, a)}({error}, i32 {FINITE_NOT_ZERO})", "i1", a.lanes
    )
    return asm.select(finite, asm.intrinsic("fma", error, reciprocal, first), first)


FINITE_NOT_ZERO: Final = 0x198
"""The classes of numbers, as `llvm.is.fpclass` counts them, that an error to make up for is of."""


def _classify(asm: Assembler, a: Value) -> str:
    name = f"llvm.is.fpclass.{suffix(a.type, a.lanes)}"
    asm.module.declare(name, vector_type("i1", a.lanes), [a.full_type, "i32 immarg"])
    return name
