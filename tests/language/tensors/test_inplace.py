"""In-place tensor methods on intermediates, arguments, views and aliases."""
import pytest
import torch

import framejit

from support import Pair, check

X = torch.tensor([1.0, -2.0, 3.0, 4.0])


def test_methods_on_an_intermediate():
    check(lambda x: x.clone().add_(1).mul_(2).relu_().clamp_(0, 5), X)


def test_argument_is_updated_and_returned_itself():
    check(lambda x: x.add_(1), X)


def test_view_of_an_argument():
    def fn(x):
        x[1:3].zero_()
        x.view(2, 2)[0].add_(10)
        return x * 2

    check(fn, X)


def test_two_arguments_that_alias():
    x = X.clone()

    def fn(a, b):
        a.add_(1)
        return b * 2

    check(fn, x, x[:2], changed=[(X.clone(), X.clone()[:2])])


def test_same_tensor_twice():
    x = X.clone()
    check(lambda a, b: a.add_(b) + b, x, x, changed=[(X.clone(), X.clone())])


def test_order_of_read_and_write():
    def fn(x):
        before = x * 2
        x.add_(1)
        after = x * 2
        return before, after

    check(fn, X)


def test_copy_fill_and_swap():
    def fn(x, y):
        t = x.clone()
        x.copy_(y)
        y.copy_(t)
        t.fill_(7)
        return t

    check(fn, X, X * 3)


def test_in_place_on_buffers_under_no_grad():
    def fn(running, x):
        with torch.no_grad():
            running.mul_(0.9).add_(x.mean(), alpha=0.1)
        return x - running

    check(fn, torch.zeros(1), X)


def test_resize_and_metadata_changes_of_an_argument():
    check(lambda x: (x.unsqueeze_(0), x.shape), X, graphs=range(1, 3), breaks=range(0, 2))
    check(lambda x: (x.t_() + 1, x.shape), torch.randn(2, 3), graphs=range(1, 3), breaks=range(0, 2))


def test_requires_grad_inplace_on_an_intermediate():
    def fn(x):
        y = (x * 2).requires_grad_()
        return y, (y * 3).sum()

    check(fn, X, graphs=range(1, 3), breaks=range(0, 2))


def test_set_data():
    def fn(p, x):
        p.data = x * 2
        return p + 1

    check(fn, torch.nn.Parameter(X.clone()), X, graphs=range(1, 3), breaks=range(0, 2))


def test_scatter_and_index_add():
    def fn(x):
        out = torch.zeros(3)
        out.index_add_(0, torch.tensor([0, 1, 1, 2]), x)
        out.scatter_(0, torch.tensor([2]), 9.0)
        return out.scatter_add(0, torch.tensor([0]), x[:1])

    check(fn, X)


def test_leaf_that_requires_grad_refuses_as_in_eager():
    check(lambda p: p.add_(1), X.clone().requires_grad_(), raises=RuntimeError, calls=1)


def test_results_of_one_call_are_not_overwritten_by_the_next():
    pair = check(lambda x: (x + 1, x[:2]), X)
    first, _ = pair.call(X)
    kept = first.clone()
    pair.call(X * 100)
    assert torch.equal(first, kept)


def test_detach_in_place_of_what_may_be_a_view():
    def fn(x):
        x.detach_()
        return x * 2

    base, weight = torch.arange(4.0), torch.ones(4, requires_grad=True)
    pair = Pair(lambda: fn)
    for x in (base, base[1:], base.view(2, 2)):
        pair.call(x)
    fast = framejit.optimize(fn, backend="eager")
    assert not fast(weight * 2).requires_grad
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        fast((weight * 2)[1:])
