"""What the generator can do; the rest is left to ATen."""
from __future__ import annotations

from typing import Final

import torch

from framejit.backends.fuse.llvm.machine import machine
from framejit.backends.fuse.llvm.types import REGISTER
from framejit.backends.fuse.loop_ir.expr import COMPUTE, OPERATIONS, REDUCTIONS, SCANS, Expr

FLOAT_ONLY: Final = frozenset({
    "div", "sqrt", "rsqrt", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "sigmoid", "pow", "atan2", "hypot", "nextafter",
    "copysign", "fmax", "fmin"})
DIVISIONS: Final = frozenset({"floordiv", "truncdiv", "mod", "fmod"})
BITS_ONLY: Final = frozenset({"bitand", "bitor", "bitxor", "bitnot", "shl", "shr"})
OTHER: Final = frozenset({"load", "const", "index", "cast", "bitcast", "masked", "where", "reduce"})


def supports(op: str, dtype: torch.dtype, divisor: Expr | None = None) -> bool:
    """Whether operation `op` (or kind of reduction, `scan_` and kind of scan, or node such as `load`) is carried out on
    operands of `dtype`.

    Division of integers by what may be zero must raise, as it does in eager, and is refused; `divisor` may show that it
    never is.
    """
    if dtype not in REGISTER or (dtype == torch.float16 and not machine().has_half):
        return False
    if op in OTHER:
        return True
    if dtype in COMPUTE:
        return False
    if op.startswith("scan_"):
        return (
            op.removeprefix("scan_") in SCANS
            and dtype != torch.bool
            and (dtype.is_floating_point or op != "scan_logsumexp")
        )
    if op in FLOAT_ONLY:
        return dtype.is_floating_point
    if op in DIVISIONS:
        return dtype.is_floating_point or (
            dtype != torch.bool and divisor is not None and divisor.op == "const" and divisor.attr != 0
        )
    if op in BITS_ONLY:
        return not dtype.is_floating_point and (dtype != torch.bool or not op.startswith("sh"))
    if op in ("any", "all"):
        return dtype == torch.bool
    if op == "xor":
        return not dtype.is_floating_point
    if op == "philox":  # on CPUs random numbers are those that eager draws
        return False
    return op in OPERATIONS or op in REDUCTIONS
