"""What takes tens of instructions is computed once where many read it; what a library would do in a pass of its own is
part of what follows."""

import pytest
import torch
import torch.nn.functional as F

from framejit.backends.fuse.loop_ir.nodes import ComputeNode
from framejit.backends.fuse.lowering import lower_graph
from framejit.backends.fuse.lowering.operators.convolutions import lower_with_bias_apart
from framejit.backends.fuse.targets.cpu import CpuTarget
from tests.graph.test_layouts import lowered, on_gpu

from twins import Twins, leaf


def with_sines(graph):
    """The loop nests that find sines."""
    return [
        node
        for node in graph.nodes
        if isinstance(node, ComputeNode)
        and any(value.op == "sin" for store in node.stores for value in store.value.walk())
    ]


def test_sines_that_heads_share_are_found_once():
    def f(x, positions):
        angles = positions.float().unsqueeze(1)
        return (x * angles.sin(),)

    (node,) = with_sines(lowered(f, on_gpu(32, 64, 16), on_gpu(64, dtype=torch.int64)))
    assert node.parallel[0].size == 64 and len(node.parallel) == 1


def test_sines_that_several_layers_read_are_found_once():
    def f(x, y, positions):
        sines = (positions * 0.5 + 1).sin()  # of no more to read than they are
        return x * sines, (y + 1).sum(0), y * sines

    graph = lowered(f, on_gpu(64), on_gpu(64), on_gpu(64))
    assert len(with_sines(graph)) == 1


def test_sines_that_are_read_as_they_are_stay_where_they_are_read():
    def f(x, y):
        return (y * x.sin() + 1,)

    graph = lowered(f, on_gpu(64, 16), on_gpu(2, 64, 16))
    (node,) = with_sines(graph)
    assert len(graph.nodes) == 1 and len(node.stores) == 1


CONVOLUTIONS = {
    "conv1d": lambda x, w, b: F.conv1d(x[..., 0], w[..., 0], b, padding=1),
    "conv2d": lambda x, w, b: F.conv2d(x, w, bias=b, stride=2),
    "conv3d": lambda x, w, b: F.conv3d(x[None].transpose(1, 2), w[:, :, None], b),
    "transposed": lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2),
    "an image": lambda x, w, b: F.conv2d(x[0], w, b),
    "channels last": lambda x, w, b: F.conv2d(x.contiguous(memory_format=torch.channels_last), w, b, dilation=2),
    "in groups": lambda x, w, b: F.conv2d(x, w[:, :1], b, groups=6),
    "written later": lambda x, w, b: F.conv2d(x, w, b).add_(1).relu_(),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("with_gradients", [False, True])
def test_a_bias_that_is_added_apart_is_added(name, with_gradients, monkeypatch):
    monkeypatch.setattr(CpuTarget, "adds_bias_apart", True)
    apart = []

    def noted(*args):
        apart.append(lower_with_bias_apart(*args))
        return apart[-1]

    monkeypatch.setattr(lower_graph, "lower_with_bias_apart", noted)

    def fn(x, w, b):
        out = CONVOLUTIONS[name](x, w, b)
        return out.tanh(), out

    def gradients(fn, *inputs):
        results = fn(*inputs)
        return results, torch.autograd.grad([each.sum() for each in results], inputs)

    def values(fn, *inputs):
        return fn(*(each.detach() for each in inputs))

    inputs = [leaf(*sizes, dtype=torch.float32) for sizes in ((3, 6, 9, 8), (6, 6, 3, 3), (6,))]
    Twins(fn, *inputs).both(gradients if with_gradients else values)
    assert any(apart) == (name != "in groups")  # which has kernels in float32 that add it
