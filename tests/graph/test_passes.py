"""The passes over graphs: what each does to a small one, how they are switched off, and what becomes of one that
raises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import framejit
from framejit.backends.fuse.backend import fuse_graph
from framejit.backends.fuse.cache.folding_record import folding_of
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.graph_text import text_of
from framejit.backends.fuse.graph.passes import pipeline
from framejit.backends.fuse.graph.passes.pass_context import Context
from framejit.backends.fuse.graph.passes.pipeline import PASSES, Pass, run_passes
from framejit.backends.fuse.graph.record import record_graph
from framejit.backends.fuse.lowering.whole import keeps
from framejit.backends.fuse.not_fusable import PassFailed
from framejit.errors import FramejitWarning
from framejit.fakes.light_torch import light


def after(name: str, f, *args, **options) -> tuple[list[str], list[str], Graph]:
    """The operations in front of a pass (after those before it) and behind it, and the graph then."""
    found = []

    def backend(gm: fx.GraphModule, examples: list[torch.Tensor]):
        graph, context = record_graph(gm, examples, keeps), Context(gm, examples)
        for each in PASSES:
            before = [node.name for node in graph.nodes]
            graph = each.run(graph, context)
            pipeline.checked(graph)
            if each.name == name:
                found.append((before, [node.name for node in graph.nodes], graph))
                break
        return gm.forward

    backend.frozen_weights = True  # type: ignore[attr-defined]
    framejit.optimize(f, backend=backend, **options)(*args)
    (only,) = found
    return only


@pytest.fixture(autouse=True)
def no_cache():
    with torch.no_grad(), framejit.config.patch(cache_size=0):
        yield


def module_of(f) -> fx.GraphModule:
    """The graph of a function of one tensor of three elements."""
    gm = fx.symbolic_trace(f)
    with light(), FakeTensorMode(allow_fallback_kernels=False):
        next(iter(gm.graph.nodes)).meta["val"] = torch.empty(3)
    return gm


# ---- what each does -------------------------------------------------------------------------------------


def test_decompose():
    def f(x):
        return F.pairwise_distance(x, x.flip(0)).softmax(-1)

    before, behind, graph = after("decompose", f, torch.randn(2, 3))
    assert before == ["flip", "pairwise_distance", "softmax"]
    # softmax is lowered whole
    assert behind[0] == "flip" and behind[-1] == "softmax" and {"sub", "norm"} <= set(behind)
    assert not any(node.parts for node in graph.nodes)


def test_decompose_goes_into_what_it_finds():
    before, behind, _ = after("decompose", lambda x: torch.einsum("ij,jk->ik", x, x), torch.randn(3, 3))
    assert before == ["einsum"] and "reshape" not in behind and "bmm" in behind


def test_autocast_converts_the_parts_of_what_it_does_not_know():
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.pairwise_distance(x, x), torch.einsum("ij,jk->ik", x, w)

    before, behind, graph = after("autocast", f, torch.randn(3, 3), torch.randn(3, 3))
    assert before == ["pairwise_distance", "einsum"]
    assert "_to_copy" in behind and "bmm" in behind and graph.outputs[1].dtype == torch.bfloat16
    assert not any(node.autocast for node in graph.all_nodes())


def test_numbers():
    before, behind, graph = after("numbers", lambda x: x * torch.tensor(2.0) + torch.tensor([1.0, 2.0]), torch.randn(2))
    assert before == ["lift_fresh", "mul", "lift_fresh", "add"] and behind == ["scalar_tensor", "mul", "clone", "add"]
    assert [constant.tensor.tolist() for constant in graph.constants.values()] == [[1.0, 2.0]]


def test_dropout():
    def f(x):
        return torch.dropout_(F.dropout(x + 1, 0.5, False), 0.5, False), F.dropout(x, 0.5, True)

    before, behind, _ = after("dropout", f, torch.randn(3))
    assert before.count("dropout") == 2 and "dropout_" in before and behind == ["add", "dropout"]


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()


def test_fold_norms():
    before, behind, graph = after("fold_norms", network(), torch.randn(1, 3, 8, 8), freeze=True)
    assert before == ["conv2d", "batch_norm"] and behind == ["conv2d"] and folding_of(graph).folded_norms() == 1
    assert sum(constant.made is not None for constant in graph.constants.values()) == 2
    assert after("fold_norms", network(), torch.randn(1, 3, 8, 8))[1] == ["conv2d", "batch_norm"]


def test_freeze():
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 3))

        def forward(self, x):
            return x @ (self.weight * 2).t()

    before, behind, graph = after("freeze", Doubled(), torch.randn(2, 3), freeze=True)
    assert before == ["mul", "t", "matmul"] and behind == ["t", "matmul"]
    (constant,) = graph.constants.values()
    assert constant.made is not None
    assert after("freeze", Doubled(), torch.randn(2, 3))[1] == before


# ---- switched off ---------------------------------------------------------------------------------------


def program(x):
    y = F.dropout(x, 0.5, False)
    y = y.clone().reshape(-1).clamp_(min=0)
    return (
        F.pairwise_distance(y[None], x.flip(0).reshape(1, -1)),
        y.view(x.shape),
        torch.einsum("ij,kj->ik", x, x).relu_(),
    )


@pytest.mark.parametrize("name", [each.name for each in PASSES if not each.needed])
def test_results_are_the_same_without_a_pass(name):
    ran = []

    def observe(graph: Graph, context: Context) -> Graph:
        ran.append(name)
        return graph

    with framejit.config.patch(passes_off=name):
        passes = tuple(Pass(name, observe) if each.name == name else each for each in PASSES)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(pipeline, "PASSES", passes)
            for f, x in ((program, torch.randn(3, 4)), (network(), torch.randn(1, 3, 8, 8))):
                fast = framejit.optimize(f, freeze=True)
                for _ in range(3):
                    torch.testing.assert_close(fast(x), f(x), atol=1e-5, rtol=1e-5)
                (graph,) = framejit.inspect(fast).graphs
                assert not graph.reason
    assert not ran


def test_a_pass_that_is_off_leaves_what_it_would_have_changed():
    fast = framejit.optimize(lambda x: F.pairwise_distance(x, x.flip(0)))
    with framejit.config.patch(passes_off="decompose, dropout"):
        fast(torch.randn(3, 4))
    (graph,) = framejit.inspect(fast).graphs
    assert graph.externs == ("pairwise_distance.default",)


@pytest.mark.parametrize(
    "name, why",
    [
        ("numbers", "runs nevertheless: without it tensors that are made of numbers"),
        ("decompse", "did you mean 'decompose'"),
    ],
)
def test_what_cannot_be_switched_off_says_so_once(name, why):
    pipeline.switched_off.cache_clear()
    with framejit.config.patch(passes_off=name), pytest.warns(FramejitWarning, match=why) as caught:
        for _ in range(2):
            fast = framejit.optimize(lambda x: x * torch.tensor([2.0]))
            assert fast(torch.ones(1)).item() == 2
    assert len([warning for warning in caught if issubclass(warning.category, FramejitWarning)]) == 1


# ---- a pass that is wrong -------------------------------------------------------------------------------


def raising(graph: Graph, context: Context) -> Graph:
    graph.nodes.pop()
    raise KeyError("a bug")


def with_last(name: str, run) -> tuple[Pass, ...]:
    return (*PASSES, Pass(name, run))


def test_a_pass_that_raises_leaves_the_graph_to_aten(monkeypatch):
    monkeypatch.setattr(pipeline, "PASSES", with_last("wrong", raising))
    fast = framejit.optimize(lambda x: torch.einsum("ij,kj->ik", x, x).relu())
    x = torch.randn(3, 4)
    with pytest.warns(FramejitWarning, match="runs as ATen operations: the pass wrong failed with KeyError") as caught:
        for _ in range(3):
            torch.testing.assert_close(fast(x), torch.einsum("ij,kj->ik", x, x).relu())
    (message,) = [str(warning.message) for warning in caught if issubclass(warning.category, FramejitWarning)]
    folder = re.search(r"details in (.*)\)", message)
    assert folder is not None
    assert "aten.einsum" in (Path(folder[1]) / "graphs" / "0_recorded.txt").read_text()
    before = (Path(folder[1]) / "graphs" / "1_before_wrong.txt").read_text()
    assert "aten.einsum" not in before and "aten.bmm" in before and "aten.relu.default" in before


def test_with_debug_it_comes_out(monkeypatch):
    monkeypatch.setattr(pipeline, "PASSES", with_last("wrong", raising))
    gm = module_of(lambda x: (torch.relu(x),))
    with framejit.config.patch(debug=True), pytest.raises(PassFailed, match="the pass wrong failed"):
        fuse_graph(gm, [torch.ones(3)])


def test_a_pass_that_leaves_a_broken_graph_is_found(monkeypatch):
    def breaking(graph: Graph, context: Context) -> Graph:
        graph.nodes.reverse()
        return graph

    monkeypatch.setattr(pipeline, "PASSES", with_last("wrong", breaking))
    fast = framejit.optimize(lambda x: (x + 1).relu())
    with pytest.warns(
        FramejitWarning,
        match="the pass wrong failed with BrokenGraph: aten.relu.default uses a value before it is made",
    ):
        assert torch.equal(fast(torch.ones(2)), torch.full((2,), 2.0))


# ---- what is told ---------------------------------------------------------------------------------------


def test_each_graph_that_a_pass_changed_is_written_down(tmp_path):
    with framejit.config.patch(artifacts=str(tmp_path)):
        framejit.optimize(lambda x: F.dropout(torch.einsum("ij,kj->ik", x, x), 0.5, False))(torch.randn(3, 4))
    (folder,) = tmp_path.iterdir()
    assert sorted(path.name for path in (folder / "graphs").iterdir()) == [
        "0_recorded.txt", "1_decompose.txt", "2_dropout.txt",
    ]
    assert "aten.dropout" in (folder / "graphs" / "1_decompose.txt").read_text()
    assert "aten.dropout" not in (folder / "graphs" / "2_dropout.txt").read_text()


def test_passes_are_told_of_what_changed_only():
    gm = module_of(lambda x: (torch.relu(x),))
    told: list[str] = []
    graph = run_passes(
        record_graph(gm, [torch.ones(3)], keeps), gm, [torch.ones(3)], lambda name, text: told.append(name)
    )
    assert told == [] and "aten.relu.default" in str(text_of(graph))
