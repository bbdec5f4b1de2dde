"""Facts about a kernel that writing Triton needs besides `KernelFacts`: what is read again, which sums go along with
maxima, and what has to be exact."""
from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch

from framejit.backends.fuse.loop_ir.expr import COMPUTE, SENSITIVE, Expr
from framejit.backends.fuse.loop_ir.facts import KernelFacts
from framejit.backends.fuse.loop_ir.nodes import Kernel


class Analysis(KernelFacts):
    """Facts about the expressions of a kernel. `online`: the sum of a softmax is gathered in the same pass as its
    maximum."""

    def __init__(self, kernel: Kernel, online: bool = False) -> None:
        self._is_online = online
        self.reads: dict[Expr, bool] = {}
        """Whether something is loaded for it, outside of reductions or in them."""
        self.online: dict[Expr, Expr] = {}
        """For a reduction that goes along with that of a maximum, the latter."""
        super().__init__(kernel)

    def _look_at(self, node: Expr) -> None:
        super()._look_at(node)
        # a scan goes through all elements, whatever mask its value is wanted under
        self.reads[node] = node.op != "scan" and (
            node.op == "load" or any(self.reads[operand] for operand in node.operands())
        )
        if self._is_online and node.op == "reduce" and (greatest := _softmax_maximum(node)) is not None:
            self.online[node] = greatest
            self.depth[node] = self.depth[greatest]

    @cached_property
    def unmasked(self) -> frozenset[Expr]:
        """The expressions that are wanted outside of masks, too: each may be computed without them wherever it is
        wanted, once."""
        found: set[Expr] = set()
        stack = [*self._roots()]
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack.extend((node.args[0], node.args[2]) if node.op == "masked" else node.operands())
        return frozenset(found)

    @cached_property
    def reloaded(self) -> int:
        """How many of the values loaded in the reduction loops more than one pass needs."""
        wanted: dict[Expr, set[int]] = {}
        for root, position in self._reduction_roots():
            seen: set[Expr] = set()
            stack = [root]
            while stack:
                node = stack.pop()
                if node in seen or not self.free[node] & self.reduction:
                    continue
                seen.add(node)
                if node.op == "load":
                    wanted.setdefault(node, set()).add(position)
                stack.extend(operand for operand in node.operands() if operand.op != "reduce")
        return sum(len(positions) > 1 for positions in wanted.values())

    def _reduction_roots(self) -> Iterator[tuple[Expr, int]]:
        """What passes compute, with their numbers."""
        for node in self.order:
            if node.op == "reduce":
                yield node.args[0], self.depth[node] - 1
        for store in self.kernel.stores:
            if store.in_reduction:
                yield store.value, self.depth[store.value]

    @cached_property
    def quick(self) -> frozenset[Expr]:
        """The float32 values that end only in numbers of 8 or 11 bits, or in the sum of a softmax: a relative error of
        2**-20 is nothing to them.

        In a softmax's sum the exponentials are at most 1, and the greatest is 1: small ones may be off by more than
        their own last bits.
        """
        exact: set[Expr] = set()
        for store in self.kernel.stores:
            exact.update(atom.value for atom in store.index.indirects)
            if self.kernel.buffers[store.buffer].dtype not in COMPUTE:
                exact.add(store.value)
        for node in reversed(self.order):
            if node.op == "cast" and node.dtype in COMPUTE:
                continue
            if (
                node.op in SENSITIVE
                or node.op in ("load", "index")
                or (node.op == "cast" and not node.dtype.is_floating_point)
            ):
                exact.update(node.operands())
            elif node.op == "scan" or (
                node.op == "reduce"
                # a backward compares the greatest with what it computes anew
                and (node.attr in ("argmax", "argmin", "max", "min") or (node in exact and not is_softmax_sum(node)))
            ):
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
    if (
        shifted.op != "sub"
        or shifted.args[1].op != "reduce"
        or shifted.args[1].attr != "max"
        or shifted.args[1].args[0] is not shifted.args[0]
    ):
        return None
    return shifted.args[1]


def is_softmax_sum(node: Expr) -> bool:
    """Whether it is the sum of exp(value - greatest value)."""
    return _softmax_maximum(node) is not None
