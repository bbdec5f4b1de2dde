"""Tensors of more dimensions than guards compare: the graph breaks at them, and nothing is wrong."""

import pytest
import torch

import framejit


@pytest.mark.filterwarnings("error::framejit.errors.FramejitWarning")
@pytest.mark.parametrize("n", [63, 64, 65, 70])
def test_dimensions_of_an_input(n):
    def fn(x):
        return x + 1, x.dim()

    optimized = framejit.optimize(fn)
    for value in (1.0, 2.0):
        x = torch.full((1,) * n, value)
        (a, rank), (b, other) = fn(x), optimized(x)
        assert torch.equal(a, b) and rank == other == n


@pytest.mark.filterwarnings("error::framejit.errors.FramejitWarning")
def test_dimensions_of_what_is_made_inside():
    def fn(x):
        y = x.view((1,) * 66)
        framejit.graph_break()
        return y.sum() + 1

    optimized = framejit.optimize(fn)
    for value in (1.0, 2.0):
        assert torch.equal(optimized(torch.tensor([value])), torch.tensor(value + 1))
