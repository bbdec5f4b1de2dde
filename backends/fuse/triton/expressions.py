"""Each operation of the IR as a Triton expression."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import torch

from framejit.backends.fuse.triton.triton_support import INTEGERS

TRITON_DTYPES: Final = {
    torch.bool: "int1", torch.int8: "int8", torch.int16: "int16", torch.int32: "int32", torch.int64: "int64",
    torch.uint8: "uint8", torch.uint16: "uint16", torch.uint32: "uint32", torch.uint64: "uint64",
    torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32", torch.float64: "float64",
}

POINTERS: Final = {
    torch.bool: "*i1", torch.int8: "*i8", torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64",
    torch.uint8: "*u8", torch.uint16: "*u16", torch.uint32: "*u32", torch.uint64: "*u64",
    torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32", torch.float64: "*fp64",
}
"""How Triton spells the type of a pointer to elements of a dtype."""

LIBDEVICE: Final = frozenset({
    "pow", "atan2", "copysign", "hypot", "fmod", "nextafter", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
    "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "trunc",
})
"""Operations on floats that are functions of that name in CUDA's libdevice."""

INFIX: Final = {
    "add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "bitand": "&", "bitor": "|", "bitxor": "^",
}

LITERALS: Final = frozenset({*INFIX, "div", "maximum", "minimum", "where"})
"""Operations in which a number may stand as it is beside an operand that says what dtype it has."""

QUICK: Final[dict[str, Callable[..., str]]] = {
    "exp": "tl.exp({0})".format,
    "exp2": "tl.exp2({0})".format,
    "log": "tl.log({0})".format,
    "log2": "tl.log2({0})".format,
    "div": "{0} / {1}".format,
    "reciprocal": "1.0 / {0}".format,
    "sigmoid": "quick_sigmoid({0})".format,
    "sqrt": "tl.sqrt({0})".format,
    "one_plus_erf": "quick_one_plus_erf({0})".format,
    "one_plus_tanh": "quick_one_plus_tanh({0})".format,
}
"""Cheaper forms for float32, good to about 20 bits (to 11 bits, `one_plus_erf`), for values that will be rounded to 8
or 11."""


def number(value: bool | int | float) -> str:
    """A Python number as it is written in a kernel."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def operation(name: str, operands: Sequence[str], dtype: torch.dtype, *, quick: bool = False) -> str:
    """The expression for an operation on operands of a dtype (for `where`: the dtype of what it chooses from)."""
    if quick and name in QUICK and dtype == torch.float32:
        return QUICK[name](*operands)
    if name in INFIX:
        if dtype == torch.bool and name == "mul":
            name = "bitand"
        return f"{operands[0]} {INFIX[name]} {operands[1]}"
    if name == "where":
        return f"tl.where({', '.join(operands)})"
    if dtype == torch.bool:
        return _of_bools(name, operands)
    if dtype in INTEGERS:
        return _of_integers(name, operands, dtype)
    return _of_floats(name, operands, dtype)


def _of_bools(name: str, operands: Sequence[str]) -> str:
    if name == "bitnot":
        return f"{operands[0]} == 0"
    return f"{operands[0]} {'|' if name == 'maximum' else '&'} {operands[1]}"


def _of_integers(name: str, operands: Sequence[str], dtype: torch.dtype) -> str:
    signed, bits = dtype.is_signed, dtype.itemsize * 8
    a = operands[0]
    if name in ("maximum", "minimum"):
        return f"tl.{name}({', '.join(operands)})"
    if name == "philox":
        return f"philox_word({', '.join(operands)})"
    if name == "truncdiv" or name == "floordiv" and not signed:
        return f"{a} // {operands[1]}"
    if name == "mod" and not signed:
        return f"{a} % {operands[1]}"
    if name in ("floordiv", "mod"):
        return f"integer_{name}({', '.join(operands)})"
    if name == "shl":
        return f"shift_left({', '.join(operands)}, {bits})"
    if name == "shr":
        return f"{'' if signed else 'logical_'}shift_right({', '.join(operands)}, {bits})"
    if name == "sign":
        return f"sign_of({a})" if signed else f"({a} != 0).to({a}.dtype)"
    if name == "abs":
        return f"tl.abs({a})" if signed else a
    return {"neg": f"-{a}", "bitnot": f"~{a}"}[name]


def _of_floats(name: str, operands: Sequence[str], dtype: torch.dtype) -> str:
    a, *others = operands
    joined = ", ".join(operands)
    single = dtype == torch.float32
    if name in LIBDEVICE:
        return f"libdevice.{name}({joined})"
    if name in ("maximum", "minimum"):
        return f"tl.{name}({joined}, propagate_nan=tl.PropagateNan.ALL)"
    if name in ("fmax", "fmin"):
        return f"tl.{name[1:]}imum({joined})"
    if name in ("floordiv", "mod"):
        return f"float_{name}({joined})"
    if name == "div":
        return f"tl.div_rn({joined})" if single else f"{a} / {others[0]}"
    if name == "truncdiv":
        return f"libdevice.trunc({_of_floats('div', operands, dtype)})"
    if name == "signbit":
        return f"{a}.to(tl.int{32 if single else 64}, bitcast=True) < 0"
    return {
        "neg": f"{a} * -1.0",  # Triton's own minus takes from zero, which leaves a zero as it is
        "abs": f"tl.abs({a})",
        "sign": f"float_sign({a})",
        "sqrt": f"tl.sqrt_rn({a})" if single else f"libdevice.sqrt({a})",
        "rsqrt": f"libdevice.rsqrt({a})",
        "reciprocal": f"tl.div_rn(1.0, {a})" if single else f"1.0 / {a}",
        "sigmoid": f"exact_sigmoid({a})",
        "floor": f"tl.floor({a})",
        "ceil": f"tl.ceil({a})",
        "round": f"libdevice.rint({a})",
        "isnan": f"{a} != {a}",
        "isinf": f'tl.abs({a}) == float("inf")',
    }[name]


def conversion(value: str, source: torch.dtype, target: torch.dtype) -> str:
    """The expression that casts a value, in C's way."""
    if target == torch.bool:
        return f"{value} != 0"
    to = TRITON_DTYPES[target]
    if source.is_floating_point and target in INTEGERS and target.itemsize < 4:
        return f"{value}.to(tl.int32).to(tl.{to})"  # out of range, it wraps around instead of being anything
    if target in (torch.bfloat16, torch.float16) and source not in (torch.float32, torch.bfloat16, torch.float16):
        return f"{value}.to(tl.float32).to(tl.{to})"
    return f"{value}.to(tl.{to})"


IDENTITIES: Final[dict[str, Callable[[torch.dtype], bool | int | float]]] = {
    "sum": lambda dtype: 0.0 if dtype.is_floating_point else 0,
    "prod": lambda dtype: 1.0 if dtype.is_floating_point else 1,
    "max": lambda dtype: -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min,
    "min": lambda dtype: math.inf if dtype.is_floating_point else torch.iinfo(dtype).max,
    "any": lambda dtype: 0,
    "all": lambda dtype: 1,
    "xor": lambda dtype: 0,
}
"""For each kind of reduction but argmax and argmin, what changes no result."""


def combination(kind: str, dtype: torch.dtype) -> str:
    """The function of device.py that a reduction folds elements with."""
    if kind in ("max", "min"):
        return f"{'nan' if dtype.is_floating_point else 'plain'}_{kind}"
    return {
        "sum": "added", "prod": "multiplied", "xor": "exclusive", "any": "either", "all": "both",
        "argmax": "first_greatest", "argmin": "first_least",
    }[kind]
