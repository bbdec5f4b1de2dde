"""Turning tiles around: what is contiguous along another loop than the vectors is loaded in its own direction and
transposed in registers."""
from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.backends.fuse.llvm.accumulators import first_position
from framejit.backends.fuse.llvm.assembler import Assembler, Value, integer
from framejit.backends.fuse.llvm.memory import masked_load
from framejit.backends.fuse.llvm.types import memory_type
from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index

if TYPE_CHECKING:
    from framejit.backends.fuse.llvm.loops import KernelWriter


def turn_tile(writer: KernelWriter, node: Expr, low: tuple[Value, Value], high: tuple[Value, Value]) -> None:
    """Fill the scratch tile of a load. `low` and `high` are the bounds of the tile and of the vector loop in it.

    The tile's rows are turns of the tile loop, so that the vector loop reads them from left to right. Turns beyond the
    loops' ends are not read.
    """
    plan, asm = writer.plan, writer.levels[-1].asm
    tile, vector, lanes = plan.tile, plan.vector, plan.lanes
    assert tile is not None and vector is not None
    buffer, index = node.attr
    type, size = memory_type(node.dtype), node.dtype.itemsize
    rest = Index(
        {atom: coefficient for atom, coefficient in index.terms.items() if atom not in (tile, vector)}, index.const
    )
    base = asm.put(f"getelementptr {type}, ptr {writer.pointer(buffer)}, {writer.scalar_index(rest, 0, None)}", "ptr")
    ragged_rows, ragged_columns = vector.size % lanes, tile.size % lanes

    def across(outer: Assembler, row: Value, _: list[Value]) -> list[Value]:
        rows = []
        for lane in range(lanes):
            number = outer.binary("add", row, integer(lane))
            if ragged_rows:  # beyond the end the last row is read again; nobody looks at it
                number = outer.intrinsic("smin", number, integer(vector.size - 1))
            offset = outer.binary("mul", number, integer(index.stride(vector)))
            rows.append(outer.put(f"getelementptr {type}, ptr {base.text}, {offset}", "ptr"))
        target = outer.binary("sub", row, low[1])

        def square(inner: Assembler, column: Value, _: list[Value]) -> list[Value]:
            block = [
                _row(inner, place, column, type, size, lanes, tile.size if ragged_columns else None) for place in rows
            ]
            for lane, turned in enumerate(transposed(inner, block)):
                line = inner.binary("add", inner.binary("sub", column, low[0]), integer(lane))
                offset = inner.binary("add", inner.binary("mul", line, integer(plan.block)), target)
                place = inner.put(f"getelementptr {type}, ptr {writer.tiles[node]}, {offset}", "ptr")
                inner.do(f"store {turned}, ptr {place.text}, align {size}")
            return []
        writer.loop(outer, low[0], high[0], lanes, [], square, level=False)
        return []
    writer.loop(asm, low[1], high[1], lanes, [], across, level=False)


def _row(asm: Assembler, place: Value, column: Value, type: str, size: int, lanes: int, end: int | None) -> Value:
    place = asm.put(f"getelementptr {type}, ptr {place.text}, {column}", "ptr")
    if end is None:
        return asm.put(f"load <{lanes} x {type}>, ptr {place.text}, align {size}", type, lanes)
    left = asm.splat(asm.convert("trunc", asm.binary("sub", integer(end), column), "i32"), lanes)
    return masked_load(asm, place, type, size, asm.compare("slt", first_position(lanes, 0, "i32"), left))


def transposed(asm: Assembler, rows: list[Value]) -> list[Value]:
    """The columns of a square block: at each step, squares twice as large change places across the diagonal."""
    count, step = len(rows), 1
    while step < count:
        upper = [lane if not lane & step else count + lane - step for lane in range(count)]
        lower = [lane + step if not lane & step else count + lane for lane in range(count)]
        turned = list(rows)
        for first in range(count):
            if not first & step:
                a, b = rows[first], rows[first + step]
                turned[first], turned[first + step] = asm.shuffle(a, b, upper), asm.shuffle(a, b, lower)
        rows, step = turned, step * 2
    return rows
