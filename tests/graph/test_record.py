"""From captured graphs to ATen operations."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import fx

import framejit
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.origin import Origin
from framejit.backends.fuse.graph.record import operations_of
from framejit.backends.fuse.lowering.whole import keeps
from framejit.backends.fuse.not_fusable import NotFusable
from tests.fuse.stages import passed

import forked


def traced(f, *args) -> Graph:
    """The graph of what is captured of a call, after all passes."""
    found: list[Graph | Exception] = []

    def backend(gm: fx.GraphModule, examples: list[torch.Tensor]):
        try:
            found.append(passed(gm, examples))
        except NotFusable as e:
            found.append(e)
        return gm.forward

    framejit.optimize(f, backend=backend)(*args)
    (result,) = found
    if isinstance(result, Exception):
        raise result
    return result


def names(result: Graph) -> list[str]:
    return [node.operation.name() for node in result.nodes]


def test_composite_operations_stay_whole_where_they_are_wanted():
    def f(x, w, b):
        return F.softmax(F.layer_norm(F.linear(x, w, b), (4,)), -1).contiguous()

    with torch.no_grad():
        assert names(traced(f, torch.randn(2, 3), torch.randn(4, 3), torch.randn(4))) == [
            "aten::linear", "aten::layer_norm", "aten::softmax.int",
        ]


def test_others_are_decomposed_as_eager_does():
    assert names(traced(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), torch.randn(1, 2, 3, 3))) == [
        "aten::upsample_bilinear2d"
    ]
    assert "aten::einsum" not in names(traced(lambda x: torch.einsum("ij,jk->ik", x, x), torch.randn(3, 3)))


def test_dropout_outside_of_training_is_nothing():
    assert names(traced(lambda x: F.dropout(x + 1, 0.5, False), torch.randn(3))) == ["aten::add.Tensor"]


def test_numbers_are_no_tensors_of_the_graph():
    result = traced(lambda x: x * torch.tensor(2.0) + torch.tensor([1.0, 2.0]), torch.randn(2))
    assert [constant.tensor.tolist() for constant in result.constants.values()] == [[1.0, 2.0]]


def test_inputs_that_share_memory_are_apart():
    base = torch.randn(4, 4)
    result = traced(lambda x, y: x + y, base, base.t())
    assert (
        len({value.storage for value in result.inputs}) == 2
        and len({value.fake.untyped_storage()._cdata for value in result.inputs}) == 2
    )


def test_origins_name_the_line_of_the_program():
    (node,) = traced(lambda x: x.sin(), torch.randn(2)).nodes
    assert node.origin.line.startswith("test_record.py:") and node.origin.line.endswith(
        "(node,) = traced(lambda x: x.sin(), torch.randn(2)).nodes"
    )


def test_an_origin_as_text():
    line = "backward of.py:3 in f: checkpoint 1: y"  # which says nothing of the operation
    assert (str(Origin()), str(Origin(line))) == ("", line)
    assert str(Origin(line, 2, True)) == f"backward of checkpoint 2: {line}"
    assert [str(Origin("", 2)), str(Origin("", 0, True)), str(Origin("", 2, True))] == [
        "checkpoint 2", "backward", "backward of checkpoint 2",
    ]


def test_grad_mode_is_as_before():
    def f(x, w):
        with torch.no_grad():
            y = x * w
        return y + 1

    w = torch.randn(3, requires_grad=True)
    assert names(traced(f, torch.randn(3), w)) == ["aten::mul.Tensor", "aten::add.Tensor"]
    assert torch.is_grad_enabled()
    with pytest.raises(NotFusable, match="gradients"):
        traced(lambda x, w: x * w, torch.randn(3), w)
    assert torch.is_grad_enabled()


def test_autocast_is_taken_into_the_operations():
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ w

    result = traced(f, torch.randn(3, 3), torch.randn(3, 3))
    assert (
        names(result) == ["aten::_to_copy", "aten::_to_copy", "aten::matmul"]
        and result.outputs[0].dtype == torch.bfloat16
    )
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("f", [lambda x: x.unsqueeze_(0) + 1, lambda x: torch.conj(x + 0j)])
def test_what_cannot_be_written_down(f):
    with pytest.raises(NotFusable):
        traced(f, torch.randn(3))


def test_an_error_leaves_the_thread_as_it_was():
    graph = fx.Graph()
    x = graph.placeholder("x")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x.meta["val"] = torch.empty(3)
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.output((graph.call_function(torch.mm, (x, x)),))
    with pytest.raises(NotFusable, match="mm"):
        operations_of(fx.GraphModule(torch.nn.Module(), graph), keeps)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("mode", [False, True])
def test_an_error_inside_inference_mode_leaves_the_thread_as_it_was(mode):
    """The end of inference mode puts back the dispatch keys of its start, which are the recording's own."""

    def f(x):
        with torch.inference_mode(mode):
            y = x * 2
            z = y * (x.detach() > 0).sum()
        return z.clone() + x

    expected = f(torch.ones(3, requires_grad=True))
    fused = framejit.optimize(f, backend="fuse")
    for _ in range(3):
        made = fused(torch.ones(3, requires_grad=True))
        assert torch.equal(made, expected) and made.requires_grad
        assert torch.ones(()) == 1 and not torch.is_inference_mode_enabled()


def test_dynamo_is_not_imported():
    program = """
import sys, torch, framejit
from framejit.backends.fuse.graph.passes.pipeline import run_passes
from framejit.backends.fuse.graph.origin import Origin
from framejit.backends.fuse.graph.record import record_graph
from framejit.backends.fuse.lowering.lower_graph import lower_graph
from framejit.backends.fuse.lowering.whole import keeps
def backend(gm, examples):
    lower_graph(run_passes(record_graph(gm, examples, keeps), gm, examples), False)
    return gm.forward
def fn(x):
    return torch.nn.functional.layer_norm(x.relu() @ x, (3,)).softmax(-1)
framejit.optimize(fn, backend=backend)(torch.randn(3, 3))
print([name for name in ("torch._dynamo", "sympy", "torch._inductor") if name in sys.modules])
"""
    done = forked.run(["-c", program], timeout=300)
    assert done.stdout.strip() == "[]", done.stderr
