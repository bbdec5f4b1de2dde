"""What can be missing or go wrong: the graph runs as ATen with one warning that names the kernel and the folder of
details; nothing is lost."""

from __future__ import annotations

import re
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
import torch
from torch import fx

import framejit
from framejit.backends.fuse.account.compiled_graph import recall
from framejit.backends.fuse.backend import fuse_graph
from framejit.backends.fuse.llvm import kernel as llvm_kernel
from framejit.errors import FramejitWarning
from framejit.fakes.light_torch import light

import forked


def program(x, y):
    x.add_(1)
    return (x * y).relu().sum(1)


def told(caught) -> list[str]:
    return [str(warning.message) for warning in caught if issubclass(warning.category, FramejitWarning)]


def calls_of(compiled, calls: int = 4) -> None:
    """Each call must do what eager does, its write into the argument included, once."""
    for rows in range(2, 2 + calls):
        x, y = torch.randn(rows // 2, 4), torch.randn(4)
        other = x.clone()
        torch.testing.assert_close(compiled(x, y), program(other, y))
        torch.testing.assert_close(x, other)


@pytest.fixture
def no_cache():
    with framejit.config.patch(cache_size=0):
        yield


@pytest.mark.parametrize(
    "error",
    [RuntimeError("LLVM ERROR: out of registers"), NotImplementedError("cast"), MemoryError(), AssertionError()],
)
def test_a_kernel_that_fails_to_compile(monkeypatch, no_cache, error):
    def fail(*args):
        raise error

    monkeypatch.setattr(llvm_kernel, "compile_cpu_kernel", fail)
    compiled = framejit.optimize(program)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            x, y = torch.randn(3, 4), torch.randn(4)
            other = x.clone()
            torch.testing.assert_close(compiled(x, y), program(other, y))
            torch.testing.assert_close(x, other)
    (message,) = told(caught)
    (graph,) = framejit.inspect(compiled).graphs
    assert re.search(r"sum\w*_\d+ failed with " + type(error).__name__, message)
    assert graph.reason in message
    folder = re.search(r"details in (.*)\)", message)
    assert folder is not None
    assert type(error).__name__ in (Path(folder[1]) / "error.txt").read_text()
    assert "relu" in (Path(folder[1]) / "graph.py").read_text()


def test_one_kernel_of_several_fails(monkeypatch, no_cache):
    compile_kernel, calls = llvm_kernel.compile_cpu_kernel, []

    def fail_later(kernel, *rest):
        calls.append(kernel.name)
        if len(calls) == 2:
            raise RuntimeError("the second")
        return compile_kernel(kernel, *rest)

    monkeypatch.setattr(llvm_kernel, "compile_cpu_kernel", fail_later)
    compiled = framejit.optimize(lambda x: (x.sin().sum() * 2, (x @ x).relu() + 1))
    x = torch.randn(5, 5)
    with pytest.warns(FramejitWarning, match="the second"):
        got = compiled(x)
    torch.testing.assert_close(got, (x.sin().sum() * 2, (x @ x).relu() + 1))
    assert len(calls) == 2


STAGES = [
    "backend.record_graph", "backend.run_passes", "compile_graph.lower_graph", "compile_graph.schedule",
    "compile_graph.build_plan",
]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_with_a_bug(monkeypatch, no_cache, stage):
    def fail(*args):
        raise KeyError("a bug")

    monkeypatch.setattr(f"framejit.backends.fuse.{stage}", fail)
    compiled = framejit.optimize(program)
    with pytest.warns(FramejitWarning, match="graph_.*KeyError"):
        calls_of(compiled)


def test_with_debug_the_error_comes_out(monkeypatch, no_cache):
    def fail(*args):
        raise RuntimeError("inner")

    monkeypatch.setattr(llvm_kernel, "compile_cpu_kernel", fail)
    gm, inputs = cuda_graph("cpu")
    with framejit.config.patch(debug=True), pytest.raises(framejit.errors.FramejitError, match="inner"):
        fuse_graph(gm, inputs)


def test_a_folder_that_cannot_be_written(monkeypatch, no_cache, tmp_path):
    def fail(*args):
        raise RuntimeError("no")

    monkeypatch.setattr(llvm_kernel, "compile_cpu_kernel", fail)
    (tmp_path / "file").write_text("")
    with (
        framejit.config.patch(artifacts=str(tmp_path / "file" / "below")),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        calls_of(framejit.optimize(program), calls=2)
    assert any("failed with RuntimeError" in message for message in told(caught))


def run_without(blocked: str, code: str) -> str:
    """The standard error of a process in which a package can't be imported."""
    start = f"""
        import sys
        class Blocked:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == {blocked!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name={blocked!r})
        sys.meta_path.insert(0, Blocked())
        import torch, framejit
    """
    done = forked.run(["-c", textwrap.dedent(start) + textwrap.dedent(code)], timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr


PROGRAMS = """
    f = framejit.optimize(lambda x: (x + 1).relu() * 2)
    g = framejit.optimize(lambda x: x.softmax(-1).sum(0))
    for n in range(2, 7):
        x = torch.randn(n, n)
        torch.testing.assert_close(f(x), (x + 1).relu() * 2)
        torch.testing.assert_close(g(x), x.softmax(-1).sum(0))
"""


def test_without_llvmlite():
    errors = run_without("llvmlite", PROGRAMS + "    print(framejit.status())\n")
    assert errors.count("FramejitWarning") == 1
    assert "No module named 'llvmlite'" in errors
    assert "details in" in errors


def test_without_triton_the_cpu_needs_nothing():
    errors = run_without("triton", PROGRAMS + "    assert framejit.inspect(f).n_kernels\n")
    assert "FramejitWarning" not in errors


def cuda_graph(device: str) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """A graph of one input that is said to be on a device, and that input as a fake."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with light(), FakeTensorMode(allow_fallback_kernels=False):
        fake = torch.empty(8, 8, device=device)
    graph = fx.Graph()
    node = graph.placeholder("x")
    node.meta["val"] = fake
    graph.output((graph.call_function(torch.relu, (graph.call_function(torch.add, (node, 1)),)),))
    return fx.GraphModule(torch.nn.Module(), graph), [fake]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a driver")
def test_without_a_driver():
    gm, inputs = cuda_graph("cuda")
    with pytest.warns(FramejitWarning, match=r"ATen.*details in") as caught:
        compiled = fuse_graph(gm, inputs)
    assert compiled == gm.forward
    assert len(told(caught)) == 1


def test_without_triton_a_gpu_runs_aten(monkeypatch, no_cache):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    from framejit.backends.fuse import triton as package
    from framejit.backends.fuse.triton import compile as compiling

    # importing it anew, below, would leave the package with the new one
    monkeypatch.setattr(package, "compile", compiling)
    monkeypatch.setitem(sys.modules, "triton", None)
    for module in [name for name in sys.modules if name.startswith("framejit.backends.fuse.triton.compile")]:
        monkeypatch.delitem(sys.modules, module)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            gm, inputs = cuda_graph("cuda")
            compiled = fuse_graph(gm, inputs)
            assert compiled == gm.forward
            account = recall(compiled)
            assert account is not None
            assert "triton" in account.reason
    (message,) = told(caught)
    assert "details in" in message


def test_numbers_on_the_cpu_among_cuda_tensors_are_lowered():
    """A tensor of no dimensions may stay on the CPU; kernels on a GPU can't read it there."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from tests.fuse.stages import lower

    with light(), FakeTensorMode(allow_fallback_kernels=False):
        fakes = [torch.empty(8, device="cuda"), torch.empty(())]
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{position}") for position in range(2)]
    for node, fake in zip(nodes, fakes):
        node.meta["val"] = fake
    calls = [graph.call_function(function, tuple(nodes)) for function in (torch.mul, torch.add, torch.maximum)]
    graph.output((*calls, graph.call_function(torch.sin, (nodes[1],))))
    lowered = lower(fx.GraphModule(torch.nn.Module(), graph), fakes)
    assert [output.buffer.device.type for output in lowered.outputs] == ["cuda", "cuda", "cuda", "cpu"]
    for node in lowered.nodes:
        if hasattr(node, "stores"):
            devices = {lowered.buffers[name].device.type for name in (*node.reads, *node.writes)}
            assert len(devices) == 1, f"one kernel for {devices}"


def test_out_of_memory_in_a_plan():
    huge = 1 << 50

    def program(x):
        x.add_(1)
        return (x.expand(huge, 4) * 2).relu()

    compiled, x, other = framejit.optimize(program), torch.zeros(4), torch.zeros(4)
    with pytest.raises(RuntimeError, match="allocate") as expected:
        program(other)
    for _ in range(3):
        before = x.clone()
        with pytest.raises(type(expected.value), match="allocate"):
            compiled(x)
        assert torch.equal(x, before + 1)
    calls_of(framejit.optimize(globals()["program"]))


def test_an_exception_of_an_operation_leaves_nothing_behind():
    """A plan that raises in the middle has let go of what it had made, and runs again."""

    def program(x, index):
        y = x * 2
        return torch.index_select(y.exp() + 1, 0, index) + 1

    compiled = framejit.optimize(program)
    x = torch.randn(5)
    good, bad = torch.tensor([1, 2]), torch.tensor([1, 9])
    for _ in range(6):
        with pytest.raises((IndexError, RuntimeError), match="range"):
            compiled(x, bad)
        torch.testing.assert_close(compiled(x, good), program(x, good))
