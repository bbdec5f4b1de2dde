"""What the Triton generator can do."""
from __future__ import annotations

from typing import Final

import torch

from framejit.backends.fuse.loop_ir.expr import OPERATIONS, REDUCTIONS, SCANS

FLOATS: Final = frozenset({torch.float32, torch.float64})
INTEGERS: Final = frozenset(
    {torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64}
)
STORED: Final = frozenset({torch.bfloat16, torch.float16})
"""Dtypes that exist in memory only; they are computed with in float32."""

ANY_NUMBER: Final = frozenset(
    {
        "add", "sub", "mul", "maximum", "minimum", "floordiv", "truncdiv", "mod", "lt", "le", "gt", "ge", "neg",
        "abs", "sign",
    }
)
ANYTHING: Final = frozenset({"eq", "ne", "where"})
BITS: Final = frozenset({"bitand", "bitor", "bitxor", "bitnot"})
SHIFTS: Final = frozenset({"shl", "shr"})
OF_BOOLS: Final = BITS | {"maximum", "minimum", "mul", "lt", "le", "gt", "ge"}
LEAVES: Final = frozenset({"load", "const", "index", "cast", "masked"})


def supports(op: str, dtype: torch.dtype) -> bool:
    """Whether the generator can carry out `op` (of OPERATIONS, a leaf, `bitcast`, or `reduce_` or `scan_` and the kind)
    on operands of a dtype."""
    if dtype not in FLOATS | INTEGERS | STORED | {torch.bool}:
        return False
    if op in LEAVES or op == "bitcast":
        return True
    if op.startswith("reduce_"):
        kind = op.removeprefix("reduce_")
        if kind not in REDUCTIONS or dtype in STORED:
            return False
        if kind in ("any", "all"):
            return dtype == torch.bool
        return dtype != torch.bool and (kind != "xor" or dtype in INTEGERS)
    if op.startswith("scan_"):
        return op.removeprefix("scan_") in SCANS and dtype in (FLOATS if op == "scan_logsumexp" else FLOATS | INTEGERS)
    if op not in OPERATIONS or dtype in STORED:
        return False
    if op == "philox":
        return dtype == torch.int64
    if dtype == torch.bool:
        return op in OF_BOOLS | ANYTHING
    if dtype in INTEGERS:
        return op in ANY_NUMBER | ANYTHING | BITS | SHIFTS
    return op not in BITS | SHIFTS
