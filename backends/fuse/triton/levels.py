"""What of a kernel belongs to which turn: what depends on the inner loops, which passes over them the reductions need, and what has to be exact."""
from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import torch

from framejit.backends.fuse.loop_ir.expr import COMPUTE, Expr
from framejit.backends.fuse.loop_ir.index import Var
from framejit.backends.fuse.loop_ir.nodes import Kernel, Store

SENSITIVE: Final = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "floor", "ceil", "trunc", "round", "sign", "floordiv", "truncdiv", "mod", "fmod", "isnan", "isinf", "signbit",
    "nextafter", "bitcast",
})  # fmt: skip
"""Operations whose result may jump when an operand changes by a little."""


class Levels:
    """Facts about the expressions of a kernel. `online`: the sum of a softmax is gathered in the same pass as its maximum."""

    def __init__(self, kernel: Kernel, online: bool = False) -> None:
        self.kernel = kernel
        self.inner = frozenset(kernel.inner)
        self.order = list(_in_order(kernel))
        self.free: dict[Expr, frozenset[Var]] = {}
        """The loop variables that a value depends on, without those that reductions in it bind."""
        self.depth: dict[Expr, int] = {}
        """How many passes over the inner loops must be through before the value is known (at one inner turn, if it depends on that)."""
        self.reads: dict[Expr, bool] = {}
        """Whether something is loaded for it, outside of reductions or in them."""
        self.online: dict[Expr, Expr] = {}
        """For a reduction that goes along with that of a maximum, the latter."""
        for node in self.order:
            below = node.operands()
            own = node.attr[1].vars() if node.op == "load" else node.attr.vars() if node.op == "index" else ()
            free = frozenset(own).union(*(self.free[operand] for operand in below))
            self.free[node] = free - self.inner if node.op == "reduce" else free | self.inner if node.op == "scan" else free
            # a scan goes through all elements, whatever mask its value is wanted under
            self.reads[node] = node.op != "scan" and (node.op == "load" or any(self.reads[operand] for operand in below))
            self.depth[node] = max((self.depth[operand] for operand in below), default=0) + (node.op == "reduce")
            if online and node.op == "reduce" and (greatest := _softmax_maximum(node)) is not None:
                self.online[node] = greatest
                self.depth[node] = self.depth[greatest]

    @cached_property
    def passes(self) -> int:
        """How often the inner loops are run through."""
        needed = [self.depth[node] for node in self.order if node.op == "reduce"]
        needed += [self.depth[store.value] + 1 for store in self.kernel.stores if store.inner]
        return max(needed, default=0)

    @cached_property
    def reloaded(self) -> int:
        """How many of the values loaded in the inner loops more than one pass needs."""
        wanted: dict[Expr, set[int]] = {}
        for root, position in self._inner_roots():
            seen: set[Expr] = set()
            stack = [root]
            while stack:
                node = stack.pop()
                if node in seen or not self.free[node] & self.inner:
                    continue
                seen.add(node)
                if node.op == "load":
                    wanted.setdefault(node, set()).add(position)
                stack.extend(operand for operand in node.operands() if operand.op != "reduce")
        return sum(len(positions) > 1 for positions in wanted.values())

    def _inner_roots(self) -> Iterator[tuple[Expr, int]]:
        """What passes compute, with their numbers."""
        for node in self.order:
            if node.op == "reduce":
                yield node.args[0], self.depth[node] - 1
        for store in self.kernel.stores:
            if store.inner:
                yield store.value, self.depth[store.value]

    @cached_property
    def quick(self) -> frozenset[Expr]:
        """The float32 values that end only in numbers of 8 or 11 bits, or in the sum of a softmax: a relative error of 2**-20 is nothing to them.

        In a softmax's sum the exponentials are at most 1, and the greatest is 1: small ones may be off by more than their own last bits.
        """
        exact: set[Expr] = set()
        for store in self.kernel.stores:
            exact.update(atom.value for atom in store.index.indirects())
            if self.kernel.buffers[store.buffer].dtype not in COMPUTE:
                exact.add(store.value)
        for node in reversed(self.order):
            if node.op == "cast" and node.dtype in COMPUTE:
                continue
            if node.op in SENSITIVE or node.op in ("load", "index") or (node.op == "cast" and not node.dtype.is_floating_point):
                exact.update(node.operands())
            elif node.op == "scan" or (node.op == "reduce" and (node.attr in ("argmax", "argmin") or (node in exact and not is_softmax_sum(node)))):
                exact.update(node.args)
            elif node.op == "reduce":
                if node in exact:
                    exact.update(node.args[0].args)
            elif node in exact:
                exact.update(node.args)
        return frozenset(node for node in self.order if node.dtype == torch.float32 and node not in exact)


def _softmax_maximum(node: Expr) -> Expr | None:
    """M, if the node is the sum of exp(value - M) and M the maximum of value."""
    if node.op != "reduce" or node.attr != "sum" or node.dtype != torch.float32 or node.args[0].op != "exp":
        return None
    shifted = node.args[0].args[0]
    if shifted.op != "sub" or shifted.args[1].op != "reduce" or shifted.args[1].attr != "max" or shifted.args[1].args[0] is not shifted.args[0]:
        return None
    return shifted.args[1]


def is_softmax_sum(node: Expr) -> bool:
    """Whether it is the sum of exp(value - greatest value)."""
    return _softmax_maximum(node) is not None


def _in_order(kernel: Kernel) -> Iterator[Expr]:
    """Each expression once, operands before what uses them."""
    seen: set[Expr] = set()
    for store in kernel.stores:
        for root in _roots(store):
            for node in root.walk():
                if node not in seen:
                    seen.add(node)
                    yield node


def _roots(store: Store) -> Iterator[Expr]:
    yield store.value
    for atom in store.index.indirects():
        yield atom.value
