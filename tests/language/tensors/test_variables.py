"""`torch.autograd.Variable(tensor)`: a tensor over the same memory, without history."""

import warnings

import pytest
import torch
from torch.autograd import Variable

import framejit

from comparison import assert_same
from support import check

X = torch.tensor([1.0, 2.0, 3.0])


def test_of_what_captured_code_makes_and_of_arguments():
    def fn(x):
        state, own = Variable(torch.zeros(3)), Variable(data=x)
        own.add_(1)
        return state + own, own, x * 1, own is x, type(own), own.requires_grad

    check(fn, X)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_gradients_end_at_it_and_begin_there(backend):
    def fn(x, weight):
        y = Variable(x * weight)
        leaf = Variable(weight, requires_grad=True)
        (leaf * y).sum().backward()
        return y, y.requires_grad, leaf.grad, leaf.is_leaf, weight.grad

    compiled, (before, weight) = framejit.optimize(fn, backend=backend, fullgraph=True), (X.clone(), X.clone())
    for _ in range(2):
        assert_same(fn(X, before.requires_grad_()), compiled(X, weight.requires_grad_()))


def test_a_leaf_that_leaves():
    def fn(x):
        leaf = Variable(x, True)
        return leaf, (leaf * 2).sum()

    leaf, total = framejit.optimize(fn, backend="eager", fullgraph=True)(X)
    total.backward()
    assert leaf.grad.tolist() == [2.0] * 3


def test_what_is_one():
    def fn(x, other):
        return x + 1, isinstance(x, Variable), isinstance(x * 2, Variable), isinstance(other, Variable)

    check(fn, X, 1.5, changed=[(X, None), (X, X)])


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_its_sizes_may_be_changed_in_place(backend):
    """Those of what `detach()` gives may not."""
    made = framejit.optimize(lambda x: Variable(x), backend=backend)(X.clone())
    assert made.resize_(2).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("arguments", [{"requires_grad": None}, {"names": 1}, {"requires_grad": True}])
def test_what_it_refuses(arguments):
    check(lambda x: Variable(x + 1, **arguments), X.long(), raises=Exception)


def test_of_no_tensor():
    check(lambda x: (x + 1, Variable().shape), X, breaks=1)
    check(lambda x: (x + 1, Variable([1.0])), X, raises=TypeError)


def test_the_warning_of_a_volatile_one_stays():
    def fn(x):
        return Variable(x + 1, volatile=True) * 2

    compiled = framejit.optimize(fn, backend="eager")
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert compiled(X).tolist() == fn(X).tolist()
        assert len(caught) == 2
