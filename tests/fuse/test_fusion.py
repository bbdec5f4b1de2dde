"""Fusion of hand-made and random nodes: what becomes one kernel, what must not, and that whatever was fused still
computes the same."""
from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch

from framejit.backends.fuse.loop_ir.expr import Expr, const, load, op, reduce
from framejit.backends.fuse.loop_ir.index import Index, Var, flatten, fresh_var, strided, unflatten
from framejit.backends.fuse.loop_ir.nodes import (
    Buffer,
    ComputeNode,
    ExternNode,
    Kernel,
    Layout,
    LoweredGraph,
    Node,
    Store,
)
from framejit.backends.fuse.schedule.make_kernels import schedule
from tests.fuse.kernel_reference import Reference, kernel

CPU = torch.device("cpu")
Body = Callable[..., Expr]


class Program:
    """Builds a lowered graph node by node."""

    def __init__(self, **inputs: Sequence[int]) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.nodes: list[Node] = []
        for position, (name, sizes) in enumerate(inputs.items()):
            self.buffer(name, sizes, input=position)
        self.n_inputs = len(inputs)

    def buffer(self, name: str, sizes: Sequence[int], input: int | None = None, memory: str = "") -> Buffer:
        strides, step = [], 1
        for size in reversed(sizes):
            strides.append(step)
            step *= size
        self.buffers[name] = Buffer(name, tuple(sizes), tuple(reversed(strides)), torch.float64, CPU, input, memory)
        return self.buffers[name]

    def at(self, name: str, *indices: Index | Var) -> Expr:
        return load(name, strided(indices, self.buffers[name].strides), torch.float64)

    def flat(self, name: str, index: Index) -> Expr:
        return load(name, index, torch.float64)

    def pointwise(self, name: str, sizes: Sequence[int], body: Body, memory: str = "") -> None:
        buffer = self.buffer(name, sizes, memory=memory)
        loops = tuple(fresh_var("p", size) for size in sizes)
        self.nodes.append(ComputeNode(loops, (), [Store(name, strided(loops, buffer.strides), body(*loops))], CPU))

    def reduction(self, name: str, kind: str, sizes: Sequence[int], reduced: Sequence[int], body: Body) -> None:
        buffer = self.buffer(name, sizes)
        loops = tuple(fresh_var("p", size) for size in sizes)
        reduction = tuple(fresh_var("r", size) for size in reduced)
        self.nodes.append(
            ComputeNode(
                loops, reduction,
                [Store(name, strided(loops, buffer.strides), reduce(kind, body(*loops, *reduction)))], CPU,
            )
        )

    def extern(self, name: str, sizes: Sequence[int], *reads: str, speaks: bool = False) -> None:
        self.nodes.append(ExternNode(torch.clone, (), {}, self.buffer(name, sizes), list(reads), [name], speaks=speaks))

    def schedule(self, *outputs: str) -> list[Kernel | ExternNode]:
        layouts = [
            Layout(self.buffers[name], self.buffers[name].sizes, self.buffers[name].strides, 0) for name in outputs
        ]
        nodes = [
            ComputeNode(n.parallel, n.reduction, list(n.stores), n.device) if isinstance(n, ComputeNode) else n
            for n in self.nodes
        ]
        return schedule(LoweredGraph(self.buffers, nodes, list(layouts), self.n_inputs))

    def run(self, steps: Sequence[Node]) -> dict[str, torch.Tensor]:
        """What the buffers hold in the end."""
        torch.default_generator.manual_seed(0)
        memory = {
            name: torch.randn(buffer.sizes, dtype=torch.float64)
            for name, buffer in self.buffers.items()
            if buffer.memory == name
        }
        for step in steps:
            if isinstance(step, ComputeNode):
                names = dict.fromkeys((*step.reads, *step.writes))
                tensors = {name: memory[self.buffers[name].memory] for name in names}
                after = Reference(kernel(step.parallel, step.reduction, step.stores, tensors), tensors).run()
                for name in step.writes:
                    memory[self.buffers[name].memory] = after[name].view(self.buffers[name].sizes)
        return memory

    def check(self, *outputs: str) -> list[Kernel | ExternNode]:
        steps = self.schedule(*outputs)
        plain, fused = self.run(self.nodes), self.run(steps)
        for name in outputs:
            memory = self.buffers[name].memory
            torch.testing.assert_close(fused[memory], plain[memory], rtol=1e-12, atol=1e-12)
        return steps


def softmax(p: Program, rows: int, columns: int) -> None:
    p.pointwise("scaled", (rows, columns), lambda i, j: op("mul", p.at("x", i, j), const(0.125, torch.float64)))
    p.reduction("top", "max", (rows,), (columns,), lambda i, j: p.at("scaled", i, j))
    p.pointwise("e", (rows, columns), lambda i, j: op("exp", op("sub", p.at("scaled", i, j), p.at("top", i))))
    p.reduction("total", "sum", (rows,), (columns,), lambda i, j: p.at("e", i, j))
    p.pointwise("out", (rows, columns), lambda i, j: op("div", p.at("e", i, j), p.at("total", i)))


def test_a_softmax_is_one_kernel_that_stores_once():
    p = Program(x=(16, 12))
    softmax(p, 16, 12)
    (step,) = p.check("out")
    assert isinstance(step, Kernel) and [store.buffer for store in step.stores] == ["out"] and list(step.reads) == ["x"]


def test_what_is_needed_outside_is_stored_too():
    p = Program(x=(16, 12))
    softmax(p, 16, 12)
    (step,) = p.check("out", "total")
    assert sorted(step.writes) == ["out", "total"]


def test_other_cuts_of_the_same_loops_go_together():
    p = Program(x=(4, 6, 10))
    p.pointwise("a", (4, 6, 10), lambda i, j, k: op("exp", p.at("x", i, j, k)))
    p.pointwise("b", (24, 10), lambda i, j: op("neg", p.flat("a", Index.of(i) * 10 + j)))
    p.pointwise("c", (240,), lambda i: op("add", p.flat("b", Index.of(i)), p.flat("a", Index.of(i))))
    (step,) = p.check("c")
    assert [var.size for var in step.parallel] == [240]


def test_a_transposed_reader_goes_together_with_its_producer():
    p = Program(x=(8, 6))
    p.pointwise("a", (8, 6), lambda i, j: op("exp", p.at("x", i, j)))
    p.pointwise("b", (6, 8), lambda i, j: op("neg", p.at("a", j, i)))
    assert len(p.check("b")) == 1


def test_a_reader_of_other_elements_does_not():
    p = Program(x=(8, 8))
    p.pointwise("a", (8, 8), lambda i, j: op("exp", p.at("x", i, j)))
    p.pointwise("b", (8, 8), lambda i, j: op("add", p.at("a", i, j), p.at("a", j, i)))
    assert len(p.check("b")) == 2


def test_statistics_over_the_first_dimension_and_what_uses_them():
    p = Program(x=(5, 7, 4))
    p.reduction("s", "sum", (7,), (5, 4), lambda c, n, k: p.at("x", n, c, k))
    p.pointwise("o", (5, 7, 4), lambda n, c, k: op("mul", p.at("x", n, c, k), p.at("s", c)))
    (step,) = p.check("o")
    assert [var.size for var in step.parallel] == [7]


def test_nothing_is_moved_around_what_it_depends_on():
    p = Program(x=(8, 6))
    p.pointwise("a", (8, 6), lambda i, j: op("exp", p.at("x", i, j)))
    p.extern("m", (8, 6), "a")
    p.pointwise("b", (8, 6), lambda i, j: op("add", p.at("a", i, j), p.at("m", i, j)))
    steps = p.schedule("b")
    assert [type(step).__name__ for step in steps] == ["Kernel", "ExternNode", "Kernel"]


def test_readers_of_the_same_input_share_a_pass():
    p = Program(x=(8, 6))
    p.pointwise("a", (8, 6), lambda i, j: op("exp", p.at("x", i, j)))
    p.pointwise("b", (8, 6), lambda i, j: op("neg", p.at("x", i, j)))
    (step,) = p.check("a", "b")
    assert len(step.stores) == 2


def test_two_sums_that_one_reader_takes_are_one_kernel():
    p = Program(x=(64,), y=(64,))
    p.reduction("s", "sum", (), (64,), lambda i: p.at("x", i))
    p.reduction("t", "sum", (), (64,), lambda i: p.at("y", i))
    p.pointwise("q", (), lambda: op("div", p.flat("s", Index({})), p.flat("t", Index({}))))
    assert len(p.check("q")) == 1


def test_groups_are_not_merged_around_what_lies_between():
    p = Program(x=(64,), y=(64,))
    p.reduction("s", "sum", (), (64,), lambda i: p.at("x", i))
    p.extern("m", (64,), "s")
    p.reduction("t", "sum", (), (64,), lambda i: p.at("m", i))
    p.pointwise("q", (), lambda: op("div", p.flat("s", Index({})), p.flat("t", Index({}))))
    assert [type(step).__name__ for step in p.schedule("q")] == ["Kernel", "ExternNode", "Kernel"]


def test_small_kernels_of_as_many_turns_share_a_launch():
    p = Program(x=(8, 6), y=(6, 8), a=(), b=())
    p.reduction("s", "sum", (8,), (6,), lambda i, j: p.at("x", i, j))
    p.reduction("t", "max", (8,), (6,), lambda i, j: p.at("y", j, i))
    p.pointwise("c", (), lambda: op("neg", p.flat("a", Index({}))))
    p.pointwise("d", (), lambda: op("exp", p.flat("b", Index({}))))
    assert [step.writes for step in p.check("s", "t", "c", "d")] == [["s", "t"], ["c", "d"]]


def test_large_kernels_with_nothing_in_common_stay_apart():
    p = Program(x=(64, 128), y=(64, 128))
    for name, source in (("s", "x"), ("t", "y")):
        p.reduction(name, "sum", (64,), (128,), lambda i, j, source=source: p.at(source, i, j))
    assert len(p.check("s", "t")) == 2


def test_what_shares_a_launch_does_not_wait_for_itself():
    p = Program(x=(8,), z=(5,), w=(5,))
    p.pointwise("t1", (5,), lambda i: op("exp", p.at("z", i)))
    p.extern("t1_m", (8,), "t1")
    p.pointwise("s1", (8,), lambda i: op("exp", p.at("t1_m", i)))
    p.pointwise("s2", (8,), lambda i: op("exp", p.at("x", i)))
    p.extern("s2_m", (5,), "s2")
    p.pointwise("t2", (5,), lambda i: op("mul", p.at("w", i), p.flat("s2_m", Index({}))))
    # once s1 and s2 are one, t1 runs before both and t2 after them
    kernels = [step.writes for step in p.schedule("s1", "s2", "t1", "t2") if isinstance(step, Kernel)]
    assert kernels == [["t1"], ["s1", "s2"], ["t2"]]


@pytest.mark.parametrize("is_waited_for", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_far_away_kernels_share_a_launch_where_nothing_waits(is_waited_for: bool, waits: bool):
    p = Program(x=(8,), y=(8,), z=(5, 5))
    p.pointwise("a", (8,), lambda i: op("exp", p.at("x", i)))
    if is_waited_for:
        p.extern("m", (8,), "a")
    for number in range(20):
        p.extern(f"e{number}", (5, 5), f"e{number - 1}" if number else "z")
    p.extern("n", (8,), "e19")
    p.pointwise("b", (8,), lambda i: op("exp", p.at("n" if waits else "y", i)))
    steps = p.schedule("a", "b", "n", *(["m"] if is_waited_for else ()), "e19")
    kernels = [step for step in steps if isinstance(step, Kernel)]
    assert len(kernels) == 1 + (is_waited_for and waits)


@pytest.mark.parametrize("speaks", [False, True])
def test_a_write_that_outlives_the_graph_comes_before_no_error_that_came_first(speaks: bool):
    p = Program(x=(8,), y=(8,), z=(5, 5))
    p.pointwise("a", (8,), lambda i: op("exp", p.at("x", i)))
    p.extern("m", (8,), "a")
    for number in range(20):
        p.extern(f"e{number}", (5, 5), f"e{number - 1}" if number else "z", speaks=speaks and number == 10)
    p.pointwise("y@1", (8,), lambda i: op("add", p.at("y", i), const(1.0, torch.float64)), memory="y")
    kernels = [step for step in p.schedule("a", "m", "e19") if isinstance(step, Kernel)]
    assert [kernel.writes for kernel in kernels] == ([["a"], ["y@1"]] if speaks else [["a", "y@1"]])


def test_a_write_in_place_comes_after_the_reads_of_what_was_there():
    p = Program(x=(8, 8))
    # reads another place than the write goes to: must stay before it
    p.pointwise("a", (8, 8), lambda i, j: op("exp", p.at("x", j, i)))
    p.pointwise("x@1", (8, 8), lambda i, j: op("add", p.at("x", i, j), const(1.0, torch.float64)), memory="x")
    p.pointwise("b", (8, 8), lambda i, j: op("add", p.at("a", i, j), p.at("x@1", i, j)))
    steps = p.check("b", "x@1")
    assert len(steps) == 2


def test_dead_nodes_are_dropped_but_not_writes_to_inputs():
    p = Program(x=(8, 8))
    p.pointwise("dead", (8, 8), lambda i, j: op("exp", p.at("x", i, j)))
    p.pointwise("x@1", (8, 8), lambda i, j: op("add", p.at("x", i, j), const(1.0, torch.float64)), memory="x")
    (step,) = p.schedule()
    assert step.writes == ["x@1"]


def test_loops_without_turns_have_nothing_to_run():
    p = Program(x=(0, 4))
    p.pointwise("a", (0, 4), lambda i, j: op("exp", p.at("x", i, j)))
    p.reduction("s", "sum", (4,), (0,), lambda j, i: p.at("a", i, j))
    assert {step.writes[0]: step.is_empty for step in p.schedule("a", "s")} == {"a": True, "s": False}


@pytest.mark.parametrize("seed", range(80))
def test_random_programs_compute_the_same_after_fusion(seed: int):
    rng = random.Random(seed)
    rows, columns = rng.choice(((4, 6), (8, 8), (3, 5), (12, 2)))
    p = Program(x=(rows, columns), y=(rows, columns), v=(columns,), w=(rows,))
    whole, by_row, by_column = ["x", "y"], ["w"], ["v"]

    def element(i: Index | Var, j: Index | Var) -> Expr:
        kind = rng.random()
        if kind < 0.6:
            name = rng.choice(whole)
            if rows == columns and rng.random() < 0.15:
                i, j = j, i
            return p.flat(name, flatten([i, j], [rows, columns]))
        return p.at(rng.choice(by_row), i) if kind < 0.8 else p.at(rng.choice(by_column), j)

    def combined(i: Index | Var, j: Index | Var) -> Expr:
        value = op("mul", element(i, j), element(i, j))
        return op("add", op("sin", value), element(i, j)) if rng.random() < 0.5 else value

    for number in range(rng.randint(3, 10)):
        name, kind = f"t{number}", rng.choice(("whole", "whole", "flat", "turned", "row_sum", "column_max", "row"))
        if kind == "whole":
            p.pointwise(name, (rows, columns), combined)
            whole.append(name)
        elif kind == "flat":
            p.pointwise(name, (rows * columns,), lambda k: combined(*unflatten(Index.of(k), (rows, columns))))
            whole.append(name)
        elif kind == "turned":  # a buffer in the order of columns, read back through a copy
            p.pointwise(f"{name}_t", (columns, rows), lambda j, i: combined(i, j))
            p.pointwise(name, (rows, columns), lambda i, j, name=name: p.at(f"{name}_t", j, i))
            whole.append(name)
        elif kind == "row_sum":
            p.reduction(name, "sum", (rows,), (columns,), combined)
            by_row.append(name)
        elif kind == "column_max":
            p.reduction(name, "max", (columns,), (rows,), lambda j, i: combined(i, j))
            by_column.append(name)
        else:
            p.pointwise(name, (rows,), lambda i: op("cos", p.at(rng.choice(by_row), i)))
            by_row.append(name)
    made = [name for name in p.buffers if name.startswith("t")]
    p.check(*rng.sample(made, min(len(made), rng.randint(1, 3))), made[-1])
