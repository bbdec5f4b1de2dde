"""Which kernels differ in names only: layers alike of a model lead to such kernels, and one text serves for all."""
from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index, Indirect, Var
from framejit.backends.fuse.loop_ir.nodes import Kernel, TileKernel


def shape_of(kernel: Kernel) -> Hashable:
    """What kernels share that differ in the names of their loops and buffers only; None where sizes are left open, as
    kernels then have arguments of their own."""
    shape = _Shape(kernel)
    told = tuple(shape.parts())
    return told if shape.is_known else None


class _Shape:
    """One kernel, told in numbers instead of names. All that the generator goes through is told in its order: loops,
    stores, terms of indices, operands."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.buffers = {name: position for position, name in enumerate(kernel.buffers)}
        self.loops: dict[Var, int] = {}
        self.values: dict[Expr, int] = {}
        self.is_known = not kernel.members

    def parts(self) -> Iterator[Hashable]:
        kernel = self.kernel
        memories: dict[str, int] = {}
        yield tuple(memories.setdefault(buffer.memory, len(memories)) for buffer in kernel.buffers.values())
        yield tuple(self.loop(var) for var in kernel.parallel), tuple(self.loop(var) for var in kernel.reduction)
        if isinstance(kernel, TileKernel):
            yield kernel.tile.told
            self.is_known &= all(type(part) in (int, bool, str, tuple) for part in kernel.tile.told)
        for store in kernel.said:
            for root in (store.value, *(atom.value for atom in store.index.indirects)):
                for node in root.walk() if root not in self.values else ():
                    if node not in self.values:
                        self.values[node] = len(self.values)
                        yield self.value(node)
            yield self.buffers[store.buffer], self.index(store.index), self.values[store.value], store.in_reduction

    def loop(self, var: Var) -> Hashable:
        return self.loops.setdefault(var, len(self.loops)), self.number(var.size)

    def value(self, node: Expr) -> Hashable:
        attribute: Any = node.attr
        if node.op == "load":
            attribute = self.buffers.get(attribute[0]), self.index(attribute[1])  # None: what a convolution gives
        elif node.op == "index":
            attribute = self.index(attribute)
        elif node.op == "const":
            attribute = repr(attribute)  # tells 0.0 from -0.0, and numbers from bools
        return node.op, node.dtype, tuple(self.values[operand] for operand in node.args), attribute

    def index(self, index: Index) -> Hashable:
        terms: list[Hashable] = []
        for atom, coefficient in index.terms.items():
            if isinstance(atom, Var):
                told = self.loop(atom)
            elif isinstance(atom, Indirect):
                told = "lookup", self.values[atom.value], self.number(atom.size)
            else:
                told = type(atom), self.index(atom.index), self.number(atom.divisor)
            terms.append((told, self.number(coefficient)))
        return tuple(terms), self.number(index.const)

    def number(self, number: int) -> int:
        if type(number) is not int:
            self.is_known = False
            return 0
        return number
