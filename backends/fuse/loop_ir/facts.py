"""Facts about a kernel's expressions that each code generator needs: what changes in which loop, and after which passes
over the reduction loops it is known."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.loop_ir.nodes import Kernel, Store


class KernelFacts:
    """Facts about the expressions of one kernel that every code generator begins with. One that has to know more
    extends `_look_at`."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.reduction = frozenset(kernel.reduction)
        self.order: list[Expr] = []
        """Each expression once, operands before what uses them."""
        self.free: dict[Expr, frozenset[Var]] = {}
        """The loop variables that a value changes with, without those that reductions in it bind."""
        self.depth: dict[Expr, int] = {}
        """How many passes over the reduction loops must be through before the value is known (at one turn of theirs, if
        it depends on that)."""
        for root in self._roots():
            for node in root.walk() if root not in self.free else ():
                if node not in self.free:
                    self._look_at(node)
                    self.order.append(node)

    def _roots(self) -> Iterator[Expr]:
        for store in self.kernel.stores:
            yield store.value
            yield from (atom.value for atom in store.index.indirects)

    def _look_at(self, node: Expr) -> None:
        """Note the facts of a node; those of its operands are known."""
        operands = node.operands()
        free = frozenset[Var]().union(*(self.free[operand] for operand in operands))
        if node.op == "load":
            free |= self.index_vars(node.attr[1])
        elif node.op == "index":
            free |= self.index_vars(node.attr)
        elif node.op == "reduce":
            free -= self.reduction
        elif node.op == "scan":
            free |= self.reduction
        self.free[node] = free
        self.depth[node] = max((self.depth[operand] for operand in operands), default=0) + (node.op == "reduce")

    def index_vars(self, index: Index) -> frozenset[Var]:
        """The variables that an index depends on, where reductions in it have been done."""
        return frozenset(index.own_vars().union(*(self.free[atom.value] for atom in index.indirects)))

    @cached_property
    def passes(self) -> int:
        """How often the reduction loops are run through."""
        needed = [self.depth[node] for node in self.order if node.op == "reduce"]
        needed += [self.depth[store.value] + 1 for store in self.kernel.stores if store.in_reduction]
        return max(needed, default=0)

    def pass_of(self, store: Store) -> int:
        """In which pass over the reduction loops a store in them is done."""
        return self._store_passes[id(store)]

    @cached_property
    def _store_passes(self) -> dict[int, int]:
        """The pass in which each store is done: as early as its value is known, but never before an earlier store to
        the same memory; the last one where that memory is loaded too, which may be again in each pass, or where the
        place is computed."""
        loaded = {self._memory(node.attr[0]) for node in self.order if node.op == "load"}
        found, latest = dict[int, int](), dict[str, int]()
        for store in self.kernel.stores:
            if store.in_reduction:
                memory = self._memory(store.buffer)
                waits = memory in loaded or any(True for _ in store.index.indirects)
                found[id(store)] = latest[memory] = (
                    self.passes - 1 if waits else max(self.depth[store.value], latest.get(memory, 0))
                )
        return found

    def _memory(self, name: str) -> str:
        return self.kernel.buffers[name].memory
