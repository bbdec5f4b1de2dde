"""A graph that was compiled before is not lowered again: its plan comes from the disk, does the same, and looks the
same."""
import dataclasses
import os
import pathlib
import re
import textwrap
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import fx

import framejit
from framejit import events
from framejit.backends.fuse import backend, compile_graph
from framejit.backends.fuse.account.compiled_graph import recall
from framejit.backends.fuse.backend import fuse_graph
from framejit.backends.fuse.cache import cache_entry, disk_cache, plan_key, plan_record
from framejit.backends.fuse.cache.kernel_record import BadRecord, pack, unpack
from framejit.backends.fuse.graph.passes.pipeline import PASSES
from framejit.backends.fuse.llvm import compiled_kernel
from framejit.backends.fuse.plan import plan_parts
from framejit.backends.fuse.targets import cuda
from framejit.backends.fuse.triton.compile import GpuBinary

import forked
from comparison import assert_same

PLACES = [6, 4]


def assert_equal(expected, got) -> None:
    """Values, and which objects and memory are shared."""
    assert_same(expected, got, atol=1e-6, rtol=1e-5)


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with framejit.config.patch(cache_dir=str(tmp_path / "cache"), keep_captures=False):
        yield tmp_path / "cache"


def plan_events() -> list[tuple[bool, str]]:
    return [(event.hit, event.reason) for event in events.events("cache") if event.what == "plan"]


def plan_files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("plan-*")) if folder.exists() else []


def fresh(function, *args):
    """The result, and whether the plan came from the disk; nothing is left of earlier compilations but the disk."""
    framejit.reset()
    compiled = framejit.optimize(function)
    before = len(plan_events())
    result = compiled(*args)
    found = plan_events()[before:]
    assert len(found) == 1, found
    return result, found[0][0]


def without_lowering(monkeypatch):
    """From here on a graph that is lowered, scheduled or planned is an error."""

    def never(*args):
        raise AssertionError("a stage ran whose result is on the disk")

    monkeypatch.setattr(backend, "run_passes", never)
    for stage in ("lower_graph", "schedule", "compile_kernels", "build_plan"):
        monkeypatch.setattr(compile_graph, stage, never)
    monkeypatch.setattr(framejit.config, "debug", True)


# ---- the same again -------------------------------------------------------------------------------------


def pointwise(x, y):
    return (x + y).relu() * 2


def normalise(x, y):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def several_outputs(x, y):
    total = x + y
    return total, total.sum(0), x, None, 3, total.t(), x[1:]


def writes_into_its_input(x, y):
    x.add_(1)
    x[0].mul_(y[0])
    return x * y


def returns_an_alias(x, y):
    x.mul_(2)
    return x, x.view(-1), x.detach(), y.view(torch.int32)


def same_output_twice(x, y):
    total = x @ y.t()
    return total, total, total.relu()


def with_constants(x, y):
    mask = torch.tensor([[1.0], [0.0], [-float("inf")], [float("nan")]]) + torch.arange(4.0).flip(0)[:, None]
    return x + mask, F.embedding(torch.tensor([3, 1, 0]), y), torch.tensor(2.5)


def by_aten(x, y):
    values, places = x.sort(dim=-1, descending=True, stable=True)
    return (
        F.pad(F.linear(x, y), (1, 2), value=-0.0), values + 1, places, torch.cat([x, y], 1),
        x.split([2, 4], 1)[1].cumsum(-1, dtype=torch.float64),
    )


def of_other_dtypes(x, y):
    return x.to(torch.bfloat16) * 2, (x > y).any(-1), x.to(torch.complex64) * (1 + 2j)


def nothing_but_empty(x, y):
    return x[:0] + 1, y[:0].sum(0)


PROGRAMS = [
    *(
        pointwise, normalise, several_outputs, writes_into_its_input, returns_an_alias, same_output_twice,
        with_constants, by_aten, of_other_dtypes,
    ),
    nothing_but_empty,
]


def arguments():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(PLACES[::-1], generator=generator), torch.randn(PLACES[::-1], generator=generator)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_plan_from_the_disk_does_what_eager_does(program, monkeypatch):
    _, hit = fresh(program, *arguments())
    assert not hit
    without_lowering(monkeypatch)
    theirs, ours = arguments(), arguments()
    framejit.reset()
    compiled = framejit.optimize(program)
    for call in range(3):
        expected, got = program(*theirs), compiled(*ours)
        assert_equal((expected, theirs), (got, ours))
        assert [x._version for x in theirs] == [x._version for x in ours]
        for tensor in (*theirs, *ours):
            tensor.sub_(call)
    assert plan_events()[-1] == (True, "")


def test_another_process_lowers_nothing(folder, tmp_path):
    program = """
        import sys, torch, framejit
        from framejit import events
        from framejit.backends.fuse.account.stage_counts import stages

        def f(x, weight):
            x.mul_(2)
            return torch.nn.functional.linear(x, weight).softmax(-1).sum(), x.view(-1)

        x, weight = torch.arange(12.0).view(3, 4) / 7, torch.arange(8.0).view(2, 4) / 5
        total, view = framejit.optimize(f)(x, weight)
        theirs = torch.arange(12.0).view(3, 4) / 7
        expected, _ = f(theirs, weight)
        torch.testing.assert_close(total, expected)
        torch.testing.assert_close(x, theirs)
        assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        print(sorted(stages), [(event.what, event.hit) for event in events.events("cache")])
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))

    def run():
        environment = {**os.environ, "FRAMEJIT_CACHE_DIR": str(folder), "FRAMEJIT_KEEP_CAPTURES": "0"}
        ran = forked.run(["-W", "error", script], env=environment, timeout=120)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    passes = {each.name for each in PASSES}
    assert run().startswith(f"{sorted({'record', *passes, 'lower', 'schedule'})} [('plan', False)")
    second = run()
    assert second.startswith("['record'] [('plan', True)")
    assert "False" not in second


def facts(compiled):
    (graph,) = framejit.inspect(compiled).graphs
    return graph.kernels, graph.externs, graph.before_fusion, graph.after_fusion, graph.reason


def told(kind, *names):
    return [[getattr(event, name) for name in names] for event in events.events(kind)]


def test_it_looks_like_one_that_was_just_compiled(monkeypatch):
    def outline():
        framejit.reset()
        compiled = framejit.optimize(lambda x, y: (F.linear(x, y).softmax(-1) + 1, (x - y).sum()))
        compiled(*arguments())
        return (
            facts(compiled),
            told("fusion", "text", "reason")[-1],
            [event[1:] for event in told("output_code", "name", "language", "source", "kernel")],
        )

    first = outline()
    count = len(first[2])
    without_lowering(monkeypatch)
    second = outline()
    assert first[:2] == second[:2]
    assert first[2] == second[2][-count:]
    assert first[0][0] and first[0][1] == ("linear",)


def test_a_function_that_moves_keeps_its_plan_and_shows_its_new_lines():
    def made(lines):
        namespace = {}
        source = "\n" * lines + "def moving(x):\n    y = x.sin()\n    return y.sum(-1) + 1\n"
        file = f"/moving/at_{lines}.py"
        import linecache

        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec"), namespace)
        return namespace["moving"]

    for lines in (3, 5):
        framejit.reset()
        compiled = framejit.optimize(made(lines))
        compiled(torch.ones(3, 4))
        (kernel,) = framejit.inspect(compiled).kernels
        assert f"at_{lines}.py:{lines + 2} in moving: y = x.sin()" in kernel.origins
        assert all(f"; {origin}\n" in kernel.source for origin in kernel.origins)
        assert f"# {kernel.origins[0]}\n" in facts(compiled)[2]
        assert "at_3.py" not in kernel.source or lines == 3
        assert plan_events()[-1][0] is (lines == 5)


# ---- keys -----------------------------------------------------------------------------------------------


def test_other_operations_and_inputs_have_other_keys():
    x = torch.randn(3, 4)
    other_layout, other_dtype = x.t().contiguous().t(), x.double()
    programs = [
        (lambda x: x + 1, x),
        (lambda x: x + 1.0, x),
        (lambda x: x + 2, x),
        (lambda x: x - 1, x),
        (lambda x: x + True, x),
        (lambda x: x.add_(1), x.clone()),
        (lambda x: (x + 1, x.t()), x),
        (lambda x: x + 1, other_layout),
        (lambda x: x + 1, other_dtype),
        (lambda x: x + 1, x[:2]),
        (lambda x: x * 0.0, x),
        (lambda x: x * -0.0, x),
        (lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]), x),
        (lambda x: x + torch.tensor([1.0, 2.0, 3.0, 5.0]), x),
    ]
    for program, argument in programs:
        expected = program(argument.clone(memory_format=torch.preserve_format))
        result, hit = fresh(program, argument)
        assert not hit
        assert_equal(expected, result)
    assert fresh(lambda x: x + 1, x)[1]


def default_dtype():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    return lambda: torch.set_default_dtype(before)


def deterministic():
    torch.use_deterministic_algorithms(True)
    return lambda: torch.use_deterministic_algorithms(False)


def precision():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    return lambda: torch.set_float32_matmul_precision(before)


def no_onednn():
    torch.backends.mkldnn.set_flags(_enabled=False)
    return lambda: torch.backends.mkldnn.set_flags(_enabled=True)


def flushes():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush denormals")
    return lambda: torch.set_flush_denormal(False)


def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    return lambda: torch.set_num_threads(before)


def graph_of(function, *inputs):
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    gm = fx.symbolic_trace(function)
    for node, value in zip((node for node in gm.graph.nodes if node.op == "placeholder"), inputs):
        node.meta["val"] = mode.from_tensor(value, static_shapes=True)
    out = next(node for node in gm.graph.nodes if node.op == "output")
    if not isinstance(out.args[0], (tuple, list)):
        out.args = ((out.args[0],),)
        gm.recompile()
    return gm


@pytest.mark.parametrize(
    "change", [default_dtype, deterministic, precision, no_onednn, flushes, threads], ids=lambda change: change.__name__
)
def test_a_switch_of_torch_is_part_of_the_key(change):
    inputs = [torch.randn(3, 4)]

    def compile_once():
        run = fuse_graph(graph_of(lambda x: (x.sum(-1) + 1) * 2, *inputs), inputs)
        torch.testing.assert_close(run(*inputs)[0], (inputs[0].sum(-1) + 1) * 2)
        return plan_events()[-1][0]

    assert [compile_once(), compile_once()] == [False, True]
    put_back = change()
    try:
        assert [compile_once(), compile_once()] == [False, True]
    finally:
        put_back()


def test_settings_are_part_of_the_key_unless_they_are_known_not_to_matter(monkeypatch):
    x = torch.randn(3, 4)
    assert [fresh(torch.sin, x)[1] for _ in range(2)] == [False, True]
    with framejit.config.patch(recompile_limit=3, ring_size=5000):
        assert fresh(torch.sin, x)[1]
    assert all(hasattr(framejit.config, name) for name in plan_key.ELSEWHERE)
    # as if it were a setting that nobody has thought about
    monkeypatch.setattr(plan_key, "ELSEWHERE", plan_key.ELSEWHERE - {"recompile_limit"})
    assert [fresh(torch.sin, x)[1] for _ in range(2)] == [False, True]
    with framejit.config.patch(recompile_limit=3):
        assert [fresh(torch.sin, x)[1] for _ in range(2)] == [False, True]


def test_other_versions_have_other_keys(monkeypatch):
    from framejit.backends.fuse.cache import cache_key

    x = torch.randn(3, 4)
    monkeypatch.setattr(cache_key, "source_hash", lambda folder: "as it was")
    cache_key._toolchain.cache_clear()
    assert [fresh(torch.cos, x)[1] for _ in range(2)] == [False, True]
    for package, version in ((torch, "99.0"), (cache_key, "99.0")):
        cache_key._toolchain.cache_clear()
        with monkeypatch.context() as patched:
            patched.setattr(package, "__version__", version)
            assert not fresh(torch.cos, x)[1]
    cache_key._toolchain.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(cache_key, "source_hash", lambda folder: "changed")
        assert not fresh(torch.cos, x)[1]
    cache_key._toolchain.cache_clear()
    assert fresh(torch.cos, x)[1]
    monkeypatch.undo()
    cache_key._toolchain.cache_clear()


def test_modes_of_the_thread_are_part_of_the_key():
    x, w = torch.randn(3, 4), torch.randn(4, 4)

    def f(x, w):
        return x @ w + 1

    def run():
        got, hit = fresh(f, x, w)
        assert_equal(f(x, w), got)
        return hit

    assert [run(), run()] == [False, True]
    with torch.no_grad():
        assert [run(), run()] == [False, True]
    with torch.autocast("cpu", torch.bfloat16):
        assert [run(), run()] == [False, True]
    assert run()


# ---- constants ------------------------------------------------------------------------------------------


class WithTensor(torch.nn.Module):
    def __init__(self, values):
        super().__init__()
        self.held = torch.nn.Buffer(values)

    def forward(self, x):
        return x + self.held


def test_attributes_of_a_graph_are_those_of_the_graph_at_hand():
    x = torch.randn(4)
    hits = []
    for values in (torch.ones(4), torch.arange(4.0)):
        module = WithTensor(values)
        run = fuse_graph(graph_of(module, x), [x])
        hits.append(plan_events()[-1][0])
        torch.testing.assert_close(run(x)[0], x + values)
        module.held.add_(1)
    assert hits == [False, True]


def test_a_constant_that_is_written_lives_on_from_call_to_call():
    for hit in (False, True):
        gm = graph_of(WithTensor(torch.zeros(3)), torch.ones(3))
        held = next(node for node in gm.graph.nodes if node.op == "get_attr")
        (reader,) = held.users
        with gm.graph.inserting_after(held):
            reader.replace_input_with(held, gm.graph.call_method("add_", (held, 1)))
        gm.recompile()
        run = fuse_graph(gm, [torch.ones(3)])
        assert plan_events()[-1][0] is hit
        assert [run(torch.ones(3))[0].tolist() for _ in range(3)] == [[2.0] * 3, [3.0] * 3, [4.0] * 3]


def test_a_large_constant_of_the_program_is_not_kept_and_the_log_says_so(monkeypatch, folder):
    monkeypatch.setattr(plan_key, "LARGEST", 64)

    def f(x):
        return x * torch.tensor([float(i) for i in range(100)])

    x = torch.randn(100)
    assert_equal(f(x), framejit.optimize(f)(x))
    assert plan_events() == [(False, "not kept: a constant has 400 bytes")]
    assert not plan_files(folder)


def test_a_function_without_a_name_is_not_kept_and_the_log_says_so(monkeypatch, folder, capsys):
    monkeypatch.setattr(plan_record, "laid_out_as", None)
    monkeypatch.setitem(backend.find.__globals__, "plan_key", _nameless)
    framejit.set_logs("cache")
    try:
        x = torch.randn(3, 4)
        assert_equal(x.sort()[0], framejit.optimize(lambda x: x.sort()[0])(x))
    finally:
        framejit.set_logs()
    assert "not kept: its plan refers to _VariableFunctionsClass.sort" in capsys.readouterr().err
    assert not plan_files(folder)


def _nameless(*args):
    key = plan_key.plan_key(*args)
    return dataclasses.replace(key, functions={})


# ---- a GPU -----------------------------------------------------------------------------------------------


def test_kernels_for_a_gpu_are_loaded_as_they_were_compiled(monkeypatch):
    """No GPU is needed: machine code, driver and plan are stood in for; what is kept and found is real."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    loads, made = [], []

    def binaries(sources, capability):
        made.append([*sources])
        return [GpuBinary(b"code", source.name, 64, 32 * source.warps, len(source.buffers), 2) for source in sources]

    class Module:
        def __init__(self, key, device):
            self.function, self.device_index = len(key), device

        @classmethod
        def of(cls, key, binary, device):
            loads.append((key, binary.name, device))
            return cls(key, device)

    monkeypatch.setattr(cuda, "gpu_binaries", binaries)
    monkeypatch.setattr(cuda, "GpuModule", Module)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(
        plan_parts._native,
        "Plan",
        lambda *args, **named: (args, {key: value for key, value in named.items() if key != "fallback"}),
    )
    monkeypatch.setattr(backend._native, "Selector", lambda run, *args, **named: run)
    with FakeTensorMode(allow_fallback_kernels=False):
        fake = torch.empty(64, 128, device="cuda")
    graph = fx.Graph()
    node = graph.placeholder("x")
    node.meta["val"] = fake
    summed = graph.call_function(torch.sum, (node, -1))
    graph.output(
        (
            graph.call_function(torch.add, (summed, 1)),
            graph.call_function(torch.mm, (node, graph.call_method("t", (node,)))),
        )
    )
    gm = fx.GraphModule(torch.nn.Module(), graph)

    def compiled():
        with framejit.config.patch(debug=True):
            plan = fuse_graph(gm, [fake])
        return plan[0][:2], [step for step in plan[0][2] if step[0] != "expect"], plan[0][3], plan[1]

    def comparable(plan):
        counts, steps, outputs, named = plan
        return (
            counts,
            re.sub(r"<framejit._native.Value object at \w+>", "value", str((steps, outputs))),
            str(named).replace("uncaptured", ""),
        )

    first = comparable(compiled())
    without_lowering(monkeypatch)
    second = comparable(compiled())
    assert [hit for hit, _ in plan_events()] == [False, True]
    assert re.sub(r"_\d+'", "", str(first)) == re.sub(r"_\d+'", "", str(second))
    assert "cuda_kernel" in first[1]
    assert made[0] == made[1]
    assert loads[: len(loads) // 2] == loads[len(loads) // 2 :]


# ---- damage ---------------------------------------------------------------------------------------------


def sealed_again(file: pathlib.Path, change) -> None:
    """Puts a record that is sealed as it should be, but holds something else."""
    kind, key = file.name.split("-")
    fields, blobs = unpack(cache_entry.unseal(kind, key, file.read_bytes()))
    change(fields)
    file.write_bytes(cache_entry.seal(kind, key, pack(fields, blobs)))


def program_on_disk(folder):
    x = torch.randn(3, 4)

    def f(x):
        return F.linear(x.sin() + 1, x).sum(-1), x.cos()

    fresh(f, x)
    (file,) = plan_files(folder)
    return f, x, file


@pytest.mark.parametrize("keep", [0, 20, 52, 200, -1])
def test_a_torn_file_is_ignored(folder, keep):
    f, x, file = program_on_disk(folder)
    file.write_bytes(file.read_bytes()[:keep])
    result, hit = fresh(f, x)
    assert not hit
    assert "torn" in plan_events()[-1][1]
    assert_equal(f(x), result)
    assert fresh(f, x)[1]


def test_a_changed_file_is_ignored(folder):
    f, x, file = program_on_disk(folder)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    result, hit = fresh(f, x)
    assert not hit
    assert plan_events()[-1][1] == "its file is torn, was changed, or has another format"
    assert_equal(f(x), result)


def test_the_format_of_another_version_is_ignored(folder, monkeypatch):
    f, x, _ = program_on_disk(folder)
    monkeypatch.setattr(cache_entry, "VERSION", cache_entry.VERSION + 1)
    result, hit = fresh(f, x)
    assert not hit
    assert plan_events()[-1][1] == "its file is torn, was changed, or has another format"
    assert_equal(f(x), result)


def test_the_plan_of_another_graph_is_ignored(folder):
    f, x, file = program_on_disk(folder)

    def g(x):
        return F.linear(x.cos() + 1, x).sum(-1), x.sin()

    fresh(g, x)
    (other,) = {*plan_files(folder)} - {file}
    other.write_bytes(file.read_bytes())
    result, hit = fresh(g, x)
    assert not hit
    assert plan_events()[-1][1] == "its file is torn, was changed, or has another format"
    assert_equal(g(x), result)


def step_of(fields, kind):
    return next(step for step in fields["steps"] if step[1] == kind)


def _drop_argument(fields):
    step_of(fields, "kernel")[3].pop()


def _other_kernel(fields):
    step_of(fields, "kernel")[2] = 99


def _negative_kernel(fields):
    step_of(fields, "kernel")[2] = -1


def _other_slot(fields):
    step_of(fields, "kernel")[3][1] = 77


def _huge(fields):
    fields["counts"][1] = 1 << 40


def _other_inputs(fields):
    fields["counts"][0] = 7


def _other_function(fields):
    step_of(fields, "call")[2] = ["function", "aten::system"]


def _system(fields):
    step_of(fields, "call")[2] = ["function", "os.system"]


def _dtype(fields):
    step_of(fields, "empty")[5] = ["dtype", "nn"]


def _unknown_step(fields):
    fields["steps"].insert(0, ["tuple", "jump", 3])


def _unknown_kind(fields):
    fields["steps"][0] = ["pickle", "xyz"]


def _no_kernels(fields):
    del fields["kernels"]


def _no_text(fields):
    fields["texts"] = ["nonsense" for _ in fields["texts"]]


def _extra(fields):
    fields["kernels"][0][2]["code"] = 0


def _origins(fields):
    fields["origins"].append("x")


def _deep(fields):
    value = 1
    for _ in range(400):
        value = ["tuple", value]
    fields["outputs"] = value


def _fewer_outputs(fields):
    fields["outputs"].pop()


def _constant(fields):
    fields["steps"].insert(0, ["tuple", "constant", fields["counts"][1] - 1, ["given", 5]])


@pytest.mark.parametrize(
    "change",
    [
        *(
            _drop_argument, _other_kernel, _negative_kernel, _other_slot, _huge, _other_inputs, _other_function,
            _system, _dtype, _unknown_step, _unknown_kind,
        ),
        *(_no_kernels, _no_text, _extra, _origins, _deep, _fewer_outputs, _constant),
    ],
    ids=lambda change: change.__name__,
)
def test_what_is_no_plan_is_not_run_even_if_its_seal_is_right(folder, change):
    f, x, file = program_on_disk(folder)
    sealed_again(file, change)
    framejit.reset()
    compiled = framejit.optimize(f)
    assert_equal(f(x), compiled(x))
    assert [hit for hit, _ in plan_events()][-2:] == [True, False]
    assert plan_events()[-1][1].startswith("what was found can't be used: ")
    (graph,) = framejit.inspect(compiled).graphs
    assert not graph.reason
    assert len({kernel.name for kernel in graph.kernels}) == len(graph.kernels)
    assert fresh(f, x)[1]  # it was put right


def test_reading_nonsense_raises_only_bad_record():
    key = plan_key.PlanKey("", {}, {}, (), {}, 0, (), None, ())
    for data in (b"", b"\0" * 64, pack({}, {}), pack({"steps": 3}, {})):
        with pytest.raises(BadRecord):
            plan_record.read(data, key)


def test_kernels_that_are_gone_are_compiled_again(folder, monkeypatch):
    f, x, _ = program_on_disk(folder)
    monkeypatch.setattr(compiled_kernel, "_compiled", weakref.WeakValueDictionary())  # nor are they in this process
    for file in folder.glob("llvm-*"):
        file.unlink()
    result, hit = fresh(f, x)
    assert hit
    assert_equal(f(x), result)
    assert list(folder.glob("llvm-*"))


# ---- the folder -----------------------------------------------------------------------------------------


def test_a_folder_that_others_can_write_to_is_not_read(folder):
    f, x, _ = program_on_disk(folder)
    folder.chmod(0o777)
    disk_cache._cache_in.cache_clear()
    with pytest.warns(framejit.FramejitWarning, match="is not used"):
        result, hit = fresh(f, x)
    assert not hit
    assert_equal(f(x), result)


def test_a_folder_that_cannot_be_written(folder, monkeypatch):
    folder.parent.joinpath("cache").write_text("a file")
    x = torch.randn(3)
    with pytest.warns(framejit.FramejitWarning, match="can't be kept"):
        result, hit = fresh(torch.sin, x)
    assert not hit
    assert_equal(x.sin(), result)


def test_several_processes_at_once(folder, tmp_path):
    program = """
        import torch, framejit
        from framejit import events
        def f(x, n):
            return (x.sin() * n).sum(-1).softmax(0), x + n
        for n in range(4):
            x = torch.arange(60.0).view(5, 12) / 9
            torch.testing.assert_close(framejit.optimize(f)(x, n), f(x, n))
        print(sum(event.what == "plan" for event in events.events("cache")))
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))
    environment = {**os.environ, "FRAMEJIT_CACHE_DIR": str(folder), "FRAMEJIT_DYNAMIC_AFTER": "0"}
    environment["FRAMEJIT_KEEP_CAPTURES"] = "0"
    for done in forked.run_at_once(3, ["-W", "error", script], env=environment, timeout=120):
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) == 4
    assert not [file for file in folder.iterdir() if file.name.startswith(".tmp")]
    assert all(cache_entry.unseal(*file.name.split("-"), file.read_bytes()) is not None for file in folder.iterdir())
    assert len(plan_files(folder)) == 4


def test_artifacts_are_written_from_a_compilation_of_ones_own(folder, tmp_path):
    f, x, _ = program_on_disk(folder)
    with framejit.config.patch(artifacts=str(tmp_path / "stages")):
        framejit.reset()
        assert_equal(f(x), framejit.optimize(f)(x))
    (graph,) = (tmp_path / "stages").iterdir()
    assert list((graph / "kernels").iterdir())
    assert "kernel " in (graph / "ir_after_fusion.txt").read_text()
    assert not plan_events()


def test_the_command_counts_them(folder, capsys):
    from framejit.backends.fuse.cache.cache_command import run_cache_command

    program_on_disk(folder)
    import argparse

    run_cache_command(argparse.Namespace(action="info"))
    shown = capsys.readouterr().out
    assert "entries  1 plan, 0.0 MiB" in shown
    assert disk_cache.current().info().sizes["plan"] == plan_files(folder)[0].stat().st_size
    run_cache_command(argparse.Namespace(action="clear"))
    assert not plan_files(folder)


def test_without_a_cache_nothing_is_looked_up(folder):
    with framejit.config.patch(cache_size=0):
        framejit.optimize(torch.sin)(torch.ones(3))
    assert not plan_events()


def test_the_graph_behind_the_selector_is_told_as_before():
    x = torch.randn(3, 4)
    for _ in range(2):
        gm = graph_of(lambda x: x.sin() + 1, x)
        run = fuse_graph(gm, [x])
        account = recall(run)
        assert account.module() is gm and len(account.kernels) == len(account.machine_code) == 1


def test_a_plan_that_is_found_without_its_graph_may_call_the_same(monkeypatch):
    keys = []
    own = backend.key_for
    monkeypatch.setattr(backend, "key_for", lambda *args: keys.append(own(*args)) or keys[-1])
    x = torch.randn(3, 4)
    gm = graph_of(lambda x: x.sin() + 1, x)
    kept = recall(fuse_graph(gm, [x])).kept.key_now()
    assert kept.key == keys[0].key and kept.functions == keys[0].functions
