"""Scans as Triton: of a block along its reduction axis; in a loop over blocks, with the value so far carried from one
to the next."""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.triton.expressions import IDENTITIES, TRITON_DTYPES, number

if TYPE_CHECKING:
    from framejit.backends.fuse.triton.kernel_body import Body

COMBINATIONS: Final = {
    "sum": "added", "prod": "multiplied", "logsumexp": "log_added", "max": "last_greatest", "min": "last_least",
}
"""For each kind the function of device.py that makes of two neighbouring stretches what they are together; extremes go
with their positions."""

EXTREMES: Final = {"max": "max", "argmax": "max", "min": "min", "argmin": "min"}
JointScan = tuple[str, Expr]
"""Scans that are done at once: an extreme and its position are one scan of pairs."""


def joint_scan(node: Expr) -> JointScan:
    """The key of a scan; scans with equal keys are done at once."""
    return EXTREMES.get(node.attr, node.attr), node.args[0]


class Scans:
    """Writes the scans of a body, each once in a pass."""

    def __init__(self, body: Body) -> None:
        self.body, self.tile, self.lines = body, body.tile, body.lines
        self.known: dict[JointScan, tuple[str, ...]] = {}
        """The names of the values, and of the positions, in the present pass."""
        self.carried: dict[JointScan, tuple[str, ...]] = {}
        """The names of what the blocks before came to."""

    def begin(self, roots: Iterable[Expr]) -> None:
        """Before a loop over blocks: start the scans that its values need."""
        analysis = self.body.analysis
        seen: set[Expr] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in seen or not analysis.free[node] & analysis.reduction:
                continue
            seen.add(node)
            if node.op == "scan" and joint_scan(node) not in self.carried:
                self.carried[joint_scan(node)] = self._start(node)
            stack.extend(node.operands())

    def end(self) -> None:
        """Forget the scans of a loop over blocks, which is over."""
        self.known.clear()
        self.carried.clear()

    def value(self, node: Expr) -> str:
        """The name of a scan's values in the block."""
        group = joint_scan(node)
        if group not in self.known:
            self.known[group] = self._block(node)
        names = self.known[group]
        return self.lines.name(f"{names[1]}.to(tl.int64)") if node.attr in ("argmax", "argmin") else names[0]

    def _shape(self, node: Expr, in_reduction: bool) -> str:
        dims = self.tile.dims
        wanted = {axis for axis in self.body.dims(node) if not axis.reduction}
        if in_reduction:
            return self.body.indices.shape(wanted | {axis for axis in dims if axis.reduction})
        return "[]" if all(axis.reduction for axis in dims) else self.body.indices.shape(wanted)

    def _neutral(self, node: Expr) -> list[tuple[str, str]]:
        """The number and the type of what changes nothing."""
        kind, operand = joint_scan(node)
        dtype = operand.dtype
        first = number(IDENTITIES["max" if kind == "logsumexp" else kind](dtype)), f"tl.{TRITON_DTYPES[dtype]}"
        return [first, ("-1", self._places())] if kind in ("max", "min") else [first]

    def _places(self) -> str:
        return "tl.int64" if self.tile.wide else "tl.int32"

    def _start(self, node: Expr) -> tuple[str, ...]:
        shape = self._shape(node, in_reduction=False)
        return tuple(
            self.lines.name(f"tl.full({shape}, {value}, {dtype})", "so_far") for value, dtype in self._neutral(node)
        )

    def _block(self, node: Expr) -> tuple[str, ...]:
        (axis,) = self.tile.reduction
        operand, combine = node.args[0], COMBINATIONS[joint_scan(node)[0]]
        shape = self._shape(node, in_reduction=True)
        value = (
            f"tl.full({shape}, {number(operand.attr)}, tl.{TRITON_DTYPES[operand.dtype]})"
            if operand.op == "const"
            else self.body.value(operand)
        )
        parts = [self.lines.name(f"tl.broadcast_to({value}, {shape})")]
        if combine.startswith("last_"):
            parts.append(self.lines.name(f"{axis.letter} + tl.zeros({shape}, {self._places()})"))
        names = self._joined(parts, f"tl.associative_scan({_tuple(parts)}, {self.tile.dims.index(axis)}, {combine})")
        carried = self.carried.get(joint_scan(node))
        if carried is None:
            return names
        names = self._joined(parts, f"{combine}({', '.join((*carried, *names))})")
        last = self.lines.name(f"{axis.letter} == {axis.letter}_start + ({axis.letter.upper()}BLOCK - 1)")
        # of the last block, which may reach over the end, nothing is carried on
        ends = [
            self.lines.name(f"tl.where({last}, {name}, tl.full([], {value}, {dtype}))")
            for name, (value, dtype) in zip(names, self._neutral(node))
        ]
        reduced = self._joined(parts, f"tl.reduce({_tuple(ends)}, {self.tile.dims.index(axis)}, {combine})")
        expansion = self.body.expansion(self.tile.dims)
        for held, name in zip(carried, reduced):
            self.lines.add(f"{held} = {name}{expansion}")
        return names

    def _joined(self, parts: list[str], text: str) -> tuple[str, ...]:
        """Names for the result, or the results, of a text."""
        if len(parts) == 1:
            return (self.lines.name(text, "scan"),)
        value, place = self.lines.fresh("scan"), self.lines.fresh("place")
        self.lines.add(f"{value}, {place} = {text}")
        return value, place


def _tuple(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"
