"""torch's dtypes as LLVM knows them, in registers and in memory, and how numbers are written in LLVM's text."""
from __future__ import annotations

import struct
from typing import Final

import torch

REGISTER: Final[dict[torch.dtype, str]] = {
    torch.bool: "i1",
    torch.uint8: "i8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "half",
    torch.bfloat16: "i16",
}
"""The type of a value in a register. bfloat16 is kept as its bits: the machine's own conversions flush denormals to
zero."""

BITS: Final[dict[str, int]] = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "float": 32, "double": 64}


def memory_type(dtype: torch.dtype) -> str:
    """The type of an element in memory."""
    return "i8" if dtype == torch.bool else REGISTER[dtype]


def float32_of(value: float) -> float:
    """The number rounded to float32 (overflowing to infinity)."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def float_text(value: float, type: str) -> str:
    """A floating-point literal of `float` or `double`: the bits of the double, as LLVM writes both."""
    if type == "float":
        value = float32_of(value)
    return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"


def number_text(value: bool | int | float, dtype: torch.dtype) -> str:
    """A literal of the register type of a dtype."""
    type = REGISTER[dtype]
    if type in ("float", "double"):
        return float_text(float(value), type)
    if dtype == torch.bool:
        return "true" if value else "false"
    if dtype == torch.float16:
        return f"0xH{struct.unpack('H', _half_bytes(float(value)))[0]:04X}"
    if dtype == torch.bfloat16:
        return str(torch.tensor(float(value), dtype=torch.bfloat16).view(torch.int16).item())
    return str(int(value))


def _half_bytes(value: float) -> bytes:
    try:
        return struct.pack("e", value)
    except OverflowError:
        return struct.pack("e", float("inf") if value > 0 else float("-inf"))
