"""Sums over products of elements by tensor cores.

A block of the matrix is (columns, inner), one of the rows (rows, inner). The inner elements of a block are cut into as
many parts as there are warps: so each has a product of its own to do, and the parts' sums are added at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.backends.fuse.loop_ir.expr import COMPUTE, Expr
from framejit.backends.fuse.triton.expressions import TRITON_DTYPES
from framejit.backends.fuse.triton.tiles.tile import Axis

if TYPE_CHECKING:
    from framejit.backends.fuse.triton.kernel_body import Body, Key


class Dots:
    """Writes the sums of a body whose tile is (rows, columns, inner)."""

    def __init__(self, body: Body) -> None:
        self.body, self.tile, self.lines = body, body.tile, body.lines

    def takes(self, key: Key) -> bool:
        """Whether a reduction is a product, not one of a row alone."""
        return bool(self.tile.parts) and self.tile.dims[1] in self.body.dims(key[0].args[0], key[1])

    def start(self) -> str:
        """The name of a sum before the first block."""
        rows, columns, _ = self.tile.dims
        return self.lines.name(f"tl.zeros([{self.tile.parts}, {columns.block}, {rows.block}], tl.float32)", "dot")

    def step(self, key: Key, total: str) -> None:
        """Add what a block comes to."""
        node, mask = key
        rows, columns, _ = self.tile.dims
        one, other = node.args[0].args
        if columns not in self.body.dims(one, mask):
            one, other = other, one
        dtype = _narrow(one) or _narrow(other)
        left, right = self._block(one, key, columns, dtype), self._block(other, key, rows, dtype)
        left = self.lines.name(f"tl.permute({left}, (1, 0, 2))")
        right = self.lines.name(f"tl.permute({right}, (1, 2, 0))")
        self.lines.add(f"{total} = tl.dot({left}, {right}, {total})")

    def finish(self, total: str) -> str:
        """The sums as a block of rows and columns, with one element of the inner loops."""
        rows = self.tile.dims[0]
        if not rows.vars:  # one row, as often as tensor cores want
            return self.lines.name(f"tl.reduce(tl.sum({total}, 0), 1, nan_max)[None, :, None]")
        return self.lines.name(f"tl.trans(tl.sum({total}, 0))[:, :, None]")

    def _block(self, factor: Expr, key: Key, axis: Axis, dtype: str | None) -> str:
        """A factor's block, (elements of the axis, parts, elements of a part), as numbers that tensor cores take."""
        body, inner = self.body, self.tile.dims[-1]
        narrow = _narrow(factor)
        text = body.value(factor.args[0] if narrow else factor, key[1])
        if inner.ragged and not (narrow and factor.args[0].op == "load"):  # a load gives 0 beyond the end
            text = f"tl.where({body.indices.mask(inner)}, {text}, 0.0)"
        if not narrow:
            text = f"({text}).to(tl.{dtype})"
        whole = self.lines.name(f"tl.broadcast_to({text}, {body.indices.shape({axis, inner})})")
        part = inner.block // self.tile.parts
        return self.lines.name(f"tl.reshape({whole}, [{axis.block}, {self.tile.parts}, {part}])")


def _narrow(factor: Expr) -> str | None:
    """The dtype of half precision that a factor has been cast from."""
    if factor.op == "cast" and factor.args[0].dtype in COMPUTE:
        return TRITON_DTYPES[factor.args[0].dtype]
    return None
