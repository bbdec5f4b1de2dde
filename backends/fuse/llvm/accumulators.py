"""Accumulators: how each kind of reduction takes up an element, and how partial results become one."""
from __future__ import annotations

import math
from typing import Final

import torch

from framejit.backends.fuse.llvm.assembler import Assembler, Value, integer, like, suffix, vector_type
from framejit.backends.fuse.llvm.instructions import extreme
from framejit.backends.fuse.llvm.types import REGISTER
from framejit.backends.fuse.loop_ir.expr import Expr

RUN: Final = 128
"""The most floats that one accumulator adds up before it is added to one of float64, so that rounding errors stay those
of short sums."""

WHOLE: Final = {"sum": "add", "prod": "mul", "any": "or", "all": "and", "xor": "xor"}
REAL: Final = {"sum": "fadd", "prod": "fmul"}


def identity(kind: str, dtype: torch.dtype) -> bool | int | float:
    """The result of a reduction over nothing; of max and min, which have none, a number that every element beats."""
    if kind in ("sum", "any", "xor"):
        return 0
    if kind in ("prod", "all"):
        return 1
    greatest = kind in ("max", "argmax")
    if dtype == torch.bool:
        return not greatest
    if dtype.is_floating_point:
        return -math.inf if greatest else math.inf
    limits = torch.iinfo(dtype)
    return limits.min if greatest else limits.max


class Reduction:
    """One `reduce` node while its loops run. Its state is a list of registers, one for each part."""

    def __init__(self, node: Expr, lanes: int) -> None:
        self.node, self.kind, self.lanes = node, node.attr, lanes
        self.dtype = node.args[0].dtype
        self.type = REGISTER[self.dtype]
        self.is_position = self.kind in ("argmax", "argmin")
        self.cascades = self.kind == "sum" and self.dtype.is_floating_point

    def start(self, position: Value | None) -> list[Value]:
        """The state before the first element; `position` is the first position of each lane."""
        first = like(Value("", self.type, self.lanes), identity(self.kind, self.dtype))
        return [first, position] if position is not None else [first]

    def step(
        self, asm: Assembler, state: list[Value], x: Value, mask: Value | None, position: Value | None
    ) -> list[Value]:
        """The state after one more element in each lane, or in those where `mask` holds."""
        if position is not None:
            return self._better(asm, state, [x, position], mask, ties=False)
        result = self._combine(asm, state[0], x)
        return [asm.select(mask, result, state[0]) if mask is not None else result]

    def merge(self, asm: Assembler, a: list[Value], b: list[Value]) -> list[Value]:
        """The state of two that saw different elements."""
        return self._better(asm, a, b, None, ties=True) if self.is_position else [self._combine(asm, a[0], b[0])]

    def across(self, asm: Assembler, state: list[Value]) -> Value:
        """The result of all lanes together."""
        lanes = state[0].lanes
        if lanes == 1:
            return state[-1]
        if not self.is_position and not (self.kind in ("max", "min") and self.dtype.is_floating_point):
            return self._reduced(asm, state[0])
        while lanes > 1:
            lanes //= 2
            low, high = list(range(lanes)), list(range(lanes, 2 * lanes))
            parts = [[self._half(asm, part, half) for part in state] for half in (low, high)]
            state = self.merge(asm, *parts)
        return state[-1]

    def _half(self, asm: Assembler, part: Value, lanes: list[int]) -> Value:
        return asm.extract(part, lanes[0]) if len(lanes) == 1 else asm.shuffle(part, None, lanes)

    def _reduced(self, asm: Assembler, value: Value) -> Value:
        if value.is_float:
            name = f"llvm.vector.reduce.{REAL[self.kind]}.{suffix(value.type, value.lanes)}"
            return asm.call(
                name, value.type, 1, like(Value("", value.type), 1 if self.kind == "prod" else -0.0), value,
                flags="reassoc ",
            )
        signed = self.dtype.is_signed and self.dtype != torch.bool
        name = WHOLE.get(self.kind) or ("s" if signed else "u") + self.kind
        return asm.call(f"llvm.vector.reduce.{name}.{suffix(value.type, value.lanes)}", value.type, 1, value)

    def _combine(self, asm: Assembler, a: Value, b: Value) -> Value:
        if self.kind in ("max", "min"):
            return extreme(asm, {"max": "maximum", "min": "minimum"}[self.kind], self.dtype, a, b)
        if a.is_float:
            return asm.binary(REAL[self.kind], a, b)
        return asm.binary(
            WHOLE[self.kind]
            if self.dtype != torch.bool or self.kind in ("any", "all", "xor")
            else {"sum": "or", "prod": "and"}[self.kind],
            a,
            b,
        )

    def _better(self, asm: Assembler, a: list[Value], b: list[Value], mask: Value | None, ties: bool) -> list[Value]:
        """The better one of two candidates (value, position); where they are equal the first, which may be `b` with
        `ties`."""
        x, y = b[0], a[0]
        greatest = self.kind == "argmax"
        if x.is_float:
            nan, other = asm.compare("uno", x, x), asm.compare("uno", y, y)
            beats = asm.compare("ogt" if greatest else "olt", x, y)
            takes = asm.binary("or", beats, asm.binary("and", nan, asm.binary("xor", other, like(other, 1))))
            same = asm.binary("or", asm.compare("oeq", x, y), asm.binary("and", nan, other)) if ties else None
        else:
            sign = "s" if self.dtype.is_signed and self.dtype != torch.bool else "u"
            takes = asm.compare(f"{sign}{'gt' if greatest else 'lt'}", x, y)
            same = asm.compare("eq", x, y) if ties else None
        if same is not None:
            takes = asm.binary("or", takes, asm.binary("and", same, asm.compare("slt", b[1], a[1])))
        if mask is not None:
            takes = asm.binary("and", takes, mask)
        return [asm.select(takes, new, old) for new, old in zip(b, a)]


def widened(asm: Assembler, value: Value) -> Value:
    """A floating-point value as float64."""
    return (
        value
        if value.type == "double"
        else asm.put(f"fpext {value} to {vector_type('double', value.lanes)}", "double", value.lanes)
    )


def zero(lanes: int) -> Value:
    """A sum of float64 before anything has been added."""
    return like(Value("", "double", lanes), 0.0)


def first_position(lanes: int, start: int, type: str) -> Value:
    """The positions of a vector's lanes, counted from `start`."""
    if lanes == 1:
        return integer(start, type)
    return Value(f"<{', '.join(f'{type} {start + lane}' for lane in range(lanes))}>", type, lanes)
