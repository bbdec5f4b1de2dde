"""Where gradients of many tensors end is what torch says of each."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import get_gradient_edge

from framejit.backends.fuse.autograd_nodes.gradient_edges import gradient_edges
from framejit.fakes.light_torch import light


def pairs(edges):
    return [(edge.node, edge.output_nr) for edge in edges]


def test_leaves_and_results_of_several_outputs():
    leaf, other = torch.ones(3, requires_grad=True), torch.ones(2, 2, requires_grad=True)
    tensors = [leaf, other * 2, *other.unbind(), leaf]
    with torch.no_grad():
        assert pairs(gradient_edges(tensors)) == pairs(map(get_gradient_edge, tensors))
    assert gradient_edges([]) == []


def test_fakes():
    with FakeTensorMode():
        tensors = [torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True).exp()]
    with light():
        assert pairs(gradient_edges(tensors)) == pairs(map(get_gradient_edge, tensors))
