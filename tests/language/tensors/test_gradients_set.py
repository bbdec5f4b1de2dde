"""`x.grad = ...` inside captured code: kept aside, and replayed after the graph."""
import pytest
import torch

import framejit

from comparison import assert_same
from support import ANY, Pair


def state():
    leaf = torch.ones(3, requires_grad=True)
    leaf.grad = torch.full((3,), 5.0)
    return leaf


def clears(x):
    x.grad = None
    return x * 2, x.grad is None


def sets(x):
    y = (x * 2).detach()
    x.grad = y
    x.grad.add_(1)
    return y, x.grad is y, x.grad + 1


def sets_twice(x):
    x.grad = torch.zeros(3)
    x.grad = x.detach() + x.grad
    return x * 1


def takes_over(x, y):
    x.grad, y.grad = y.grad, x.grad
    return x + y


def does_not_fit(x):
    try:
        x.grad = torch.zeros(2)
    except RuntimeError as e:
        return str(e), x + 1


def of_itself(x):
    try:
        x.grad = x
    except RuntimeError as e:
        return str(e), x + 1


@pytest.mark.parametrize("program", [clears, sets, sets_twice])
def test_a_gradient_is_set_in_the_graph(program):
    def make():
        leaf = state()
        return lambda x: program(leaf), lambda: (leaf, leaf.grad)

    pair = Pair(make)
    for _ in range(3):
        pair.call(torch.ones(1))
    pair.expect(graphs=ANY, breaks=0)


@pytest.mark.parametrize("program", [does_not_fit, of_itself])
def test_torch_refuses(program):
    pair = Pair(lambda: program)
    pair.call(torch.ones(3))


def test_gradients_are_exchanged():
    def make():
        a, b = state(), state()
        b.grad = torch.zeros(3)
        return lambda x: takes_over(a, b) + x, lambda: (a.grad, b.grad)

    pair = Pair(make)
    for _ in range(3):
        pair.call(torch.ones(3))
    pair.expect(breaks=0)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_of_what_was_made_inside(backend):
    def program(x):
        y = x.detach() * 2
        y.grad = x + 1
        z = x * 3
        z.grad = y.grad
        return y, y.grad, z

    fast = framejit.optimize(program, backend=backend, fullgraph=True)
    for n in range(3):
        x = torch.arange(3.0) + n
        y, gradient, z = fast(x)
        assert y.grad is gradient is z.grad
        assert_same(program(x), (y, gradient, z))
        assert_same(program(x)[0].grad, gradient)


def test_gradients_of_sizes_that_change():
    def fn(x):
        x.grad = x.detach() * 2
        return x.grad + 1

    compiled = framejit.optimize(fn, backend="eager", fullgraph=True)
    for n in (2, 3, 4, 5, 2):
        x = torch.ones(n, requires_grad=True)
        assert compiled(x).tolist() == [3.0] * n and x.grad.tolist() == [2.0] * n
