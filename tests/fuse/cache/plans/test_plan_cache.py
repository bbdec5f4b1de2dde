"""A graph that was compiled before is not lowered again: its plan comes from the disk, does the same, and looks the
same."""
import dataclasses
import os
import re
import textwrap
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import fx

import framejit
from framejit import events
from framejit.backends.fuse import backend, compile_graph
from framejit.backends.fuse.account.compiled_graph import recall
from framejit.backends.fuse.backend import fuse_graph
from framejit.backends.fuse.cache import disk_cache, graph_key, plan_key, plan_record
from framejit.backends.fuse.graph.passes.pipeline import PASSES
from framejit.backends.fuse.plan import plan_parts
from framejit.backends.fuse.targets import cuda
from framejit.backends.fuse.triton.compile import GpuBinary

import forked
from kept_plans import assert_equal, fresh, graph_of, plan_events, plan_files, program_on_disk

PLACES = [6, 4]


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
        told = [(event.what, event.hit) for event in events.events("cache")]
        print(sorted(stages), [each for each in told if each[0] != "sources"])
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
        compiled = framejit.optimize(lambda x, y: (F.linear(x.double(), y.double()).softmax(-1) + 1, (x - y).sum()))
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
    monkeypatch.setattr(graph_key, "plan_key", _nameless)
    framejit.set_logs("cache")
    try:
        x = torch.randn(3, 4)
        assert_equal(x.sort()[0], framejit.optimize(lambda x: x.sort()[0])(x))
    finally:
        framejit.set_logs()
    assert "not kept: its plan refers to _VariableFunctionsClass.sort" in capsys.readouterr().err
    assert not plan_files(folder)


_plan_key = graph_key.plan_key


def _nameless(*args):
    key = _plan_key(*args)
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

    monkeypatch.setattr(cuda, "begun_gpu_binaries", lambda *args: partial(binaries, *args))
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
