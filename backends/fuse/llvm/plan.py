"""Which loop of a kernel becomes vectors, how far loops are unrolled, and in which passes over the reduction loops
reductions are done."""
from __future__ import annotations

import math
from dataclasses import field
from typing import Final

from framejit.backends.fuse.llvm.machine import machine
from framejit.backends.fuse.llvm.maths import SLEEF
from framejit.backends.fuse.llvm.polynomials import INLINE
from framejit.backends.fuse.loop_ir.expr import Expr, is_ordered
from framejit.backends.fuse.loop_ir.facts import KernelFacts
from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.loop_ir.nodes import Kernel, Store
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize, hint, surely_equal
from framejit.late_dataclass import dataclass

CHUNK: Final = 8192
"""The most elements of a row that one turn of a pointwise kernel's parallel loop does."""
SCRATCH: Final = 1 << 20
"""The most bytes of a row that are kept from one pass to the next: what the second-level cache holds."""
KEEP: Final = 12
"""How many instructions a value must cost to be kept rather than computed again."""
TILE: Final = 4
"""Vectors along each side of a tile."""
MOST_TURNED: Final = 4
"""Loads that are turned around tile by tile at most: more would not stay in the first-level cache."""
FEW_LANES: Final = 4
"""Rows, side by side as lanes, from which on a scan of many instructions an element is quicker so than through vectors
of one row."""
GRAIN: Final = 60_000
"""How much work, in vector elements of one instruction each, a thread is worth starting for: some 5 microseconds."""
COSTS: Final = {
    **dict.fromkeys(SLEEF, 20), "sigmoid": 24, "div": 4, "sqrt": 4, "rsqrt": 6, "reciprocal": 4, "floordiv": 30,
    "mod": 30, "truncdiv": 10, "const": 0, "index": 1, "scan": 8, **dict.fromkeys(INLINE, 14),
}
"""How many instructions an operation takes, about; 1 where nothing is said."""


class Analysis(KernelFacts):
    """Facts about a kernel that planning its loops for a CPU needs besides `KernelFacts`: the cost of expressions, and
    which of them load."""

    def __init__(self, kernel: Kernel) -> None:
        self.cost: dict[Expr, int] = {}
        """Instructions it takes, about; what reductions in it took is not counted."""
        self.has_loads: dict[Expr, bool] = {}
        """Whether anything is loaded for it (not counting what its reductions loaded)."""
        super().__init__(kernel)

    def _look_at(self, node: Expr) -> None:
        super()._look_at(node)
        if node.op == "reduce":  # it is done in every turn, whatever mask its result is wanted under
            self.cost[node] = 0
        else:
            self.cost[node] = min(
                COSTS.get(node.op, 1) + sum(self.cost[operand] for operand in node.operands()), 1 << 20
            )
        # a scan goes through all elements, whatever mask its value is wanted under
        self.has_loads[node] = node.op == "load" or (
            node.op not in ("reduce", "scan") and any(self.has_loads[operand] for operand in node.operands())
        )


@dataclass
class Pass:
    """One walk through the reduction loops: the reductions that come to an end in it, and the values that it stores or
    keeps."""

    reductions: list[Expr] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    keeps: list[Expr] = field(default_factory=list)
    """Values kept for later passes."""
    kept: set[Expr] = field(default_factory=set)
    """Values that earlier passes have kept."""
    scans: list[Expr] = field(default_factory=list)
    """The scans that run through it, operands first: also those that an earlier pass has run through and not kept."""


@dataclass
class LoopPlan:
    """How a kernel's loops are run."""

    kernel: Kernel
    analysis: Analysis
    vector: Var | None
    """The loop that becomes vectors."""
    lanes: int
    unroll: int
    grid: tuple[Var, ...]
    """The parallel loops that run one element at a time, outermost first."""
    loops: tuple[Var, ...]
    """The loops of each pass. A pointwise kernel's one pass is over its vector loop."""
    block: int
    """Elements of the vector loop that one turn of the parallel loop does, if the vector loop is a parallel one; else
    0."""
    passes: list[Pass]
    final: list[Store]
    """The stores that are done once for each turn of the parallel loops."""
    tile: Var | None = None
    """In a pointwise kernel that transposes: the loop along which what is transposed is contiguous. That is done in
    square tiles of `block` turns."""
    turned: tuple[Expr, ...] = ()
    """The loads that are contiguous along `tile`."""

    @property
    def blocks(self) -> int:
        if not self.block or self.vector is None or surely_equal(self.vector.size, self.block):
            return 1
        return -(-self.vector.size // self.block)

    @property
    def total(self) -> int:
        """The number of turns of the parallel loop."""
        return math.prod(self.digits)

    @property
    def digits(self) -> list[int]:
        """The sizes of the loops that the parallel loop runs through: those of the grid, tiles or blocks after them."""
        sizes = [var.size for var in self.grid]
        if self.tile is not None:
            sizes.append(-(-self.tile.size // self.block))
        return [*sizes, self.blocks] if self.blocks != 1 or self.tile is not None else sizes

    @property
    def parallel_lanes(self) -> bool:
        """Whether the lanes are turns of a parallel loop, each with reductions of its own."""
        return bool(self.block) and self.vector not in self.loops

    @property
    def grain(self) -> int:
        """The fewest turns of the parallel loop that are worth a thread."""
        roots = [store.value for store in self.kernel.stores]
        cost = 2 + sum(
            min(self.analysis.cost[node], 200)
            for node in {*roots, *(node.args[0] for p in self.passes for node in p.reductions)}
        )
        turns = hint(self.kernel.parallel_size) * max(hint(self.kernel.reduction_size), 1)
        turn = max(turns, 1) / max(hint(self.total), 1)
        return max(1, round(GRAIN / (cost * turn)))


def plan_loops(kernel: Kernel) -> LoopPlan:
    """Decide how a kernel's loops are run."""
    analysis = Analysis(kernel)
    passes, final = _passes(kernel, analysis)
    vector = _vector_loop(kernel, analysis)
    lanes = _lanes(analysis, vector) if vector else 1
    weight = len(analysis.order) + 10 * sum(COSTS.get(node.op, 1) >= 10 for node in analysis.order)
    pointwise = not any(p.reductions for p in passes)
    unroll = (
        (2 if weight < 20 else 1) if pointwise and not kernel.reduction
        else 4 if weight < 60 else 2 if weight < 200 else 1
    )
    if vector is None:
        return LoopPlan(kernel, analysis, None, 1, 1, kernel.parallel, kernel.reduction, 0, passes, final)
    if vector in kernel.reduction:
        unroll = _fitting(unroll, vector.size, lanes)
        loops = (*(var for var in kernel.reduction if var is not vector), vector)
        plan = LoopPlan(kernel, analysis, vector, lanes, unroll, kernel.parallel, loops, 0, passes, final)
    else:
        grid = tuple(var for var in kernel.parallel if var is not vector)
        if kernel.reduction:
            while unroll > 1 and (
                vector.size % (lanes * unroll)
                or vector.size // (lanes * unroll) * math.prod(var.size for var in grid) < 4
            ):
                unroll //= 2
            plan = LoopPlan(
                kernel, analysis, vector, lanes, unroll, grid, kernel.reduction, lanes * unroll, passes, final
            )
        elif (found := _turned_around(analysis, vector, grid)) is not None:
            tile, turned = found
            lanes = min(lanes, 16)
            grid = tuple(var for var in grid if var is not tile)
            plan = LoopPlan(
                kernel, analysis, vector, lanes, 1, grid, (tile, vector), TILE * lanes, passes, final, tile, turned
            )
        else:
            unroll = _fitting(unroll, vector.size, lanes)
            plan = LoopPlan(
                kernel, analysis, vector, lanes, unroll, grid, (vector,), max(1, min(CHUNK, vector.size)), passes, final
            )
    _keep(plan)
    return plan


def _fitting(unroll: int, size: int, lanes: int) -> int:
    """How often a loop of `size` turns can be unrolled. Of a size that is not known only as much is assumed as that
    takes."""
    if isinstance(size, SymbolicSize):
        while unroll > 1 and size < lanes * unroll:
            unroll //= 2
        return unroll
    return max(1, min(unroll, size // lanes))


def _passes(kernel: Kernel, analysis: Analysis) -> tuple[list[Pass], list[Store]]:
    """The passes, and the stores after all of them."""
    if not kernel.reduction:
        return ([Pass(stores=kernel.stores)], []) if kernel.parallel else ([], kernel.stores)
    reductions = [node for node in analysis.order if node.op == "reduce"]
    stores = [store for store in kernel.stores if store.in_reduction]
    passes = [Pass() for _ in range(analysis.passes)]
    for node in reductions:
        passes[analysis.depth[node] - 1].reductions.append(node)
    for store in stores:
        passes[analysis.pass_of(store)].stores.append(store)
    return passes, [store for store in kernel.stores if not store.in_reduction]


def _vector_loop(kernel: Kernel, analysis: Analysis) -> Var | None:
    """The loop along which most of the memory is walked through one element after the other."""
    candidates = [*kernel.parallel, *kernel.reduction]
    if not kernel.reduction and not kernel.parallel:
        return None
    accesses = [(node.attr[1], 1.0) for node in analysis.order if node.op == "load"]
    accesses += [(store.index, 1.5) for store in kernel.stores]
    ordered = any(map(is_ordered, analysis.order))
    slow = any(node.op == "scan" and node.attr == "logsumexp" for node in analysis.order)
    best, best_score = candidates[-1], -math.inf
    for position, var in enumerate(candidates):
        if ordered and var in kernel.reduction[:-1]:
            continue
        if slow and var in kernel.reduction and any(other.size >= FEW_LANES for other in kernel.parallel):
            continue  # its lanes are computed one after the other, unless each has a row of its own
        score = 0.0
        for index, factor in accesses:
            used = analysis.index_vars(index)
            weight = factor * math.prod(hint(each.size) for each in used)
            if var not in used:
                score += 0.3 * weight
                continue
            if index.stride(var) == 1 and not any(
                var in analysis.index_vars(Index({atom: 1})) for atom in index.terms if atom != var
            ):
                score += weight
            else:
                score -= weight * (0.5 if index.stride(var) else 1.0)
        size = max(hint(var.size), 1)
        filled = size / (-(-size // 16) * 16)
        score = score * filled if score > 0 else score / filled
        if score > best_score or (score == best_score and position):
            best, best_score = var, score
    return best


def _turned_around(analysis: Analysis, vector: Var, grid: tuple[Var, ...]) -> tuple[Var, tuple[Expr, ...]] | None:
    """The loop, other than the vector loop, along which most loads are contiguous, and these loads."""
    found: dict[Var, list[Expr]] = {}
    hidden = {node for masked in analysis.order if masked.op == "masked" for node in masked.args[1].loads()}
    for node in analysis.order:
        if node.op == "load" and node not in hidden and node.attr[1].is_affine and abs(node.attr[1].stride(vector)) > 1:
            for var in grid:
                if node.attr[1].stride(var) == 1 and min(var.size, vector.size) >= 8:
                    found.setdefault(var, []).append(node)
    if not found:
        return None
    tile = max(found, key=lambda var: len(found[var]))
    return tile, tuple(found[tile][:MOST_TURNED])


def _lanes(analysis: Analysis, vector: Var) -> int:
    """Lanes of a vector: as many as fill the machine's registers with the kernel's usual values."""
    sizes = {
        node.dtype.itemsize
        for node in analysis.order
        if node.op not in ("index", "const") and vector in analysis.free[node]
    }
    sizes |= {node.dtype.itemsize for node in analysis.order if node.op == "reduce"}
    wide = [size for size in sizes if size >= 4]
    return machine().vector_bytes // (min(wide) if wide else max(sizes, default=4))


def _keep(plan: LoopPlan) -> None:
    """Choose what one pass keeps for later ones."""
    analysis, reduction = plan.analysis, plan.analysis.reduction
    room = SCRATCH // max(plan.kernel.reduction_size * (plan.lanes * plan.unroll if plan.parallel_lanes else 1), 1)
    # what stays the same in one of these loops is computed outside of it
    turning = {var for var in reduction if var.size != 1}
    computed: dict[Expr, int] = {}
    kept: set[Expr] = set()
    for number, each in enumerate(plan.passes):
        each.kept = set(kept)
        stack = [node.args[0] for node in each.reductions] + [store.value for store in each.stores]
        seen: set[Expr] = set()
        while stack:
            node = stack.pop()
            if node in seen or not analysis.free[node] & reduction or node.op == "reduce":
                continue  # computed once a turn of the parallel loops
            seen.add(node)
            if node in kept:
                continue
            width = max(node.dtype.itemsize, 1)
            if (
                node in computed
                and analysis.cost[node] >= KEEP
                and width <= room
                and {plan.vector, *turning} <= analysis.free[node]
            ):
                plan.passes[computed[node]].keeps.append(node)
                kept.add(node)
                each.kept.add(node)
                room -= width
                continue
            # what is masked may not be computed for itself
            stack.extend(node.operands() if node.op != "masked" else node.args[::2])
            computed.setdefault(node, number)
    for each in plan.passes:
        each.scans = _scans(plan, each)


def _scans(plan: LoopPlan, each: Pass) -> list[Expr]:
    """The scans that a pass needs."""
    stack = [*(node.args[0] for node in each.reductions), *(store.value for store in each.stores), *each.keeps]
    seen: set[Expr] = set()
    while stack:
        node = stack.pop()
        if node not in seen and node not in each.kept and node.op != "reduce":
            seen.add(node)
            stack.extend(node.operands())
    return [node for node in plan.analysis.order if node.op == "scan" and node in seen]
