"""The loops of a kernel: the parallel one, the passes over the inner ones, and the accumulators that run through them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from framejit.backends.fuse.llvm.assembler import Assembler, Block, Value, integer
from framejit.backends.fuse.llvm.emit import ENTRY, GRID, Emitter, Level
from framejit.backends.fuse.llvm.plan import LoopPlan, Pass
from framejit.backends.fuse.llvm.reductions import RUN, Reduction, first_position, identity, widened, zero
from framejit.backends.fuse.llvm.scans import Scan, grouped
from framejit.backends.fuse.llvm.size_arguments import SizeArguments, size_arguments
from framejit.backends.fuse.llvm.tiles import turn_tile
from framejit.backends.fuse.llvm.types import REGISTER, number_text
from framejit.backends.fuse.loop_ir.index import flatten
from framejit.backends.fuse.sizes.open_size import OpenSize

State = list[list[Value]]
"""The registers of each reduction of a pass, those of all instances behind one another."""

STACK: Final = 1 << 16
"""The most bytes of scratch memory taken from the stack."""


class KernelWriter(Emitter):
    """Writes the whole function of a kernel."""

    def __init__(self, plan: LoopPlan, name: str) -> None:
        super().__init__(plan)
        self.name = name

    def write(self) -> tuple[str, tuple[OpenSize, ...]]:
        """The module's text, and the sizes that its function is to be given."""
        with size_arguments() as arguments:
            return self._write(arguments), tuple(arguments.sizes.values())

    def _write(self, arguments: SizeArguments) -> str:
        entry, start, done = Block("entry"), Block("start"), Block("done", lines=["ret void"])
        self.blocks += [entry, start]
        entry.lines += ["%some = icmp slt i64 %begin, %end", "br i1 %some, label %start, label %done"]
        asm = Assembler(self.module, start)
        self.levels.append(Level(asm))
        for position, register in enumerate(self.names.values()):
            asm.do(f"%a{position} = getelementptr ptr, ptr %pointers, i64 {position}")
            asm.do(f"{register} = load ptr, ptr %a{position}")
        scratch = self._scratch(asm)
        self._grid()
        if scratch:
            asm.do(f"call void @free(ptr {scratch})")
        asm.do("br label %done")
        self.blocks.append(done)
        start.lines[:0] = arguments.lines
        width = '"prefer-vector-width"="512" "min-legal-vector-width"="512"'
        body = "\n".join(block.text() for block in self.blocks)
        return "\n".join([
            "@nothing = private unnamed_addr constant [16 x i8] zeroinitializer, align 16", *self.module.declarations.values(),
            f"define void @{self.name}(ptr noalias readonly %pointers, ptr noalias readonly %ints, i64 %begin, i64 %end) #0 {{", body, "}",
            f"attributes #0 = {{ nounwind {width} }}", ""])

    def _scratch(self, asm: Assembler) -> str | None:
        """Make room for what passes keep; returns what is to be freed."""
        plan = self.plan
        per_element = plan.lanes * plan.unroll if plan.is_outer else 1
        elements = plan.kernel.inner_size * per_element + plan.lanes * plan.unroll
        if plan.vector is not None and not plan.is_outer:  # each row of vectors is filled up: its last lanes are written too
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

    def loop(self, parent: Assembler, start: Value, stop: Value, step: int, state: list[Value], body: Callable[[Assembler, Value, list[Value]], list[Value]],
             *, level: bool = True, may_be_empty: bool = False) -> list[Value]:
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
        header = Block(self.module.fresh("loop"))
        self.blocks.append(header)
        asm = Assembler(self.module, header)
        turn = self.put_home(Value(f"%i.{header.label}", "i64"), len(self.levels) - (not level))
        carried = [Value(f"%{self.module.fresh('c')}", value.type, value.lanes) for value in state]
        if level:
            self.levels.append(Level(asm))
        after = body(asm, turn, carried)
        if level:
            self.levels.pop()
        following = asm.binary("add nuw nsw", turn, integer(step))
        again = asm.compare("slt", following, stop)
        leave = Block(self.module.fresh("after"))
        self.blocks.append(leave)
        asm.do(f"br {again}, label %{header.label}, label %{leave.label}")
        before = parent.block
        if may_be_empty:
            some = parent.compare("slt", start, stop)
            parent.do(f"br {some}, label %{header.label}, label %{leave.label}")
        else:
            parent.do(f"br label %{header.label}")
        for register, first, last in zip([turn, *carried], [start, *state], [following, *after]):
            header.phis.append(f"{register.text} = phi {register.full_type} [ {first.text}, %{before.label} ], [ {last.text}, %{asm.block.label} ]")
        parent.block = leave
        if not may_be_empty:
            return after
        assert not state, "nothing is carried around a loop that may be empty"
        return []

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

        def body(inside: Assembler, turn: Value, digits: list[Value]) -> list[Value]:
            digits = digits or [turn]
            for digit in digits:
                self.put_home(digit, GRID)
            self._turn(inside, digits)
            return _counted_up(inside, digits, sizes) if len(sizes) > 1 else []
        self.loop(asm, start, end, 1, first if len(sizes) > 1 else [], body)

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
            if plan.is_outer:
                self.vars[plan.vector] = low
                self.tails = [self._tail(asm, low, size, instance) if plan.vector.size % plan.block else None for instance in range(plan.unroll)]
        for each in plan.passes:
            self.readable = each.kept
            if plan.block and not plan.is_outer:
                self._row(each, low, high)
            elif each.reductions and not plan.kernel.inner_size:
                self._nothing(each)
            elif plan.kernel.inner_size:
                self._pass(each)
        self.readable = set()
        self.store(plan.final, plan.unroll if plan.is_outer else 1)

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

        def row(inside: Assembler, turn: Value, _: list[Value]) -> list[Value]:
            self.vars[tile] = turn
            line = inside.binary("mul nuw nsw", inside.binary("sub", turn, rows[0]), integer(plan.block))
            self.tile_row = inside.binary("sub", line, columns[0])
            self._row(plan.passes[0], *columns)
            return []
        self.loop(asm, *rows, 1, [], row)

    def _tail(self, asm: Assembler, first: Value, size: Value, instance: int) -> Value:
        """The lanes of an instance that are before the end of the vector loop."""
        lanes = self.plan.lanes
        is_known = not first.text.startswith("%") and not size.text.startswith("%")
        left = integer(int(size.text) - int(first.text), "i32") if is_known else asm.convert("trunc", asm.binary("sub", size, first), "i32")
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

        def turn(instances: int, masked: bool) -> Callable[[Assembler, Value, list[Value]], list[Value]]:
            def write(asm: Assembler, first: Value, _: list[Value]) -> list[Value]:
                self.vars[vector] = first
                self.tails[0] = self._tail(asm, first, high, 0) if masked else None
                self.store(each.stores, instances)
                self.tails[0] = None
                return []
            return write
        self.loop(parent, low, middle, step, [], turn(plan.unroll, False), may_be_empty=not fixed and not whole)
        if not whole:
            masked = plan.lanes > 1 and (not fixed or int(high.text) % plan.lanes != 0)
            self.loop(parent, middle, high, plan.lanes, [], turn(1, masked), may_be_empty=not fixed)

    # passes

    def _nothing(self, each: Pass) -> None:
        for node in each.reductions:
            value = Value(number_text(identity(node.attr, node.dtype), node.dtype), REGISTER[node.dtype])
            for instance in range(self.plan.unroll):
                self.levels[GRID].cache[self._key(node, instance, None)] = value

    def _pass(self, each: Pass) -> None:
        """One walk through the inner loops."""
        plan, parent = self.plan, self.levels[GRID].asm
        by_lane = plan.lanes > 1 and not plan.is_outer
        writers = []
        for node in each.reductions:
            varies = plan.is_outer and self.is_vector(node)
            writers.append(Reduction(node, plan.lanes if by_lane or varies else 1))
        scans = []
        for nodes in grouped(each.scans):
            varies = plan.is_outer and self.is_vector(nodes[0])
            scans.append(Scan(nodes, plan.lanes if by_lane or varies else 1, plan.lanes if by_lane else 1))
        nest = _Nest(self, each, writers, scans)
        final = nest.run(parent)
        for writer, state in zip(writers, final):
            for instance, parts in enumerate(nest.split(writer, state)):
                value = writer.across(parent, parts) if by_lane else parts[-1]
                if writer.is_position and value.type != "i64":
                    value = parent.convert("sext", value, "i64")
                self.levels[GRID].cache[self._key(writer.node, instance, None)] = self.put_home(value, GRID)


class _Nest:
    """The inner loops of one pass. Sums of floats are added up in runs of at most RUN, and the runs' sums in float64."""

    def __init__(self, writer: KernelWriter, each: Pass, reductions: list[Reduction], scans: list[Scan]) -> None:
        self.writer, self.each, self.reductions, self.scans = writer, each, reductions, scans
        plan = self.plan = writer.plan
        self.positions = "i32" if plan.kernel.inner_size + plan.lanes * plan.unroll < 1 << 31 else "i64"
        self.step = plan.lanes * plan.unroll if not plan.is_outer else 1
        trips = [var.size for var in plan.loops]
        if not plan.is_outer:
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
        if self.plan.is_outer:
            return self.plan.unroll if reduction.lanes > 1 or self.plan.lanes == 1 else 1
        return self.plan.unroll

    def split(self, reduction: Reduction | Scan, state: list[Value]) -> list[list[Value]]:
        """A reduction's or a scan's state by instance."""
        size = 2 if (reduction.has_position if isinstance(reduction, Scan) else reduction.is_position) else 1
        return [state[start:start + size] for start in range(0, len(state), size)]

    def run(self, parent: Assembler) -> State:
        """Write the loops; returns each reduction's state, that of all instances in one where they saw parts of one row."""
        plan = self.plan
        state = [self._sums(reduction) if self.split_at >= 0 and reduction.cascades else self._fresh(reduction) for reduction in self.reductions]
        state += [scan.start(self.positions) * (plan.unroll if scan.lanes > 1 and plan.is_outer else 1) for scan in self.scans]
        state = self._walk(0, parent, state)
        result = []
        for reduction, registers in zip(self.reductions, state):
            if self.split_at >= 0 and reduction.cascades:
                if not self.plan.is_outer:
                    registers = [reduction.across(parent, registers)]
                type = reduction.type
                result.append([parent.convert("fptrunc", register, type) for register in registers])
                continue
            result.append(registers if self.plan.is_outer else self._merged(parent, reduction, registers))
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
                position = first_position(reduction.lanes, instance * reduction.lanes, self.positions) if not self.plan.is_outer \
                    else integer(0, self.positions, reduction.lanes)
            state += reduction.start(position)
        return state

    def _sums(self, reduction: Reduction) -> list[Value]:
        return [zero(reduction.lanes)] * (self.instances(reduction) if self.plan.is_outer else 1)

    def _begun(self, state: State) -> State:
        """The state inside of a run."""
        begun = [self._fresh(reduction) if reduction.cascades else registers for reduction, registers in zip(self.reductions, state)]
        return begun + state[len(begun):]

    def _ended(self, asm: Assembler, outside: State, inside: State) -> State:
        """The state after a run: its sums are added to those of float64."""
        result = []
        for reduction, sums, registers in zip(self.reductions, outside, inside):
            if reduction.cascades:
                registers = registers if self.plan.is_outer else self._merged(asm, reduction, registers)
                registers = [asm.binary("fadd", total, widened(asm, register)) for total, register in zip(sums, registers)]
            result.append(registers)
        return result + inside[len(result):]

    def _walk(self, depth: int, parent: Assembler, state: State) -> State:
        plan, writer = self.plan, self.writer
        if depth == len(plan.loops):
            return self._element(parent, state, plan.unroll)
        var = plan.loops[depth]
        is_vector = var is plan.vector and not plan.is_outer
        step = self.step if is_vector else 1
        middle = var.size // step * step if step == 1 or var.size >= step else 0  # loops that may be empty are left out, not written

        def write(instances: int, masked: bool) -> Callable[[Assembler, Value, State], State]:
            def body(asm: Assembler, turn: Value, inner: State) -> State:
                writer.vars[var] = turn
                if not is_vector:
                    return self._walk(depth + 1, asm, inner)
                writer.tails[0] = writer._tail(asm, turn, integer(var.size), 0) if masked else None
                inner = self._element(asm, inner, instances)
                writer.tails[0] = None
                return inner
            return body

        if depth != self.split_at:
            state = self._loop(parent, integer(0), integer(middle), step, state, write(plan.unroll, False))
            return self._rest(parent, middle, state, write) if is_vector else state

        def run(asm: Assembler, turn: Value, outside: State) -> State:
            stop = asm.binary("add nuw nsw", turn, integer(self.run_length * step))
            if middle % (self.run_length * step):
                stop = asm.intrinsic("smin", stop, integer(middle))
            if not turn.text.startswith("%"):
                stop = integer(middle)
            inside = self._loop(asm, turn, stop, step, self._begun(outside), write(plan.unroll, False))
            return self._ended(asm, outside, inside)
        state = self._loop(parent, integer(0), integer(middle), self.run_length * step, state, run, level=False)
        if is_vector and middle < var.size:
            state = self._ended(parent, state, self._rest(parent, middle, self._begun(state), write))
        return state

    def _rest(self, parent: Assembler, middle: int, state: State, write: Callable[[int, bool], Callable[[Assembler, Value, State], State]]) -> State:
        """The vectors that do not fill all instances, the last of them perhaps with lanes beyond the end."""
        plan = self.plan
        assert plan.vector is not None
        size = plan.vector.size
        if middle == size:
            return state
        return self._loop(parent, integer(middle), integer(size), plan.lanes, state, write(1, size % plan.lanes != 0))

    def _loop(self, parent: Assembler, start: Value, stop: Value, step: int, state: State, body: Callable[[Assembler, Value, State], State],
              level: bool = True) -> State:
        flat = [register for registers in state for register in registers]
        sizes = [len(registers) for registers in state]

        def packed(values: list[Value]) -> State:
            values = list(values)
            return [[values.pop(0) for _ in range(size)] for size in sizes]

        def run(asm: Assembler, turn: Value, carried: list[Value]) -> list[Value]:
            return [register for registers in body(asm, turn, packed(carried)) for register in registers]
        return packed(self.writer.loop(parent, start, stop, step, flat, run, level=level))

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
                mask = writer.tails[instance] if not plan.is_outer else None
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
                part = instance if plan.is_outer else 0
                new = [writer.splat(writer.value(scan.operand, instance), scan.lanes)]
                if scan.has_position:
                    new.append(self._position(asm, instance, scan.lanes))
                last = self._last_lane(asm) if scan.across > 1 and writer.tails[instance] is not None else None
                values, parts[part] = scan.step(asm, parts[part], new, last)
                for node in scan.nodes:
                    level = writer.level_of(node)
                    writer.levels[level].cache[writer._key(node, instance, None)] = writer.put_home(scan.result(asm, node, values), level)
            result.append([register for part in parts for register in part])
        return result

    def _last_lane(self, asm: Assembler) -> Value:
        """Of a vector that may reach beyond the end of its loop, the last lane that does not."""
        vector = self.plan.vector
        assert vector is not None
        left = asm.binary("sub", integer(vector.size - 1), self.writer.vars[vector])
        return asm.intrinsic("smin", left, integer(self.plan.lanes - 1))

    def _position(self, asm: Assembler, instance: int, lanes: int) -> Value:
        inner = self.plan.kernel.inner
        index = flatten(inner, [var.size for var in inner])
        writer = self.writer
        if not self.plan.is_outer and lanes > 1:
            value = writer.vector_index(index, instance, None) if index.terms else first_position(lanes, 0, self.positions)
        else:
            value = writer.splat(writer.scalar_index(index, instance, None), lanes)
        if value.type == self.positions:
            return value
        return asm.convert("trunc" if value.type == "i64" else "sext", value, self.positions)


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

