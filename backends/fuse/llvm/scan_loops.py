"""Scans: the state that runs through the reduction loops, and the values that it has on the way."""
from __future__ import annotations

from typing import Final

import torch

from framejit.backends.fuse.llvm.accumulators import REAL, WHOLE, identity
from framejit.backends.fuse.llvm.assembler import Assembler, Value, integer, like
from framejit.backends.fuse.llvm.instructions import extreme, operation
from framejit.backends.fuse.llvm.types import REGISTER
from framejit.backends.fuse.loop_ir.expr import Expr

EXTREMES: Final = {"max": "max", "argmax": "max", "min": "min", "argmin": "min"}


def in_vectors(node: Expr) -> bool:
    """Whether the lanes of a vector are scanned side by side, in steps of 1, 2, 4... lanes.

    That adds in another order than ATen does, one element after the other. In an accumulator wider than the elements
    nothing comes of it; a sum of float64 might be infinite in one order only. And `logsumexp` costs so much that its
    steps would be no gain.
    """
    if node.attr == "logsumexp":
        return False
    operand = node.args[0]
    if node.attr not in ("sum", "prod") or operand.dtype != torch.float64 or operand.op == "const":
        return True
    return operand.op == "cast" and operand.args[0].dtype.itemsize < 8


class Scan:
    """Scans of one operand while their loops run: one, or the extreme and its position, whose state is the same.

    With `across` lanes are neighbours in the scanned row, and the state is what is known before the first of them;
    otherwise each lane has its own row.
    """

    def __init__(self, nodes: list[Expr], lanes: int, across: int) -> None:
        self.nodes, self.lanes, self.across = nodes, lanes, across
        self.operand = nodes[0].args[0]
        self.dtype = self.operand.dtype
        self.kind = EXTREMES.get(nodes[0].attr, nodes[0].attr)
        self.has_position = any(node.attr in ("argmax", "argmin") for node in nodes)

    def start(self, positions: str) -> list[Value]:
        """The state before the first element, which any element beats."""
        lanes = 1 if self.across > 1 else self.lanes
        neutral = identity("max" if self.kind == "logsumexp" else self.kind, self.dtype)
        first = like(Value("", REGISTER[self.dtype], lanes), neutral)
        return [first, integer(0, positions, lanes)] if self.has_position else [first]

    def step(
        self, asm: Assembler, state: list[Value], new: list[Value], last: Value | None
    ) -> tuple[list[Value], list[Value]]:
        """The values at one more element (or one in each lane), and the state after it. `last`: the last lane that is
        in the row, None for all lanes."""
        if self.across == 1:
            after = self._combined(asm, state, new)
            return after, after
        if not all(map(in_vectors, self.nodes)):
            values = self._lane_by_lane(asm, state, new)
            return values, self._of_lane(asm, values, last)
        new = self._in_vectors(asm, new)
        values = self._combined(asm, [asm.splat(value, self.across) for value in state], new)
        if self.kind in ("max", "min"):
            return values, self._of_lane(asm, values, last)
        # a sum's state is not taken from the values: from one vector to the next there is but one operation so
        return values, self._combined(asm, state, self._of_lane(asm, new, last))

    def result(self, asm: Assembler, node: Expr, values: list[Value]) -> Value:
        """The value of one scan, among the values of those that are done together."""
        if node.attr not in ("argmax", "argmin"):
            return values[0]
        return asm.convert("sext", values[1], "i64")

    def _of_lane(self, asm: Assembler, values: list[Value], lane: Value | None) -> list[Value]:
        if lane is None:
            return [asm.extract(value, self.across - 1) for value in values]
        return [asm.put(f"extractelement {value}, {lane}", value.type) for value in values]

    def _in_vectors(self, asm: Assembler, new: list[Value]) -> list[Value]:
        """The scan of a vector alone."""
        lanes, distance = self.across, 1
        neutral = [asm.splat(value, lanes) for value in self.start(new[-1].type)]
        while distance < lanes:
            # lane n takes what lane n - distance has; what has none before it takes what changes nothing
            order = [lane + lanes - distance for lane in range(lanes)]
            before = [asm.shuffle(none, value, order) for none, value in zip(neutral, new)]
            new = self._combined(asm, before, new)
            distance *= 2
        return new

    def _lane_by_lane(self, asm: Assembler, state: list[Value], new: list[Value]) -> list[Value]:
        values = new
        for lane in range(self.across):
            state = self._combined(asm, state, [asm.extract(value, lane) for value in new])
            values = [asm.insert(value, element, lane) for value, element in zip(values, state)]
        return values

    def _combined(self, asm: Assembler, earlier: list[Value], later: list[Value]) -> list[Value]:
        a, b = earlier[0], later[0]
        if self.kind in ("max", "min"):
            takes = self._replaces(asm, a, b)
            return [asm.select(takes, new, old) for old, new in zip(earlier, later)]
        if self.kind == "logsumexp":
            return [self._log_added(asm, a, b)]
        return [asm.binary(REAL[self.kind] if a.is_float else WHOLE[self.kind], a, b)]

    def _replaces(self, asm: Assembler, a: Value, b: Value) -> Value:
        """Whether a later element takes the place of the extreme so far: of equals it does, of nans too."""
        test = "ge" if self.kind == "max" else "le"
        if a.is_float:
            return asm.binary("or", asm.compare(f"o{test}", b, a), asm.compare("uno", b, b))
        return asm.compare(("s" if self.dtype.is_signed else "u") + test, b, a)

    def _log_added(self, asm: Assembler, a: Value, b: Value) -> Value:
        """log(exp(a) + exp(b)); of two equal infinities it is that one."""
        greatest, least = (extreme(asm, name, self.dtype, a, b) for name in ("maximum", "minimum"))
        part = operation(asm, "exp", self.dtype, (asm.binary("fsub", least, greatest),))
        total = asm.binary("fadd", greatest, operation(asm, "log1p", self.dtype, (part,)))
        same = asm.binary(
            "and", asm.compare("oeq", a, b), asm.compare("oeq", asm.intrinsic("fabs", a), like(a, float("inf")))
        )
        return asm.select(same, a, total)


def grouped(scans: list[Expr]) -> list[list[Expr]]:
    """Scans that have their state in common: an extreme and its position. Operands come before what uses them."""
    groups: dict[tuple[str, Expr], list[Expr]] = {}
    for node in scans:
        groups.setdefault((EXTREMES.get(node.attr, node.attr), node.args[0]), []).append(node)
    return list(groups.values())
