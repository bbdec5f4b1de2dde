"""Expressions as instructions: each value is computed in the outermost loop in which all that it depends on is
known."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from framejit.backends.fuse.llvm import maths, memory
from framejit.backends.fuse.llvm.assembler import Assembler, Block, Module, Value, floating, integer
from framejit.backends.fuse.llvm.instructions import bitcast, cast, operation
from framejit.backends.fuse.llvm.machine import machine
from framejit.backends.fuse.llvm.plan import LoopPlan
from framejit.backends.fuse.llvm.types import REGISTER, number_text
from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Atom, Index, Indirect, Quotient, Remainder, Var
from framejit.backends.fuse.loop_ir.nodes import Store
from framejit.late_dataclass import dataclass

ENTRY, GRID = 0, 1
"""The levels that every kernel has: the function's beginning, and one turn of the parallel loop. The loops of a pass
come after."""


@dataclass
class Level:
    """A loop body being written, and the values computed in it so far."""

    asm: Assembler
    cache: dict[object, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Mask:
    """The condition under which something may be loaded, and the level at which it is known."""

    value: Value
    level: int


class Emitter:
    """Writes what one kernel computes. The loops around it are `loops.LoopWriter`'s business."""

    def __init__(self, plan: LoopPlan) -> None:
        self.plan, self.analysis, self.lanes = plan, plan.analysis, plan.lanes
        self.module = Module()
        self.names = {buffer: f"%p{position}" for position, buffer in enumerate(plan.kernel.buffers)}
        """The registers that hold the buffers' addresses."""
        self.blocks: list[Block] = []
        self.levels: list[Level] = []
        self.vars: dict[Var, Value] = {}
        """The loop variables' values; of the vector loop's, that of the first lane of instance 0."""
        self.tails: list[Value | None] = [None] * plan.unroll
        """For each instance, the lanes that are within the loop, or None for all."""
        self.lone: set[str] = set()
        """The tails that are known to be of the first lane only."""
        self.kept: dict[Expr, str] = {}
        """Where values kept by an earlier pass lie."""
        self.kept_at: Index = Index({})
        self.tiles: dict[Expr, str] = {}
        """Where loads that are turned around in tiles lie."""
        self.tile_row = integer(0)
        """What is added to the vector loop's variable to get the place in such a tile."""
        self.readable: set[Expr] = set()
        """The kept values that the pass being written may read."""
        self.level_of_var = dict.fromkeys(plan.grid, GRID)
        if plan.vector is not None:
            self.level_of_var[plan.vector] = GRID
        self.level_of_var.update({var: GRID + 1 + depth for depth, var in enumerate(plan.loops)})
        self._home: dict[str, int] = {}
        self._level_of_node: dict[Expr, int] = {}

    def level_of(self, node: Expr) -> int:
        """The level at which a value can be computed."""
        level = self._level_of_node.get(node)
        if level is None:
            level = max((self.level_of_var[var] for var in self.analysis.free[node]), default=ENTRY)
            level = self._level_of_node[node] = max(level, GRID) if self.analysis.depth[node] else level
        return level

    def is_vector(self, node: Expr) -> bool:
        """Whether the value differs from lane to lane."""
        return self.lanes > 1 and self.plan.vector in self.analysis.free[node]

    def splat(self, value: Value, lanes: int) -> Value:
        """A scalar in every lane, made where the scalar was."""
        if value.lanes == lanes or not value.text.startswith("%"):
            return Assembler.splat(self.levels[0].asm, value, lanes)
        level = self.levels[self._home.get(value.text, len(self.levels) - 1)]
        key = ("splat", value.text, lanes)
        if key not in level.cache:
            level.cache[key] = level.asm.splat(value, lanes)
        return level.cache[key]

    def put_home(self, value: Value, level: int) -> Value:
        """Note at which level a value was made; literals are at home everywhere."""
        if value.text.startswith("%"):
            self._home[value.text] = level
        return value

    def pointer(self, buffer: str) -> str:
        """The register that holds a buffer's address."""
        return self.names[buffer]

    # values

    def value(self, root: Expr, instance: int, mask: Mask | None = None) -> Value:
        """The value of an expression in the lanes of an instance; a scalar if all lanes have the same."""
        stack = [(root, mask)]
        while stack:
            node, under = stack[-1]
            if self._find(node, instance, under) is not None:
                stack.pop()
                continue
            missing = [
                need for need in self._needs(node, instance, under) if self._find(need[0], instance, need[1]) is None
            ]
            if missing:
                stack.extend(missing)
                continue
            under = self._applies(node, under)
            number = max(self.level_of(node), under.level if under else ENTRY)
            value = self._compute(node, instance, under, self.levels[number].asm)
            self.levels[number].cache[self._key(node, instance, under)] = self.put_home(value, number)
            stack.pop()
        found = self._find(root, instance, mask)
        assert found is not None
        return found

    def _applies(self, node: Expr, mask: Mask | None) -> Mask | None:
        return mask if mask is not None and self.analysis.has_loads[node] else None

    def _key(self, node: Expr, instance: int, mask: Mask | None) -> object:
        varies = self.is_vector(node) or (mask is not None and mask.value.lanes > 1)
        return node, instance if varies else -1, mask.value.text if mask else None

    def _find(self, node: Expr, instance: int, mask: Mask | None) -> Value | None:
        if node.op == "const":
            return Value(number_text(node.attr, node.dtype), REGISTER[node.dtype])
        mask = self._applies(node, mask)
        key = self._key(node, instance, mask)
        return self.levels[max(self.level_of(node), mask.level if mask else ENTRY)].cache.get(key)

    def _needs(self, node: Expr, instance: int, mask: Mask | None) -> Iterable[tuple[Expr, Mask | None]]:
        if node.op in ("reduce", "scan") or node in self.readable:
            return ()
        if node.op != "masked":
            return [(operand, mask) for operand in node.operands()]
        condition, value, other = node.args
        if self._find(condition, instance, mask) is None:
            return [(condition, mask)]
        return [(value, self._narrowed(condition, instance, mask)), (other, mask)]

    def _narrowed(self, condition: Expr, instance: int, mask: Mask | None) -> Mask:
        """The mask under which the value of a `masked` is computed."""
        found = self._find(condition, instance, mask)
        assert found is not None
        level = self._home.get(found.text, ENTRY)
        if mask is None:
            return Mask(found, level)
        level = max(level, mask.level)
        key = ("mask", found.text, mask.value.text)
        cache = self.levels[level].cache
        if key not in cache:
            lanes = max(found.lanes, mask.value.lanes)
            both = self.levels[level].asm.binary("and", self.splat(found, lanes), self.splat(mask.value, lanes))
            cache[key] = self.put_home(both, level)
        return Mask(cache[key], level)

    def _compute(self, node: Expr, instance: int, mask: Mask | None, asm: Assembler) -> Value:
        if node in self.readable:
            return memory.load_kept(self, node, instance, asm)
        if node in self.tiles:
            return memory.load_turned(self, node, instance, asm)
        if node.op == "load":
            return memory.load(self, node, instance, mask, asm)
        if node.op == "index":
            return self._index_value(node.attr, instance, mask, asm)
        assert node.op not in ("reduce", "scan"), "a reduction is asked for before its pass, or a scan before its turn"
        operands: list[Value] = []
        for position, operand in enumerate(node.args):
            under = self._narrowed(node.args[0], instance, mask) if node.op == "masked" and position == 1 else mask
            found = self._find(operand, instance, under)
            assert found is not None
            operands.append(found)
        lanes = max(operand.lanes for operand in operands)
        if node.op == "div" and lanes > 1 and operands[1].lanes == 1 and machine().has_fma:
            return self._divided_by_one(asm, *operands)
        values = tuple(self.splat(operand, lanes) for operand in operands)
        if node.op == "cast":
            return cast(asm, values[0], node.args[0].dtype, node.dtype)
        if node.op == "bitcast":
            return bitcast(asm, values[0], node.dtype)
        if node.op in ("where", "masked"):
            return asm.select(*values)
        return operation(asm, node.op, node.args[0].dtype, values)

    def _divided_by_one(self, asm: Assembler, a: Value, divisor: Value) -> Value:
        """A quotient whose divisor all lanes share, by its reciprocal: that is found once, outside of the loop, and
        vectors divide slowly."""
        key = ("reciprocal", divisor.text, divisor.type)
        home = self._home.get(divisor.text, ENTRY)
        level = self.levels[home]
        if key not in level.cache:
            scaled, scale = maths.without_extremes(level.asm, divisor)
            level.cache[key] = self.put_home(level.asm.binary("fdiv", floating(1, divisor.type), scaled), home)
            level.cache[*key, "divisor"], level.cache[*key, "scale"] = (
                self.put_home(scaled, home),
                self.put_home(scale, home),
            )
        shared = [self.splat(level.cache[each], a.lanes) for each in (key, (*key, "divisor"), (*key, "scale"))]
        return maths.quotient(asm, a, *shared)

    def _index_value(self, index: Index, instance: int, mask: Mask | None, asm: Assembler) -> Value:
        if self.lanes == 1 or self.plan.vector not in self.analysis.index_vars(index):
            return self.scalar_index(index, instance, mask)
        return asm.convert("sext", self.vector_index(index, instance, mask), "i64")

    # indices

    def scalar_index(self, index: Index, instance: int, mask: Mask | None) -> Value:
        """An index that is the same in all lanes. What the parallel loops contribute is added up outside."""
        by_level: dict[int, dict[Atom, int]] = {}
        for atom, coefficient in index.terms.items():
            by_level.setdefault(self._level_of_atom(atom, instance, mask), {})[atom] = coefficient
        total, done = integer(index.const), Index({}, index.const)
        for number in sorted(by_level):
            done = done + Index(by_level[number])
            level = self.levels[number]
            key = ("index", done, mask.value.text if mask else None)
            if key not in level.cache:
                for atom, coefficient in by_level[number].items():
                    part = self._scalar_atom(atom, instance, mask, level.asm)
                    if coefficient != 1:
                        part = level.asm.binary("mul nsw", part, integer(coefficient))
                    total = level.asm.binary("add nsw", total, part) if total.text != "0" else part
                level.cache[key] = self.put_home(total, number) if total.text not in self._home else total
            total = level.cache[key]
        return total

    def _level_of_atom(self, atom: Atom, instance: int, mask: Mask | None) -> int:
        if isinstance(atom, Var):
            return self.level_of_var[atom]
        if isinstance(atom, Indirect):
            under = self._applies(atom.value, mask)
            return max(self.level_of(atom.value), under.level if under else ENTRY)
        return max((self._level_of_atom(inside, instance, mask) for inside in atom.index.terms), default=ENTRY)

    def _scalar_atom(self, atom: Atom, instance: int, mask: Mask | None, asm: Assembler) -> Value:
        if isinstance(atom, Var):
            return self.vars[atom]
        if isinstance(atom, Indirect):
            found = self._find(atom.value, instance, mask)
            assert found is not None and found.lanes == 1
            return found
        return _divided(asm, self.scalar_index(atom.index, instance, mask), atom)

    def vector_index(self, index: Index, instance: int, mask: Mask | None) -> Value:
        """An index in each lane; of 32 bits where that is enough, else of 64."""
        type = "i32" if _fits(index) else "i64"
        number = max(self._level_of_atom(atom, instance, mask) for atom in index.terms)
        asm, cache = self.levels[number].asm, self.levels[number].cache
        key = ("lanes", index, instance, mask.value.text if mask else None)
        if key in cache:
            return cache[key]
        varying = {
            atom: coefficient
            for atom, coefficient in index.terms.items()
            if self.plan.vector in self.analysis.index_vars(Index({atom: 1}))
        }
        uniform = Index(
            {atom: coefficient for atom, coefficient in index.terms.items() if atom not in varying}, index.const
        )
        base = self.scalar_index(uniform, instance, mask)
        if base.text.startswith("%") and type == "i32":
            home = self._home.get(base.text, ENTRY)
            base = self.put_home(self.levels[home].asm.convert("trunc", base, type), home)
        total = self.splat(Value(base.text, type), self.lanes)
        for atom, coefficient in varying.items():
            part = _resized(asm, self._vector_atom(atom, instance, mask, asm), type)
            if coefficient != 1:
                part = asm.binary("mul", part, integer(coefficient, type, self.lanes))
            total = part if base.text == "0" and total.text.startswith("splat") else asm.binary("add", total, part)
        cache[key] = self.put_home(total, number)
        return total

    def _vector_atom(self, atom: Atom, instance: int, mask: Mask | None, asm: Assembler) -> Value:
        if isinstance(atom, Var):
            return self.lane_numbers(instance)
        if isinstance(atom, Indirect):
            found = self._find(atom.value, instance, mask)
            assert found is not None
            return found
        return _divided(asm, self.vector_index(atom.index, instance, mask), atom)

    def lane_numbers(self, instance: int) -> Value:
        """The vector loop's variable in each lane."""
        assert self.plan.vector is not None
        number = self.level_of_var[self.plan.vector]
        asm, cache = self.levels[number].asm, self.levels[number].cache
        key = ("lane numbers", instance)
        if key not in cache:
            type = "i32" if self.plan.vector.size + self.lanes * (self.plan.unroll + 1) < 1 << 31 else "i64"
            first = _resized(asm, self.vars[self.plan.vector], type)
            steps = ", ".join(f"{type} {instance * self.lanes + lane}" for lane in range(self.lanes))
            cache[key] = self.put_home(
                asm.binary("add", asm.splat(first, self.lanes), Value(f"<{steps}>", type, self.lanes)), number
            )
        return cache[key]

    # stores

    def store(self, stores: list[Store], instances: int) -> None:
        """Write the values of stores. All are computed before the first is written: their loads see the memory as it
        was."""
        for instance in range(instances):
            values = []
            for store in stores:
                varies = self.lanes > 1 and (
                    self.is_vector(store.value) or self.plan.vector in self.analysis.index_vars(store.index)
                )
                if varies or not instance:
                    for atom in store.index.indirects:
                        self.value(atom.value, instance)
                    values.append((store, self.value(store.value, instance)))
            asm = self.levels[-1].asm
            for store, value in values:
                memory.store(self, store, value, instance, asm)

    def keep(self, nodes: list[Expr], instances: int) -> None:
        """Write values down for later passes."""
        for instance in range(instances):
            for node in nodes:
                memory.store_kept(self, node, self.value(node, instance), instance, self.levels[-1].asm)


def _divided(asm: Assembler, index: Value, atom: Quotient | Remainder) -> Value:
    """Quotient or remainder of an index."""
    divisor = integer(atom.divisor, index.type, index.lanes)
    return asm.binary("udiv" if isinstance(atom, Quotient) else "urem", index, divisor)


def _fits(index: Index) -> bool:
    """Whether 32 bits hold every sum on the way to an index, whatever the order (and a little beyond the last
    element)."""
    reach = abs(index.const)
    for atom, coefficient in index.terms.items():
        reach += abs(coefficient) * (max(map(abs, atom.bounds)) + 4096)
        if isinstance(atom, (Quotient, Remainder)) and not _fits(atom.index):
            return False
    return reach < 1 << 31


def _resized(asm: Assembler, value: Value, type: str) -> Value:
    return value if value.type == type else asm.convert("trunc" if type == "i32" else "sext", value, type)
