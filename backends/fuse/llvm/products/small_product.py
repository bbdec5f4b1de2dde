"""Products of small matrices, as LLVM's text: one for all sizes, so that it is compiled once.

Sizes, strides and offsets are the kernel's arguments. As in a convolution (`convolution.py`), the sums of a few rows
and of the columns of a few vectors stay in registers. The columns of the right matrix that a turn is for are laid out
side by side before, in memory of its own, if they do not lie so. The last columns, and the last rows, are done with
some before them, which come out the same once more.
"""
from __future__ import annotations

from functools import partial
from typing import Final

from framejit.backends.fuse.llvm.assembler import Assembler, Block, Module, Value, floating, integer
from framejit.backends.fuse.llvm.counted_loop import counted_loop
from framejit.backends.fuse.llvm.kernel_function import begin_function, end_function, module_text
from framejit.backends.fuse.llvm.plan import GRAIN
from framejit.backends.fuse.llvm.products.convolution import LONG
from framejit.backends.fuse.llvm.products.tile_epilogue import TileEpilogue, after, vectors
from framejit.backends.fuse.llvm.tiles import transposed
from framejit.backends.fuse.loop_ir.nodes import SmallProduct, TileKernel
from framejit.backends.fuse.sizes.symbolic_size import hint

LANES: Final = 8
"""Elements of a vector of 32 bytes."""
ROWS: Final = {1: 12, 2: 6}
"""Rows of a tile, by the vectors of its columns: what 16 registers hold."""
ARGUMENTS: Final = (
    "rows", "inner", "columns", "width", "left_offset", "left_row", "left_inner", "right_offset", "right_inner",
    "right_column",
)
"""`SmallProduct.numbers`, as the text names them."""


class SmallProductWriter:
    """Writes the function of a small product's kernel."""

    def __init__(self, kernel: TileKernel) -> None:
        assert isinstance(kernel.tile, SmallProduct)
        self.kernel, self.what = kernel, kernel.tile
        left, right = self.what.left, self.what.right
        (self.rows, self.inner), self.columns = left.sizes, right.sizes[1]
        self.width = self.what.result.sizes[-1]
        self.vectors = 2 if self.width >= 2 * LANES else 1
        self.block, self.tile_rows = LANES * self.vectors, ROWS[self.vectors]
        self.lies_in_columns = right.strides[1] == 1 and self.width == self.columns
        is_turned = not self.lies_in_columns and self.width == self.columns
        self.lies_in_rows = is_turned and right.strides[0] == 1 and self.inner >= LANES
        self.module = Module()
        self.text: list[Block] = []
        self.pointers = {name: Value(f"%p{position}", "ptr") for position, name in enumerate(kernel.buffers)}
        self.epilogue = TileEpilogue(kernel, self.pointers, LANES)

    @property
    def total(self) -> int:
        """Turns of the parallel loop: blocks of columns."""
        return -(-self.width // self.block)

    @property
    def grain(self) -> int:
        """The fewest turns that are worth a thread."""
        return max(1, -(-GRAIN // max(1, hint(self.rows) * hint(self.inner) * self.vectors)))

    def write(self, name: str) -> str:
        """The module's text."""
        asm = begin_function(self.text, self.module, (register.text for register in self.pointers.values()))
        for position, argument in enumerate(ARGUMENTS):
            asm.do(f"%{argument}.at = getelementptr i64, ptr %ints, i64 {position}")
            asm.do(f"%{argument} = load i64, ptr %{argument}.at")
        if not self.lies_in_columns:
            size = asm.binary("mul", _argument("inner"), integer(self.block))
            asm.do(f"%packed = alloca float, {size}, align 64")
        asm.do(f"%sums = alloca [{self.tile_rows * self.block} x float], align 64")
        counted_loop(self.text, asm, Value("%begin", "i64"), Value("%end", "i64"), 1, [], self._turn)
        end_function(self.text, asm)
        return module_text(name, self.module, self.text, wide=False)

    def _turn(self, asm: Assembler, turn: Value, _: list[Value]) -> list[Value]:
        last = asm.binary("sub", _argument("width"), integer(self.block))
        column = asm.intrinsic("smin", asm.binary("mul", turn, integer(self.block)), last)
        right = after(asm, self.pointers[self.what.right.buffer.name], _argument("right_offset"))
        right = after(asm, right, asm.binary("mul", column, _argument("right_column")))
        step = _argument("right_inner")
        if not self.lies_in_columns:
            (self._pack_rows if self.lies_in_rows else self._pack)(asm, right)
            right, step = Value("%packed", "ptr"), integer(self.block)
        rows, count = _argument("rows"), integer(self.tile_rows)
        is_few = asm.compare("slt", rows, count)
        many = asm.binary("udiv", asm.binary("add", rows, integer(self.tile_rows - 1)), count)
        count = asm.select(is_few, integer(1), count)
        body = partial(self._tile, right, step, column, is_few, count)
        counted_loop(self.text, asm, integer(0), asm.select(is_few, rows, many), 1, [], body, may_be_empty=True)
        return []

    def _pack_rows(self, asm: Assembler, right: Value) -> None:
        """Lay out columns in which what is added up lies side by side: squares of it are turned around."""
        last = asm.binary("sub", _argument("inner"), integer(LANES))

        def square(on: Assembler, number: Value, first: Value) -> None:
            inner = on.intrinsic("smin", number, last)
            rows = []
            for lane in range(LANES):
                place = on.binary("mul", _argument("right_column"), on.binary("add", first, integer(lane)))
                rows += vectors(on, after(on, right, on.binary("add", place, inner)), 1, LANES)
            for position, row in enumerate(transposed(on, rows)):
                place = on.binary("mul", on.binary("add", inner, integer(position)), integer(self.block))
                place = after(on, Value("%packed", "ptr"), on.binary("add", place, first))
                on.do(f"store {row}, {place}, align 4")

        def squares(on: Assembler, first: Value, _: list[Value]) -> list[Value]:
            counted_loop(
                self.text, on, integer(0), _argument("inner"), LANES, [],
                lambda inside, number, _: square(inside, number, first) or [],
            )
            return []

        counted_loop(self.text, asm, integer(0), integer(self.block), LANES, [], squares)

    def _pack(self, asm: Assembler, right: Value) -> None:
        """Lay out columns that lie in any way, with zeros behind the last."""

        def lane(on: Assembler, column: Value, _: list[Value]) -> list[Value]:
            is_there = on.compare("slt", column, _argument("columns"))
            source = after(on, right, on.binary("mul", column, _argument("right_column")))
            source = on.select(is_there, source, right)

            def element(inside: Assembler, inner: Value, _: list[Value]) -> list[Value]:
                place = after(inside, source, inside.binary("mul", inner, _argument("right_inner")))
                found = inside.put(f"load float, {place}, align 4", "float")
                found = inside.select(is_there, found, floating(0.0, "float"))
                at = inside.binary("add", inside.binary("mul", inner, integer(self.block)), column)
                inside.do(f"store {found}, {after(inside, Value('%packed', 'ptr'), at)}, align 4")
                return []

            counted_loop(self.text, on, integer(0), _argument("inner"), 1, [], element)
            return []

        counted_loop(self.text, asm, integer(0), integer(self.block), 1, [], lane)

    def _tile(
        self, right: Value, step: Value, column: Value, is_few: Value, count: Value, asm: Assembler, number: Value,
        _: list[Value]
    ) -> list[Value]:
        """The tile of that number, of so many rows: each for itself where all together are no tile."""
        last = asm.binary("sub", _argument("rows"), count)
        row = asm.intrinsic("smin", asm.binary("mul", number, count), last)
        blocks = [Block(self.module.fresh(label)) for label in ("few", "many")]
        joined = Block(self.module.fresh("joined"))
        asm.do(f"br {is_few}, label %{blocks[0].label}, label %{blocks[1].label}")
        for block, rows in zip(blocks, (1, self.tile_rows)):
            self.text.append(block)
            on = Assembler(self.module, block)
            for position, total in enumerate(self._sums(on, right, step, row, rows)):
                place = after(on, Value("%sums", "ptr"), integer(position * LANES))
                on.do(f"store {total}, {place}, align 4")
            on.do(f"br label %{joined.label}")
        self.text.append(joined)
        asm.block = joined
        start = asm.binary("add", asm.binary("mul", row, _argument("width")), column)

        def finish(on: Assembler, vector: Value, _: list[Value]) -> list[Value]:
            """What is done to a vector of sums, written once for all."""
            lanes = on.binary("mul", on.binary("urem", vector, integer(self.vectors)), integer(LANES))
            (sums,) = vectors(
                on, after(on, Value("%sums", "ptr"), on.binary("mul", vector, integer(LANES))), 1, LANES
            )
            if self.what.bias is not None:  # at last: the sums before are smaller, and are rounded less
                bias = after(on, self.pointers[self.what.bias.name], on.binary("add", column, lanes))
                sums = on.binary("fadd", sums, *vectors(on, bias, 1, LANES))
            place = on.binary("mul", on.binary("udiv", vector, integer(self.vectors)), _argument("width"))
            place = on.binary("add", on.binary("add", start, place), lanes)
            self.epilogue.store(on, place, [sums])
            return []

        counted_loop(self.text, asm, integer(0), asm.binary("mul", count, integer(self.vectors)), 1, [], finish)
        return []

    def _sums(self, asm: Assembler, right: Value, step: Value, row: Value, count: int) -> list[Value]:
        """Those of so many rows from one on."""
        left = after(asm, self.pointers[self.what.left.buffer.name], _argument("left_offset"))
        lefts = [
            after(asm, left, asm.binary("mul", asm.binary("add", row, integer(number)), _argument("left_row")))
            for number in range(count)
        ]
        zeros = [floating(0.0, "float", LANES)] * (count * self.vectors)

        def product(on: Assembler, inner: Value, sums: list[Value]) -> list[Value]:
            weights = vectors(on, after(on, right, on.binary("mul", inner, step)), self.vectors, LANES)
            place = on.binary("mul", inner, _argument("left_inner"))
            made = []
            for number, address in enumerate(lefts):
                element = on.splat(on.put(f"load float, {after(on, address, place)}, align 4", "float"), LANES)
                before = sums[number * self.vectors :]
                made += [on.intrinsic("fma", element, weight, total) for weight, total in zip(weights, before)]
            return made

        def part(on: Assembler, first: Value, sums: list[Value]) -> list[Value]:
            end = on.intrinsic("smin", on.binary("add", first, integer(LONG)), _argument("inner"))
            more = counted_loop(self.text, on, first, end, 1, zeros, product)
            return [on.binary("fadd", a, b) for a, b in zip(sums, more)]

        return counted_loop(self.text, asm, integer(0), _argument("inner"), LONG, zeros, part)


def _argument(name: str) -> Value:
    return Value(f"%{name}", "i64")
