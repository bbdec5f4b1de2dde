"""The function of a kernel: its parallel loop, and what is done in a turn of that."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from framejit.backends.fuse.llvm.accumulators import Reduction, first_position, identity
from framejit.backends.fuse.llvm.assembler import Assembler, Value, integer
from framejit.backends.fuse.llvm.counted_loop import counted_loop
from framejit.backends.fuse.llvm.emit import ENTRY, GRID, Emitter, Level
from framejit.backends.fuse.llvm.kernel_function import begin_function, end_function, module_text
from framejit.backends.fuse.llvm.plan import LoopPlan, Pass
from framejit.backends.fuse.llvm.reduction_loops import ReductionLoops
from framejit.backends.fuse.llvm.scan_loops import Scan, grouped
from framejit.backends.fuse.llvm.size_parameters import SizeArguments, size_arguments
from framejit.backends.fuse.llvm.tiles import turn_tile
from framejit.backends.fuse.llvm.types import REGISTER, number_text
from framejit.backends.fuse.loop_ir.index import Var, flatten
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize

STACK: Final = 1 << 16
"""The most bytes of scratch memory taken from the stack."""


class KernelWriter(Emitter):
    """Writes the whole function of a kernel."""

    def __init__(self, plan: LoopPlan, name: str) -> None:
        super().__init__(plan)
        self.name = name

    def write(self) -> tuple[str, tuple[SymbolicSize, ...]]:
        """The module's text, and the sizes that its function is to be given."""
        with size_arguments() as arguments:
            return self._write(arguments), tuple(arguments.sizes.values())

    def _write(self, arguments: SizeArguments) -> str:
        asm = begin_function(self.blocks, self.module, self.names.values())
        start = asm.block
        self.levels.append(Level(asm))
        scratch = self._scratch(asm)
        self._grid()
        if scratch:
            asm.do(f"call void @free(ptr {scratch})")
        end_function(self.blocks, asm)
        start.lines[:0] = arguments.lines
        nothing = "@nothing = private unnamed_addr constant [16 x i8] zeroinitializer, align 16"
        return module_text(self.name, self.module, self.blocks, (nothing,), wide=True)

    def _scratch(self, asm: Assembler) -> str | None:
        """Make room for what passes keep; returns what is to be freed."""
        plan = self.plan
        per_element = plan.lanes * plan.unroll if plan.parallel_lanes else 1
        elements = plan.kernel.reduction_size * per_element + plan.lanes * plan.unroll
        # each row of vectors is filled up: its last lanes are written too
        if plan.vector is not None and not plan.parallel_lanes:
            elements += plan.lanes
        for position, node in enumerate(plan.turned):
            self.tiles[node] = f"%tile{position}"
            asm.do(f"%tile{position} = alloca [{plan.block ** 2 * node.dtype.itemsize} x i8], align 64")
        kept = [node for each in plan.passes for node in each.keeps]
        offsets, size = [], 0
        for node in kept:
            offsets.append(size)
            size += -(-elements * node.dtype.itemsize // 64) * 64
        if not kept:
            return None
        self.kept_at = flatten(plan.loops, [var.size for var in plan.loops]) * per_element
        on_stack = size <= STACK
        if on_stack:
            asm.do(f"%scratch = alloca i8, {integer(size)}, align 64")
        else:
            self.module.declare("aligned_alloc", "ptr", ["i64", "i64"])
            self.module.declare("free", "void", ["ptr"])
            asm.do(f"%scratch = call ptr @aligned_alloc(i64 64, {integer(size)})")
        for position, (node, offset) in enumerate(zip(kept, offsets)):
            self.kept[node] = f"%kept{position}"
            asm.do(f"%kept{position} = getelementptr i8, ptr %scratch, {integer(offset)}")
        return None if on_stack else "%scratch"

    # loops

    def loop(
        self, parent: Assembler, start: Value, stop: Value, step: int, state: list[Value],
        body: Callable[[Assembler, Value, list[Value]], list[Value]], *, level: bool = True,
        may_be_empty: bool = False,
    ) -> list[Value]:
        """A loop from `start` to below `stop`, with registers carried around it; their values after it."""
        trips = None
        if not start.text.startswith("%") and not stop.text.startswith("%"):
            trips = max(0, -(-(int(stop.text) - int(start.text)) // step))
        if trips == 0:
            return state
        if trips == 1:
            if not level:
                return body(parent, start, state)
            self.levels.append(Level(parent))
            after = body(parent, start, state)
            self.levels.pop()
            return after

        def within(asm: Assembler, turn: Value, carried: list[Value]) -> list[Value]:
            self.put_home(turn, len(self.levels) - (not level))
            if level:
                self.levels.append(Level(asm))
            after = body(asm, turn, carried)
            if level:
                self.levels.pop()
            return after

        return counted_loop(self.blocks, parent, start, stop, step, state, within, may_be_empty=may_be_empty)

    def _grid(self) -> None:
        """The parallel loop."""
        plan, asm = self.plan, self.levels[ENTRY].asm
        sizes = plan.digits
        if plan.total == 1:
            self.levels.append(Level(asm))
            self._turn(asm, [integer(0)] * len(sizes))
            self.levels.pop()
            return
        start, end = Value("%begin", "i64"), Value("%end", "i64")
        first = _digits(asm, start, sizes)

        self.loop(asm, start, end, 1, first if len(sizes) > 1 else [], partial(self._digits_turn, sizes))

    def _digits_turn(self, sizes: list[int], asm: Assembler, turn: Value, digits: list[Value]) -> list[Value]:
        """One turn of the parallel loop, whose place in each loop of the nest is counted along where there are
        several."""
        digits = digits or [turn]
        for digit in digits:
            self.put_home(digit, GRID)
        self._turn(asm, digits)
        return _counted_up(asm, digits, sizes) if len(sizes) > 1 else []

    def _turn(self, asm: Assembler, digits: list[Value]) -> None:
        """One turn of the parallel loop."""
        plan = self.plan
        self.vars.update(zip(plan.grid, digits))
        low, high = integer(0), integer(0)
        if plan.block and plan.vector is not None:
            size = integer(plan.vector.size)
            low, high = self._bounds(asm, digits[-1] if plan.blocks > 1 else integer(0), plan.vector.size)
            if plan.tile is not None:
                self._tiles(asm, self._bounds(asm, digits[-2], plan.tile.size), (low, high))
                return
            if plan.parallel_lanes:
                self.vars[plan.vector] = low
                self.tails = [
                    self._tail(asm, low, size, instance) if plan.vector.size % plan.block else None
                    for instance in range(plan.unroll)
                ]
        for each in plan.passes:
            self.readable = each.kept
            if plan.block and not plan.parallel_lanes:
                self._row(each, low, high)
            elif each.reductions and not plan.kernel.reduction_size:
                self._nothing(each)
            elif plan.kernel.reduction_size:
                self._pass(each)
        self.readable = set()
        self.store(plan.final, plan.unroll if plan.parallel_lanes else 1)

    def _bounds(self, asm: Assembler, block: Value, size: int) -> tuple[Value, Value]:
        """Where a block of a loop of `size` turns begins and ends."""
        length = self.plan.block
        if size <= length:
            return integer(0), integer(size)
        low = self.put_home(asm.binary("mul nuw nsw", block, integer(length)), GRID)
        high = self.put_home(asm.binary("add nuw nsw", low, integer(length)), GRID)
        if size % length:
            high = self.put_home(asm.intrinsic("smin", high, integer(size)), GRID)
        return low, high

    def _tiles(self, asm: Assembler, rows: tuple[Value, Value], columns: tuple[Value, Value]) -> None:
        """One tile of a kernel that turns something around."""
        plan, tile = self.plan, self.plan.tile
        assert tile is not None
        for node in plan.turned:
            turn_tile(self, node, (rows[0], columns[0]), (rows[1], columns[1]))

        self.loop(asm, *rows, 1, [], partial(self._tile_row, tile, rows[0], columns))

    def _tile_row(
        self, tile: Var, first: Value, columns: tuple[Value, Value], asm: Assembler, turn: Value, _: list[Value]
    ) -> list[Value]:
        """One row of a tile whose first row is `first`."""
        self.vars[tile] = turn
        line = asm.binary("mul nuw nsw", asm.binary("sub", turn, first), integer(self.plan.block))
        self.tile_row = asm.binary("sub", line, columns[0])
        self._row(self.plan.passes[0], *columns)
        return []

    def _tail(self, asm: Assembler, first: Value, size: Value, instance: int) -> Value:
        """The lanes of an instance that are before the end of the vector loop."""
        lanes = self.plan.lanes
        is_known = not first.text.startswith("%") and not size.text.startswith("%")
        left = (
            integer(int(size.text) - int(first.text), "i32")
            if is_known
            else asm.convert("trunc", asm.binary("sub", size, first), "i32")
        )
        tail = asm.compare("slt", first_position(lanes, instance * lanes, "i32"), asm.splat(left, lanes))
        if is_known and int(left.text) - instance * lanes == 1:
            self.lone.add(tail.text)
        return self.put_home(tail, len(self.levels) - 1)

    def _row(self, each: Pass, low: Value, high: Value) -> None:
        """A pointwise kernel's loop over its vectors, from `low` to below `high`."""
        plan, parent, level = self.plan, self.levels[-1].asm, len(self.levels) - 1
        vector = plan.vector
        assert vector is not None
        step = plan.lanes * plan.unroll
        whole = plan.blocks > 1 and vector.size % plan.block == 0 and plan.block % step == 0
        fixed = not high.text.startswith("%")
        if fixed:
            middle = integer(int(high.text) // step * step)
        elif whole:
            middle = high
        else:
            steps = parent.binary("udiv", parent.binary("sub", high, low), integer(step))
            middle = self.put_home(parent.binary("add", low, parent.binary("mul", steps, integer(step))), level)

        self.loop(
            parent, low, middle, step, [], partial(self._vectors, each, plan.unroll, None),
            may_be_empty=not fixed and not whole,
        )
        if not whole:
            masked = plan.lanes > 1 and (not fixed or int(high.text) % plan.lanes != 0)
            self.loop(
                parent, middle, high, plan.lanes, [], partial(self._vectors, each, 1, high if masked else None),
                may_be_empty=not fixed,
            )

    def _vectors(
        self, each: Pass, instances: int, stop: Value | None, asm: Assembler, first: Value, _: list[Value]
    ) -> list[Value]:
        """What a pointwise kernel does for the vectors from `first` on, of which lanes may lie behind `stop`, if it is
        given."""
        assert self.plan.vector is not None
        self.vars[self.plan.vector] = first
        self.tails[0] = self._tail(asm, first, stop, 0) if stop is not None else None
        self.store(each.stores, instances)
        self.tails[0] = None
        return []

    # passes

    def _nothing(self, each: Pass) -> None:
        for node in each.reductions:
            value = Value(number_text(identity(node.attr, node.dtype), node.dtype), REGISTER[node.dtype])
            for instance in range(self.plan.unroll):
                self.levels[GRID].cache[self._key(node, instance, None)] = value

    def _pass(self, each: Pass) -> None:
        """One walk through the reduction loops."""
        plan, parent = self.plan, self.levels[GRID].asm
        by_lane = plan.lanes > 1 and not plan.parallel_lanes
        writers = []
        for node in each.reductions:
            varies = plan.parallel_lanes and self.is_vector(node)
            writers.append(Reduction(node, plan.lanes if by_lane or varies else 1))
        scans = []
        for nodes in grouped(each.scans):
            varies = plan.parallel_lanes and self.is_vector(nodes[0])
            scans.append(Scan(nodes, plan.lanes if by_lane or varies else 1, plan.lanes if by_lane else 1))
        nest = ReductionLoops(self, each, writers, scans)
        final = nest.run(parent)
        for writer, state in zip(writers, final):
            for instance, parts in enumerate(nest.split(writer, state)):
                value = writer.across(parent, parts) if by_lane else parts[-1]
                if writer.is_position and value.type != "i64":
                    value = parent.convert("sext", value, "i64")
                self.levels[GRID].cache[self._key(writer.node, instance, None)] = self.put_home(value, GRID)


def _digits(asm: Assembler, flat: Value, sizes: list[int]) -> list[Value]:
    """The position in each loop of the nest, from that in the flattened one."""
    digits: list[Value] = []
    for size in reversed(sizes[1:]):
        digits.append(asm.binary("urem", flat, integer(size)))
        flat = asm.binary("udiv", flat, integer(size))
    return [flat, *reversed(digits)]


def _counted_up(asm: Assembler, digits: list[Value], sizes: list[int]) -> list[Value]:
    """The next position: the innermost counts, the others when it starts anew."""
    result: list[Value] = []
    carry: Value | None = None
    for digit, size in zip(reversed(digits), reversed(sizes)):
        step = integer(1) if carry is None else asm.convert("zext", carry, "i64")
        following = asm.binary("add nuw nsw", digit, step)
        if len(result) + 1 == len(sizes):
            result.append(following)
            break
        carry = asm.compare("eq", following, integer(size))
        result.append(asm.select(carry, integer(0), following))
    return result[::-1]

