"""Small helpers of torch that captured code calls: checks of conditions, annotations, traced modules."""
import pytest
import torch
from torch import nn

from support import check

X = torch.rand(2, 3)
TRACED = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))


def checked(x):
    torch._check(x.shape[0] > 1, lambda: "too short")
    torch._check_value(x.dim() == 2)
    return x + 1


def annotated(x):
    return torch.jit.annotate(torch.Tensor, x) * 2


def traced(x):
    return TRACED(x) + 1


@pytest.mark.parametrize("fn", [checked, annotated, traced])
def test_one_graph(fn):
    check(fn, X, fullgraph=True)


def test_a_check_that_fails():
    for fn in (lambda x: torch._check(x.shape[0] > 5, lambda: f"{x.shape[0]} rows"), checked):
        check(fn, X[:1], raises=RuntimeError, traceback=False, calls=1)


def test_hooks_of_a_traced_module():
    module = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    module.register_forward_hook(lambda m, args, out: out + 1)
    check(lambda x: module(x), X, graphs=None, breaks=None, ops=None)
