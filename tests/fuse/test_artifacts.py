"""What `FRAMEJIT_DEBUG=folder` leaves: complete, readable, and scripts that really run the same graph again."""
import json
import os
import pathlib
import re
import runpy

import pytest
import torch

import framejit
from framejit.backends.fuse.account.graph_script import random_tensor
from framejit.backends.fuse.llvm import kernel as llvm_kernel
from framejit.errors import FramejitWarning

import forked


@pytest.fixture
def folder(tmp_path):
    with framejit.config.patch(artifacts=str(tmp_path / "artifacts")):
        yield tmp_path / "artifacts"


def written(folder: pathlib.Path, fn, *args) -> pathlib.Path:
    """The folder of the one graph of a function."""
    framejit.optimize(fn, backend="fuse")(*args)
    (graph,) = folder.iterdir()
    return graph


def fused(x, y):
    return (x + y).relu() * 2


def summary(graph: pathlib.Path) -> dict:
    return json.loads((graph / "summary.json").read_text())


@pytest.fixture
def broken_kernels(monkeypatch):
    def fail(kernel, *rest):
        raise RuntimeError("the assembler is out of ink")

    monkeypatch.setattr(llvm_kernel, "compile_cpu_kernel", fail)
    with framejit.config.patch(cache_size=0):  # or the plan of another test's would be found
        yield


# ---- the files ---------------------------------------------------------------------------------------


def test_every_stage_is_written_down(folder):
    graph = written(folder, fused, torch.randn(8, 16), torch.randn(8, 16))
    assert "class GraphModule" in (graph / "graph.py").read_text()
    assert "f32[8, 16]" in (graph / "graph.py").read_text()
    assert "test_artifacts.py" in (graph / "graph.py").read_text()
    assert re.search(r"for \w+<8, \w+<16", (graph / "ir_before_fusion.txt").read_text())
    assert "kernel " in (graph / "ir_after_fusion.txt").read_text()
    (kernel,) = (graph / "kernels").iterdir()
    assert kernel.suffix == ".ll"
    assert "define void" in kernel.read_text()


def test_the_summary_counts_and_describes(folder):
    graph = written(folder, lambda x, y: fused(x, y).double().inverse(), torch.randn(8, 8), torch.randn(8, 8))
    told = summary(graph)
    assert told["kernel_count"] == len(told["kernels"]) == 1
    assert told["kernels"][0]["language"] == "llvm"
    assert any("test_artifacts.py" in origin for origin in told["kernels"][0]["origins"])
    assert len(told["externs"]) == 1
    assert told["reason"] == ""
    assert told["inputs"][0] == {"dtype": "torch.float32", "sizes": [8, 8], "strides": [8, 1], "device": "cpu"}


def test_the_summary_is_completed_when_both_ways_were_measured(folder):
    f = framejit.optimize(fused, backend="fuse")
    f(torch.randn(8), torch.randn(8))
    (graph,) = folder.iterdir()
    assert summary(graph)["state"] == "measuring"
    assert summary(graph)["eager_us"] is None
    for _ in range(20):
        f(torch.randn(8), torch.randn(8))
    assert summary(graph)["state"] in ("compiled", "eager")
    assert summary(graph)["compiled_us"] > 0
    assert summary(graph)["eager_us"] > 0


def test_a_graph_that_runs_as_aten_says_why(folder):
    x = torch.randn(4, requires_grad=True)
    graph = written(folder, lambda x: torch.nn.functional.rrelu(x, training=True), x)
    assert "rrelu_with_noise has no form" in summary(graph)["reason"]
    assert summary(graph)["state"] == "eager"


def test_nothing_is_written_unless_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    framejit.optimize(fused, backend="fuse")(torch.randn(4), torch.randn(4))
    assert not list(tmp_path.iterdir())


def test_each_graph_gets_a_folder_of_its_own_even_among_old_ones(folder):
    for n in range(4, 7):
        framejit.optimize(fused, backend="fuse")(torch.randn(n), torch.randn(n))
    names = sorted(graph.name for graph in folder.iterdir())
    assert len(names) == 3
    for name in names:
        assert (folder / name / "summary.json").exists()
    script = "import sys, torch, framejit; framejit.optimize(lambda x: x.sin() + 1, backend='fuse')(torch.ones(3))"
    for _ in range(2):
        forked.run(
            ["-c", script], cwd=folder.parent, env={**os.environ, "FRAMEJIT_DEBUG": str(folder)}, timeout=120
        ).check_returncode()
    assert len(list(folder.iterdir())) == 5


def test_a_folder_that_cannot_be_made_costs_a_warning_and_nothing_else(tmp_path):
    (tmp_path / "file").write_text("")
    x = torch.randn(4)
    for artifacts in (tmp_path / "file", tmp_path / "file" / "below"):
        framejit.reset()
        with framejit.config.patch(artifacts=str(artifacts)), pytest.warns(FramejitWarning, match="can't be written"):
            assert torch.equal(framejit.optimize(fused, backend="fuse")(x, x), fused(x, x))


# ---- failures ------------------------------------------------------------------------------------------


def test_a_kernel_that_fails_is_named_with_the_folder_and_eager_runs(broken_kernels, folder):
    x = torch.randn(4)
    with pytest.warns(FramejitWarning, match="could not be compiled") as warned:
        f = framejit.optimize(fused, backend="fuse")
        assert torch.equal(f(x, x), fused(x, x))
        assert torch.equal(f(x, x), fused(x, x))
    assert len(warned) == 1
    (graph,) = folder.iterdir()
    message = str(warned[0].message)
    assert str(graph) in message
    assert "out of ink" in message
    # the kernel's name
    assert message.split(" failed with ")[0].split()[-1] in (graph / "ir_after_fusion.txt").read_text()
    assert "out of ink" in (graph / "error.txt").read_text()
    assert "out of ink" in summary(graph)["reason"]


def test_without_a_folder_a_failure_goes_to_a_temporary_one(broken_kernels, tmp_path, monkeypatch):
    from framejit.backends.fuse.account import artifacts

    monkeypatch.setattr(artifacts.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    artifacts._temporary_folder.cache_clear()
    with pytest.warns(FramejitWarning, match=str(tmp_path)):
        framejit.optimize(fused, backend="fuse")(torch.randn(4), torch.randn(4))
    artifacts._temporary_folder.cache_clear()
    (graph,) = tmp_path.iterdir()
    assert (graph / "reproduce.py").exists()


def test_in_debug_mode_a_failure_is_written_down_and_raised(broken_kernels, folder):
    with framejit.config.patch(debug=True), pytest.raises(framejit.errors.BackendError, match="out of ink"):
        framejit.optimize(fused, backend="fuse", fullgraph=True)(torch.randn(4), torch.randn(4))
    (graph,) = folder.iterdir()
    assert (graph / "error.txt").exists()


# ---- reproductions ---------------------------------------------------------------------------------------


def in_place(x):
    x[:, 1:].mul_(2)
    return x.sum(0)


def slices_and_constants(x):
    y = x[..., None, ::2] * float("inf") + float("-inf")
    return torch.nn.functional.pad(y, (1, 1), value=float("nan")), x.to(
        torch.float64, memory_format=torch.contiguous_format
    )


def factories(x):
    return x + torch.zeros(4, dtype=torch.float32, device=torch.device("cpu")), torch.arange(3)


def several_results(x):
    values, indices = x.max(-1)
    first, second = x.chunk(2)
    return values, indices, first + second


def index(x):
    return torch.nn.functional.embedding(torch.tensor([3, 0, 3]), x), x[x.argmax(0)]


@framejit.allow_in_graph
def doubled(x):
    return x * 2


@pytest.mark.parametrize(
    "fn",
    [
        in_place, slices_and_constants, factories, several_results, index,
        lambda x: (torch.softmax(x @ x, -1), x.cumsum(0)),
    ],
)
def test_a_reproduction_runs_the_same_graph(folder, capsys, fn):
    graph = written(folder, fn, torch.randn(4, 4))
    runpy.run_path(str(graph / "reproduce.py"), run_name="__main__")
    said = capsys.readouterr().out.splitlines()
    assert len(said) > 2
    assert all(line.endswith(": the same") for line in said[1:])


def test_a_reproduction_has_the_same_operations(folder):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return framejit.backends.fuse.fuse(gm, inputs)

    framejit.optimize(slices_and_constants, backend=backend)(torch.randn(4, 4))
    (graph,) = folder.iterdir()
    again = runpy.run_path(str(graph / "reproduce.py"))["graph"]()
    nodes = [
        [(node.op, node.target, str(node.args), str(node.kwargs)) for node in gm.graph.nodes]
        for gm in (graphs[0], again)
    ]
    assert nodes[0] == nodes[1]


def test_a_reproduction_runs_on_its_own(folder):
    graph = written(folder, fused, torch.randn(8), torch.randn(8))
    ran = forked.run([str(graph / "reproduce.py")], timeout=120, cwd=graph)
    assert ran.returncode == 0, ran.stderr
    assert "output 0: the same" in ran.stdout


def test_a_reproduction_finds_a_difference(folder, capsys, monkeypatch):
    graph = written(folder, fused, torch.randn(8), torch.randn(8))
    from framejit.backends.fuse import backend

    def wrong(gm, inputs):
        backend.remember(gm, backend.CompiledGraph("graph", None))
        return lambda x, y: (gm.forward(x, y)[0] + 1,)

    monkeypatch.setattr(backend, "fuse_graph", wrong)
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(graph / "reproduce.py"), run_name="__main__")
    assert left.value.code == 1
    assert "output 0: Tensor-likes are not close" in capsys.readouterr().out


def test_a_reproduction_holds_layouts_and_no_values(folder):
    secret = 0.123456789
    base = torch.full((40,), secret)
    inputs = base.as_strided((4, 3), (1, 8), 5), base[:1].expand(4, 3), torch.tensor([[7], [9]])[[0, 1, 1, 0]]
    graph = written(folder, lambda x, y, i: x * y + i, *inputs)
    text = (graph / "reproduce.py").read_text()
    assert "0.1234" not in text
    made = runpy.run_path(str(graph / "reproduce.py"))["inputs"]()
    layouts = [{(t.shape, t.stride(), t.dtype, t.storage_offset()) for t in tensors} for tensors in (made, inputs)]
    assert layouts[0] == layouts[1]
    (whole_numbers,) = (t for t in made if t.dtype == torch.int64)
    assert int(whole_numbers.min()) >= 7
    assert int(whole_numbers.max()) <= 9


def test_a_reproduction_of_a_module_has_its_parameters_shapes_and_grad_mode(folder, capsys):
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU())
    with torch.no_grad():
        graph = written(folder, module, torch.randn(2, 4))
    assert "grad=False" in (graph / "reproduce.py").read_text()
    assert "(8, 4)" in (graph / "reproduce.py").read_text()
    with torch.no_grad():
        runpy.run_path(str(graph / "reproduce.py"), run_name="__main__")
    assert "1 kernel" in capsys.readouterr().out


def test_a_reproduction_brings_the_modes_along(folder, capsys):
    def fn(x):
        return x @ x + torch.ones(4)

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.set_default_dtype(torch.float64)
        try:
            graph = written(folder, fn, torch.randn(4, 4, dtype=torch.float32))
        finally:
            torch.set_default_dtype(torch.float32)
    assert (
        "compare(graph, inputs, grad=False, autocast={'cpu': torch.bfloat16}, default_dtype=torch.float64)"
        in (graph / "reproduce.py").read_text()
    )
    runpy.run_path(str(graph / "reproduce.py"), run_name="__main__")
    assert "output 0: the same" in capsys.readouterr().out
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert torch.get_default_dtype() == torch.float32


def test_what_has_no_importable_name_is_left_to_the_reader(folder):
    @framejit.allow_in_graph
    def local(x):
        return x * 2

    graph = written(folder, lambda x: local(x) + 1, torch.randn(4))
    text = (graph / "reproduce.py").read_text()
    compile(text, "reproduce.py", "exec")
    assert "# put in: <function" in text


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.bool, torch.uint8, torch.int64,
        torch.float8_e4m3fn,
    ],
)
def test_random_tensors_of_all_kinds(dtype):
    made = random_tensor((2, 3), (5, 1), dtype, "cpu", offset=2)
    assert (made.dtype, made.shape, made.stride(), made.storage_offset()) == (dtype, (2, 3), (5, 1), 2)
    assert random_tensor((2, 0), (1, 1), dtype, "cpu").shape == (2, 0)
