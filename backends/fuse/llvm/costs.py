"""Facts about a kernel that planning its loops for a CPU needs besides `KernelFacts`: what expressions cost, and what
loads."""

from __future__ import annotations

from typing import Final

from framejit.backends.fuse.llvm.maths import SLEEF
from framejit.backends.fuse.llvm.polynomials import INLINE
from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.facts import KernelFacts
from framejit.backends.fuse.loop_ir.nodes import Kernel

COSTS: Final = {
    **dict.fromkeys(SLEEF, 20), "sigmoid": 24, "div": 4, "sqrt": 4, "rsqrt": 6, "reciprocal": 4, "floordiv": 30,
    "mod": 30, "truncdiv": 10, "const": 0, "index": 1, "scan": 8, **dict.fromkeys(INLINE, 14),
}


class Analysis(KernelFacts):
    """What is known about the expressions of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.cost: dict[Expr, int] = {}
        """Instructions it takes, about; what reductions in it took is not counted."""
        self.has_loads: dict[Expr, bool] = {}
        """Whether anything is loaded for it (not counting what its reductions loaded)."""
        super().__init__(kernel)

    def _look_at(self, node: Expr) -> None:
        super()._look_at(node)
        if node.op == "masked" and self.depth[node.args[1]] and not self.free[node.args[0]] & self.reduction:
            raise NotImplementedError("a reduction where a condition holds: its loads would not be masked")
        if node.op == "reduce":
            self.cost[node] = 0
        else:
            self.cost[node] = min(
                COSTS.get(node.op, 1) + sum(self.cost[operand] for operand in node.operands()), 1 << 20
            )
        # a scan goes through all elements, whatever mask its value is wanted under
        self.has_loads[node] = node.op == "load" or (
            node.op not in ("reduce", "scan") and any(self.has_loads[operand] for operand in node.operands())
        )
