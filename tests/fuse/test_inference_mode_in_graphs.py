"""Graphs that enter inference mode are compiled in parts: kernels do what is inside, before and behind, and results are
such tensors as plain Python's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kept.processes import Run, one_folder

import framejit
from framejit.backends.fuse.backend import fuse_graph
from framejit.backends.fuse.in_parts import GraphInParts
from framejit.config import config

from comparison import assert_same

torch.manual_seed(0)
MODEL = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)).eval()
STUDENT = torch.nn.Linear(16, 16)


def all_of_it(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return MODEL(x)


@torch.inference_mode()
def decorated(x: torch.Tensor) -> torch.Tensor:
    return MODEL(x).softmax(-1)


def behind(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        logits = MODEL(x)
    return (logits.argmax(-1) == 3).float().mean()


def on_both_sides(x: torch.Tensor) -> Any:
    weights = x.softmax(-1) * 2 + 1
    with torch.inference_mode():
        inside = MODEL(x).softmax(-1)
        scale = (inside * 2).exp().sum(-1, keepdim=True)
    return (weights * inside).sum() + scale.sum(), inside, weights


def twice(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        first = MODEL(x).sigmoid()
    between = (first.detach() + 1) * x
    with torch.inference_mode():
        return first, between, MODEL(between).tanh() * 2


def nested(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        a = x.exp() * 2
        with torch.inference_mode(False):
            b = (x * 3).sin() + 1
        return a.sin() + b, a, b


def gradients_switched_inside(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        with torch.enable_grad():
            a = (MODEL(x) * 2).sin()
        b = (a + 1).cos()
    return a, b


def views(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        row = x[1:]
        scaled = (row * 2).t()
    return row, scaled, scaled[0].exp() + 1


def written(x: torch.Tensor) -> Any:
    y = x * 2 + 1
    with torch.inference_mode():
        y.mul_(3).add_(1)
        made = y.sin() * 2
    return y + 1, made


def of_sizes_that_data_decides(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        logits = MODEL(x).sigmoid() * 2
        kept = logits[torch.nonzero(logits.sum(-1) > 0).flatten()]
        kept = kept.sin() + kept.cos()
    return kept.exp() * 2 + 1, logits


def taught(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        target = MODEL(x).softmax(-1)
    loss = F.mse_loss(STUDENT(x).softmax(-1), target.clone())
    return torch.autograd.grad(loss, [*STUDENT.parameters()])


PROGRAMS = [
    all_of_it, decorated, behind, on_both_sides, twice, nested, gradients_switched_inside, views, written,
    of_sizes_that_data_decides, taught,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_kernels_do_what_is_inside_and_around(program: Any) -> None:
    compiled = framejit.optimize(program, backend="fuse", fullgraph=program is not of_sizes_that_data_decides)
    for rows in (6, 6, 9, 4):
        x = torch.randn(rows, 16)
        results, expected = compiled(x.clone()), program(x.clone())
        assert_same(results, expected, atol=1e-5, rtol=1e-4)
        for result, wanted in zip(results, expected) if isinstance(expected, tuple) else [(results, expected)]:
            assert (result.is_inference(), result.requires_grad) == (wanted.is_inference(), wanted.requires_grad)
        assert not torch.is_inference_mode_enabled()
    graphs = framejit.inspect(compiled).graphs
    assert graphs and not [graph.reason for graph in graphs if graph.reason]
    assert all(graph.kernels for graph in graphs)


def saves_what_it_must_not(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        target = MODEL(x)
    return STUDENT(x) * target


def writes_what_it_must_not(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        made = MODEL(x)
    return made.add_(1)


def raises_inside(x: torch.Tensor) -> Any:
    y = x * 2 + 1
    with torch.inference_mode():
        index = (y * 100).long().flatten()
        return MODEL(x)[index].sin()


def outcome(fn: Any, x: torch.Tensor) -> Any:
    try:
        return fn(x)
    except (RuntimeError, IndexError) as e:
        return type(e), str(e)


@pytest.mark.parametrize("program", [saves_what_it_must_not, writes_what_it_must_not, raises_inside])
def test_what_raises_leaves_the_mode(program: Any) -> None:
    compiled = framejit.optimize(program, backend="fuse")
    for _ in range(3):
        x = torch.rand(4, 16) + 1
        expected = outcome(program, x)
        assert isinstance(expected, tuple) and outcome(compiled, x) == expected
        assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()


def test_frozen_weights_inside() -> None:
    compiled = framejit.optimize(on_both_sides, backend="fuse", freeze=True)
    for _ in range(3):
        x = torch.randn(5, 16)
        assert_same(compiled(x), on_both_sides(x), atol=1e-5, rtol=1e-4)


SOURCE = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).eval()

args = [torch.ones(5, 8)]

def target(x):
    before = x.softmax(-1) * 2 + 1
    with torch.inference_mode():
        logits = model(x).sigmoid() * 2
        with torch.inference_mode(False):
            again = x.sin() * 2
    return before + logits.exp(), again, logits.is_inference()
"""


@pytest.mark.parametrize("around", [False, True])
def test_a_second_process_runs_the_same_kernels(tmp_path: Any, around: bool) -> None:
    with one_folder(tmp_path / "cache"), torch.inference_mode(around):
        assert Run(SOURCE, backend="fuse").captured
        second = Run(SOURCE, backend="fuse")
        assert not second.captured
        graphs = framejit.inspect(second.optimized).graphs
        assert graphs and all(graph.kernels for graph in graphs)


@pytest.mark.parametrize(("program", "ahead"), [(all_of_it, True), (behind, True), (on_both_sides, False)])
def test_what_a_graph_begins_with_is_compiled_before_it_runs(program: Any, ahead: bool) -> None:
    """So that no call waits for it where graphs are compiled in the background."""
    compiled_ahead = []

    def backend(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        made = fuse_graph(gm, inputs)
        assert isinstance(made, GraphInParts)
        compiled_ahead.append(made.parts[0].run is not None)
        return made

    compiled, x = framejit.optimize(program, backend=backend), torch.randn(8, 16)
    assert_same(compiled(x), program(x), atol=1e-5, rtol=1e-4)
    assert compiled_ahead == [ahead]


def test_tensors_that_ask_for_gradients_in_vain() -> None:
    """Autograd, which would record what a backward needs, does nothing here: that is no failure of a compiler."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        made = torch.ones(x.shape, requires_grad=True)
        x * made
        print(end="")
        return made

    compiled = framejit.optimize(fn, backend="fuse")
    with config.patch(debug=True):
        for mode in (False, True, True, False):
            for call in (fn, compiled):
                with torch.inference_mode(mode):
                    made = call(torch.ones(4).requires_grad_())
                assert made.requires_grad and made.is_leaf and made.is_inference() == mode
