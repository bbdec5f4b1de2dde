"""The reduction loops of one pass, and the accumulators that run through them."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from framejit.backends.fuse.llvm.accumulators import RUN, Reduction, first_position, widened, zero
from framejit.backends.fuse.llvm.assembler import Assembler, Value, integer
from framejit.backends.fuse.llvm.plan import Pass
from framejit.backends.fuse.llvm.scan_loops import Scan
from framejit.backends.fuse.loop_ir.index import flatten

if TYPE_CHECKING:
    from framejit.backends.fuse.llvm.loops import KernelWriter

State = list[list[Value]]
"""The registers of each reduction of a pass, those of all instances behind one another."""
Turn = Callable[[Assembler, Value, State], State]
"""Writes a turn of a loop: where to, the loop's variable, and the state before it; gives the state after it."""


class ReductionLoops:
    """The reduction loops of one pass. Sums of floats are added up in runs of at most RUN, and the runs' sums in
    float64."""

    def __init__(self, writer: KernelWriter, each: Pass, reductions: list[Reduction], scans: list[Scan]) -> None:
        self.writer, self.each, self.reductions, self.scans = writer, each, reductions, scans
        plan = self.plan = writer.plan
        self.positions = "i32" if plan.kernel.reduction_size + plan.lanes * plan.unroll < 1 << 31 else "i64"
        self.step = plan.lanes * plan.unroll if not plan.parallel_lanes else 1
        trips = [var.size for var in plan.loops]
        if not plan.parallel_lanes:
            trips[-1] = -(-trips[-1] // self.step)
        self.split_at, self.run_length = -1, 0
        run = 1
        if any(reduction.cascades for reduction in reductions):
            for depth in reversed(range(len(trips))):
                if run * trips[depth] > RUN:
                    self.split_at, self.run_length = depth, max(1, RUN // run)
                    break
                run *= trips[depth]

    def instances(self, reduction: Reduction) -> int:
        """How many accumulators a reduction has."""
        if self.plan.parallel_lanes:
            return self.plan.unroll if reduction.lanes > 1 or self.plan.lanes == 1 else 1
        return self.plan.unroll

    def split(self, reduction: Reduction | Scan, state: list[Value]) -> list[list[Value]]:
        """A reduction's or a scan's state by instance."""
        size = 2 if (reduction.has_position if isinstance(reduction, Scan) else reduction.is_position) else 1
        return [state[start:start + size] for start in range(0, len(state), size)]

    def run(self, parent: Assembler) -> State:
        """Write the loops; returns each reduction's state, that of all instances in one where they saw parts of one
        row."""
        plan = self.plan
        state = [
            self._sums(reduction) if self.split_at >= 0 and reduction.cascades else self._fresh(reduction)
            for reduction in self.reductions
        ]
        state += [
            scan.start(self.positions) * (plan.unroll if scan.lanes > 1 and plan.parallel_lanes else 1)
            for scan in self.scans
        ]
        state = self._walk(0, parent, state)
        result = []
        for reduction, registers in zip(self.reductions, state):
            if self.split_at >= 0 and reduction.cascades:
                if not self.plan.parallel_lanes:
                    registers = [reduction.across(parent, registers)]
                type = reduction.type
                result.append([parent.convert("fptrunc", register, type) for register in registers])
                continue
            result.append(registers if self.plan.parallel_lanes else self._merged(parent, reduction, registers))
        return result

    def _merged(self, asm: Assembler, reduction: Reduction, registers: list[Value]) -> list[Value]:
        parts = self.split(reduction, registers)
        while len(parts) > 1:
            pairs = [reduction.merge(asm, a, b) for a, b in zip(parts[::2], parts[1::2])]
            parts = pairs + parts[2 * len(pairs):]
        return parts[0]

    def _fresh(self, reduction: Reduction) -> list[Value]:
        state: list[Value] = []
        for instance in range(self.instances(reduction)):
            position = None
            if reduction.is_position:
                position = (
                    first_position(reduction.lanes, instance * reduction.lanes, self.positions)
                    if not self.plan.parallel_lanes
                    else integer(0, self.positions, reduction.lanes)
                )
            state += reduction.start(position)
        return state

    def _sums(self, reduction: Reduction) -> list[Value]:
        return [zero(reduction.lanes)] * (self.instances(reduction) if self.plan.parallel_lanes else 1)

    def _begun(self, state: State) -> State:
        """The state inside of a run."""
        begun = [
            self._fresh(reduction) if reduction.cascades else registers
            for reduction, registers in zip(self.reductions, state)
        ]
        return begun + state[len(begun):]

    def _ended(self, asm: Assembler, outside: State, inside: State) -> State:
        """The state after a run: its sums are added to those of float64."""
        result = []
        for reduction, sums, registers in zip(self.reductions, outside, inside):
            if reduction.cascades:
                registers = registers if self.plan.parallel_lanes else self._merged(asm, reduction, registers)
                registers = [
                    asm.binary("fadd", total, widened(asm, register)) for total, register in zip(sums, registers)
                ]
            result.append(registers)
        return result + inside[len(result):]

    def _walk(self, depth: int, parent: Assembler, state: State) -> State:
        """The loops from the one at a depth on."""
        plan = self.plan
        if depth == len(plan.loops):
            return self._element(parent, state, plan.unroll)
        var = plan.loops[depth]
        is_vector = var is plan.vector and not plan.parallel_lanes
        step = self.step if is_vector else 1
        # loops that may be empty are left out, not written
        middle = var.size // step * step if step == 1 or var.size >= step else 0
        turn: Turn = partial(self._vectors, plan.unroll, False) if is_vector else partial(self._turn, depth)
        if depth != self.split_at:
            state = self._loop(parent, integer(0), integer(middle), step, state, turn)
            return self._rest(parent, middle, state) if is_vector else state
        run = partial(self._run, turn, middle, step)
        state = self._loop(parent, integer(0), integer(middle), self.run_length * step, state, run, level=False)
        if is_vector and middle < var.size:
            state = self._ended(parent, state, self._rest(parent, middle, self._begun(state)))
        return state

    def _turn(self, depth: int, asm: Assembler, turn: Value, state: State) -> State:
        """A turn of a loop that runs one element at a time."""
        self.writer.vars[self.plan.loops[depth]] = turn
        return self._walk(depth + 1, asm, state)

    def _vectors(self, instances: int, masked: bool, asm: Assembler, turn: Value, state: State) -> State:
        """A turn of the vector loop. `masked`: lanes may lie beyond its end."""
        vector, writer = self.plan.vector, self.writer
        assert vector is not None
        writer.vars[vector] = turn
        writer.tails[0] = writer._tail(asm, turn, integer(vector.size), 0) if masked else None
        state = self._element(asm, state, instances)
        writer.tails[0] = None
        return state

    def _run(self, turn: Turn, end: int, step: int, asm: Assembler, first: Value, outside: State) -> State:
        """The turns of one run, from `first` on, of a loop that ends at `end`."""
        length = self.run_length * step
        stop = asm.binary("add nuw nsw", first, integer(length))
        if end % length:
            stop = asm.intrinsic("smin", stop, integer(end))
        if not first.text.startswith("%"):
            stop = integer(end)
        inside = self._loop(asm, first, stop, step, self._begun(outside), turn)
        return self._ended(asm, outside, inside)

    def _rest(self, parent: Assembler, middle: int, state: State) -> State:
        """The vectors that do not fill all instances, the last of them perhaps with lanes beyond the end."""
        plan = self.plan
        assert plan.vector is not None
        size = plan.vector.size
        if middle == size:
            return state
        return self._loop(
            parent, integer(middle), integer(size), plan.lanes, state, partial(self._vectors, 1, size % plan.lanes != 0)
        )

    def _loop(
        self, parent: Assembler, start: Value, stop: Value, step: int, state: State, turn: Turn, level: bool = True
    ) -> State:
        """A loop that carries the state."""
        sizes = [len(registers) for registers in state]

        def carrying(asm: Assembler, place: Value, carried: list[Value]) -> list[Value]:
            return _flat(turn(asm, place, _by_reduction(carried, sizes)))
        return _by_reduction(self.writer.loop(parent, start, stop, step, _flat(state), carrying, level=level), sizes)

    def _element(self, asm: Assembler, state: State, instances: int) -> State:
        """What is done for one element in each lane."""
        writer, plan = self.writer, self.plan
        scanned = self._scan(asm, state[len(self.reductions):], instances)
        writer.keep(self.each.keeps, instances)
        result = []
        for reduction, registers in zip(self.reductions, state):
            parts = self.split(reduction, registers)
            for instance in range(min(instances, len(parts))):
                x = writer.splat(writer.value(reduction.node.args[0], instance), reduction.lanes)
                position = self._position(asm, instance, reduction.lanes) if reduction.is_position else None
                mask = writer.tails[instance] if not plan.parallel_lanes else None
                parts[instance] = reduction.step(asm, parts[instance], x, mask, position)
            result.append([register for part in parts for register in part])
        writer.store(self.each.stores, instances)
        return result + scanned

    def _scan(self, asm: Assembler, state: State, instances: int) -> State:
        """Go on with the scans for one element in each lane, and note their values."""
        writer, plan = self.writer, self.plan
        result = []
        for scan, registers in zip(self.scans, state):
            parts = self.split(scan, registers)
            for instance in range(instances if scan.lanes > 1 else 1):
                part = instance if plan.parallel_lanes else 0
                new = [writer.splat(writer.value(scan.operand, instance), scan.lanes)]
                if scan.has_position:
                    new.append(self._position(asm, instance, scan.lanes))
                last = self._last_lane(asm) if scan.across > 1 and writer.tails[instance] is not None else None
                values, parts[part] = scan.step(asm, parts[part], new, last)
                for node in scan.nodes:
                    level = writer.level_of(node)
                    writer.levels[level].cache[writer._key(node, instance, None)] = writer.put_home(
                        scan.result(asm, node, values), level
                    )
            result.append([register for part in parts for register in part])
        return result

    def _last_lane(self, asm: Assembler) -> Value:
        """The last lane within the loop, of a vector that may reach beyond the loop's end."""
        vector = self.plan.vector
        assert vector is not None
        left = asm.binary("sub", integer(vector.size - 1), self.writer.vars[vector])
        return asm.intrinsic("smin", left, integer(self.plan.lanes - 1))

    def _position(self, asm: Assembler, instance: int, lanes: int) -> Value:
        loops = self.plan.kernel.reduction
        index = flatten(loops, [var.size for var in loops])
        writer = self.writer
        if not self.plan.parallel_lanes and lanes > 1:
            value = (
                writer.vector_index(index, instance, None) if index.terms else first_position(lanes, 0, self.positions)
            )
        else:
            value = writer.splat(writer.scalar_index(index, instance, None), lanes)
        if value.type == self.positions:
            return value
        return asm.convert("trunc" if value.type == "i64" else "sext", value, self.positions)


def _flat(state: State) -> list[Value]:
    return [register for registers in state for register in registers]


def _by_reduction(registers: Iterable[Value], sizes: Iterable[int]) -> State:
    """The state of registers that `_flat` put behind one another."""
    following = iter(registers)
    return [[*islice(following, size)] for size in sizes]
