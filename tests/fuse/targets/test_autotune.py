"""Kernels that can be written in several ways: what is measured, what is left out, what is remembered."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.backends.fuse import backend
from framejit.backends.fuse.cache import disk_cache, graph_key
from framejit.backends.fuse.cache.kernel_record import pack
from framejit.backends.fuse.loop_ir.expr import const, load, op
from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.loop_ir.nodes import Buffer, Kernel, Store
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize
from framejit.backends.fuse.targets import autotune, cuda_autotune
from framejit.backends.fuse.targets.autotune import is_measurable, quickest
from framejit.backends.fuse.targets.cpu import CpuTarget
from framejit.backends.fuse.triton import kernel_source
from framejit.backends.fuse.triton.tiles import blocks
from framejit.backends.fuse.triton.tiles.block_limits import WITHOUT_A_GPU
from framejit.backends.graph_identity import AUTOTUNE, LAUNCH_GRAPHS
from framejit.events import text

from support import of_kind, recorded

CPU = torch.device("cpu")
F32 = torch.float32
SIZE = 1000


class Timed(CpuTarget):
    """A CPU that has memory to spare, and on which kernels take as long as a test says."""

    def __init__(self, microseconds: dict[int, float], memory: int = 1 << 30) -> None:
        super().__init__(CPU)
        self.microseconds, self.memory, self.measured = microseconds, memory, 0

    def free_memory(self):
        return self.memory

    def seconds(self, run, calls):
        self.measured += 1
        [plan] = [cell.cell_contents for cell in run.__closure__ if callable(cell.cell_contents)]
        run()
        return calls * self.microseconds[id(plan)] / 1e6


def kernel(factor: float, in_place: bool = False, offset: int = 0) -> Kernel:
    """`y = x * factor`, or `x *= factor`."""
    n = Var("n", SIZE)
    place = Index.of(n)
    x = Buffer("x", (SIZE,), (1,), F32, CPU, offset=offset)
    y = x if in_place else Buffer("y", (SIZE,), (1,), F32, CPU)
    value = op("mul", load("x", place, F32), const(factor, F32))
    return Kernel((n,), (), [Store(y.name, place, value)], CPU, (), "scaled", {b.name: b for b in (x, y)})


class Ways:
    """The same kernel compiled several times, each of which takes so many microseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, microseconds, factors=None, in_place=False, memory=1 << 30):
        factors = factors or [3.0] * len(microseconds)
        self.kernel = kernel(factors[0], in_place)
        by_plan: dict[int, float] = {}
        self.target = Timed(by_plan, memory)
        self.launches = [self.target.compile([kernel(factor, in_place)])[0] for factor in factors]
        plan_of, left = autotune._plan, [*microseconds]

        def planned(made, launch):
            plan = plan_of(made, launch)
            by_plan[id(plan)] = left.pop(0)
            return plan

        monkeypatch.setattr(autotune, "_plan", planned)

    def quickest(self) -> tuple[int, list[object]]:
        with recorded() as log:
            named = [(f"way {number}", launch) for number, launch in enumerate(self.launches)]
            return quickest(self.kernel, named, self.target), log


def test_the_quickest_is_taken(monkeypatch):
    chosen, log = Ways(monkeypatch, [5.0, 4.0, 3.0, 6.0]).quickest()
    assert chosen == 2
    [told] = of_kind(log, "autotuned")
    assert (told.kernel, told.tried, told.chosen) == ("scaled", 4, "way 2")
    assert told.first_us == pytest.approx(5) and told.chosen_us == pytest.approx(3)


def test_the_first_stays_where_little_is_to_be_gained(monkeypatch):
    chosen, log = Ways(monkeypatch, [5.0, 4.9]).quickest()
    assert chosen == 0 and of_kind(log, "autotuned")[0].chosen == "way 0"


@pytest.mark.parametrize("in_place", [False, True])
def test_what_gives_other_numbers_is_left_out(monkeypatch, in_place):
    chosen, log = Ways(monkeypatch, [5.0, 1.0, 3.0], [3.0, 3.5, 3.0], in_place).quickest()
    assert chosen == 2
    [told] = of_kind(log, "kernel_failed")
    assert told.error == "way 1: it gives other numbers than way 0"


def test_what_fails_is_left_out(monkeypatch):
    ways = Ways(monkeypatch, [5.0, 1.0, 3.0])
    plan_of = autotune._plan

    def broken(made, launch):
        plan = plan_of(made, launch)
        if launch is not ways.launches[1]:
            return plan

        def fails(*inputs):
            raise RuntimeError("no such launch")

        return fails

    monkeypatch.setattr(autotune, "_plan", broken)
    chosen, log = ways.quickest()
    assert chosen == 2
    assert [told.error for told in of_kind(log, "kernel_failed")] == ["way 1: RuntimeError: no such launch"]


def test_without_memory_nothing_is_measured(monkeypatch):
    ways = Ways(monkeypatch, [5.0, 1.0], memory=8 * SIZE)
    chosen, log = ways.quickest()
    assert chosen is None and not ways.target.measured
    [told] = of_kind(log, "autotuned")
    assert (told.tried, told.chosen) == (0, "way 0") and "lacks the memory" in text.autotuned(told, "", text.Level.FULL)


def test_the_program_s_random_numbers_are_left_alone(monkeypatch):
    before = torch.get_rng_state()
    Ways(monkeypatch, [5.0, 1.0]).quickest()
    assert torch.equal(torch.get_rng_state(), before)


def test_parts_of_other_buffers_have_their_offset():
    """Memory reaches as far as the kernel does: from the whole's beginning to the part's end."""
    made = autotune._memory(kernel(2.0, offset=77), Timed({}))
    assert made is not None and made["x"].numel() == SIZE + 77 and made["y"].numel() == SIZE


def test_symbolic_sizes_are_not_measured():
    made = kernel(2.0)
    assert is_measurable(made)
    made.buffers["x"].sizes = (object.__new__(SymbolicSize),)
    assert not is_measurable(made)


# ---- tiles of GPU kernels ----


class Tile:
    def __init__(self, number: int) -> None:
        self.number = number

    def __str__(self):
        return f"tile {self.number}"


class Source:
    def __init__(self, number: int) -> None:
        self.name, self.key, self.programs, self.number = "scaled", f"key {number}", 1, number


class Gpu(Timed):
    """What `measured_tiles` asks of a GPU, with kernels of this machine's processor."""

    identity = "a GPU for tests"
    limits = WITHOUT_A_GPU
    count = 3
    fails = frozenset[int]()

    def begun_binaries(self, sources):
        self.compiled = [source.number for source in sources]
        return lambda: [ValueError("not this one") if source.number in self.fails else object() for source in sources]

    def launches(self, sources, binaries, origins):
        return self.compile([kernel(3.0)])


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    by_plan: dict[int, float] = {}
    made = Gpu(by_plan)
    times = iter([5.0, 4.0, 2.0] * 2)
    plan_of = autotune._plan

    def planned(*args):
        plan = plan_of(*args)
        by_plan[id(plan)] = next(times)
        return plan

    monkeypatch.setattr(autotune, "_plan", planned)
    monkeypatch.setattr(kernel_source, "triton_source", lambda kernel, tile: Source(tile.number))
    monkeypatch.setattr(blocks, "worth_measuring", lambda kernel, limits: map(Tile, range(made.count)))
    with framejit.config.patch(cache_dir=str(tmp_path), cache_size=1 << 20):
        yield made


def tiles(gpu):
    [own] = cuda_autotune.measured_tiles([kernel(3.0)], gpu)
    return [tile.number for tile in own]


def test_the_choice_is_kept_on_the_disk(gpu):
    assert tiles(gpu) == [2, 0, 1] and gpu.compiled == [0, 1, 2]
    measured = gpu.measured
    assert tiles(gpu) == [2, 0, 1] and gpu.compiled == [] and gpu.measured == measured
    gpu.identity = "another GPU"
    assert tiles(gpu) == [2, 0, 1] and gpu.measured > measured


@pytest.mark.parametrize("data", [b"cut", pack({"tile": 7}, {}), pack({"tile": "1"}, {}), pack({"other": 1}, {})])
def test_a_choice_that_is_none_is_made_again(gpu, monkeypatch, data):
    monkeypatch.setattr(disk_cache, "get", lambda kind, key: data if kind == cuda_autotune.KIND else None)
    assert tiles(gpu) == [2, 0, 1] and gpu.measured


def test_what_was_not_measured_is_not_kept(gpu):
    gpu.memory = 0
    assert tiles(gpu) == [0, 1, 2] and not gpu.measured
    gpu.memory = 1 << 30
    assert tiles(gpu) == [2, 0, 1] and gpu.measured


def test_tiles_that_do_not_compile_are_left_out(gpu):
    gpu.fails = frozenset((0,))
    with recorded() as log:
        assert tiles(gpu)[0] in (1, 2)
    assert [told.error for told in of_kind(log, "kernel_failed")] == ["ValueError: not this one"]


def test_a_kernel_with_one_tile_is_not_measured(gpu):
    gpu.count = 1
    assert tiles(gpu) == [0] and not gpu.measured


# ---- what is asked for ----


@pytest.mark.parametrize(
    "mode, launches, tunes",
    [("default", False, False), ("reduce-overhead", True, False), ("max-autotune", True, True),
     ("max-autotune-no-cudagraphs", False, True)],
)
def test_modes(monkeypatch, mode, launches, tunes):
    asked = []
    compile_graph = backend._compile

    def noted(gm, inputs, graph):
        asked.append((LAUNCH_GRAPHS in gm.meta, AUTOTUNE in gm.meta, graph.autotune))
        return compile_graph(gm, inputs, graph)

    monkeypatch.setattr(backend, "_compile", noted)
    x = torch.randn(5, 40)
    fast = framejit.optimize(lambda x: F.softmax(x * 2, -1), mode=mode)
    for _ in range(3):
        torch.testing.assert_close(fast(x), F.softmax(x * 2, -1))
    assert asked == [(launches, tunes, tunes)]


def test_plans_of_the_modes_are_apart(monkeypatch):
    """A plan whose kernels were measured does not stand for one whose were not."""
    keys = set()

    def noted(*args):
        key = plan_key(*args)
        keys.add(key.key)
        return key

    plan_key = graph_key.plan_key
    monkeypatch.setattr(graph_key, "plan_key", noted)
    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        framejit.reset()
        framejit.optimize(lambda x: x.exp() + 1, mode=mode)(torch.ones(3))
    assert len(keys) == 2


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_results_are_those_of_the_default_mode(grad, dynamic):
    def f(x, w):
        return F.layer_norm(x @ w, (8,)).relu().sum(0), x.sum()

    fast = framejit.optimize(f, mode="max-autotune", dynamic=dynamic)
    for rows in (3, 5, 9):
        outcomes = []
        for call in (f, fast):
            torch.manual_seed(rows)
            x, w = torch.randn(rows, 4).requires_grad_(grad), torch.randn(4, 8).requires_grad_(grad)
            y, z = call(x, w)
            outcomes.append((y, z, *(torch.autograd.grad(y.square().sum() + z, (x, w)) if grad else ())))
        for expected, got in zip(*outcomes):
            torch.testing.assert_close(got, expected)
