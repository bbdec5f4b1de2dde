"""What is done to the sums of a tile, element by element, before they are stored."""
from __future__ import annotations

from typing import Final

from framejit.backends.fuse.llvm import maths
from framejit.backends.fuse.llvm.assembler import Assembler, Value, integer
from framejit.backends.fuse.llvm.instructions import cast, operation
from framejit.backends.fuse.llvm.types import REGISTER, number_text
from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.nodes import TileKernel

SHORT: Final = 8
"""Operations up to which it is written for each vector of a tile, if none is a function of many instructions."""


class TileEpilogue:
    """Stores vectors of sums, of so many lanes each. `pointers`: where a kernel's buffers begin."""

    def __init__(self, kernel: TileKernel, pointers: dict[str, Value], lanes: int) -> None:
        self.kernel, self.pointers, self.lanes = kernel, pointers, lanes
        epilogue = kernel.epilogue
        operations = [] if epilogue is None else [node for node in epilogue.value.walk() if node.args]
        self.is_long = len(operations) > SHORT or any(node.op in maths.SLEEF for node in operations)
        """Whether it had better be written once for all vectors of a tile: the compiler would take longer for it than
        for the products."""

    def store(self, asm: Assembler, where: Value, sums: list[Value]) -> None:
        """Store what is made of sums that lie one behind the other from a place on."""
        address = after(asm, self.pointers[self.kernel.writes[0]], where)
        for vector, value in enumerate(self._finished(asm, where, sums)):
            asm.do(f"store {value}, {after(asm, address, integer(vector * self.lanes))}, align 4")

    def _finished(self, asm: Assembler, where: Value, sums: list[Value]) -> list[Value]:
        """What is made of sums."""
        if self.kernel.epilogue is None:
            return sums
        own = self.kernel.tile.result.name
        loaded = {
            name: vectors(asm, after(asm, self.pointers[name], where), len(sums), self.lanes)
            for name in dict.fromkeys(load.attr[0] for load in self.kernel.epilogue.value.loads())
            if name != own
        }
        loaded[own] = sums
        return [
            self._value(asm, self.kernel.epilogue.value, {name: values[vector] for name, values in loaded.items()})
            for vector in range(len(sums))
        ]

    def _value(self, asm: Assembler, root: Expr, loaded: dict[str, Value]) -> Value:
        known: dict[Expr, Value] = {}
        for node in root.walk():
            if node in known:
                continue
            if node.op == "load":
                known[node] = loaded[node.attr[0]]
            elif node.op == "const":
                number = Value(number_text(node.attr, node.dtype), REGISTER[node.dtype])
                known[node] = asm.splat(number, self.lanes)
            elif node.op == "cast":
                known[node] = cast(asm, known[node.args[0]], node.args[0].dtype, node.dtype)
            elif node.op == "where":
                known[node] = asm.select(*(known[operand] for operand in node.args))
            else:
                operands = tuple(known[operand] for operand in node.args)
                known[node] = operation(asm, node.op, node.args[0].dtype, operands)
        return known[root]


def after(asm: Assembler, address: Value, elements: Value) -> Value:
    """The address so many elements of float32 behind another."""
    return address if elements.text == "0" else asm.put(f"getelementptr float, {address}, {elements}", "ptr")


def vectors(asm: Assembler, address: Value, count: int, lanes: int) -> list[Value]:
    """So many vectors that lie at an address, one behind the other."""
    places = [after(asm, address, integer(number * lanes)) for number in range(count)]
    return [asm.put(f"load <{lanes} x float>, {place}, align 4", "float", lanes) for place in places]
