"""Gradients of graphs that are fused are eager's, with changed state in later calls, too: whoever gives them or asks
for them."""

import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from tests.training.autograd.functions import chain, gradients

from twins import Twins, leaf, same


def test_gradients_accumulate():
    Twins(chain, leaf(4, 5), leaf(5, 3)).both(gradients)


def test_an_output_without_gradient_to_it():
    def fn(x, y):
        return x.exp() * 2, y.sin() * 3

    def use(fn, x, y):
        x.grad = y.grad = None
        first, _ = fn(x, y)
        first.sum().backward()
        return x.grad, y.grad

    twins = Twins(fn, leaf(4), leaf(4))
    twins.both(use)
    twins.both(gradients)
    twins.both(use)


def test_what_is_needed_only_by_the_other_output():
    def fn(x, y):
        h = (x @ y).relu()
        return h.sum(), (h * y).exp().mean()

    def only(which):
        return lambda fn, x, y: torch.autograd.grad(fn(x, y)[which], [x, y], allow_unused=True)

    twins = Twins(fn, leaf(3, 3), leaf(3, 3))
    for which in (1, 0, 1):
        twins.both(only(which), calls=2)


def test_outputs_without_gradients():
    Twins(lambda x: (x * 2, x.detach() + 1, (x > 0), 3), leaf(4)).both(gradients)


def test_an_input_that_is_passed_on():
    def fn(x, y):
        return x, (x * y).sum()

    def use(fn, x, y):
        out = fn(x, y)
        return out[0] is x, torch.autograd.grad(out[1] + out[0].sum(), [x, y])

    Twins(fn, leaf(4), leaf(4)).both(use)


def test_inputs_that_do_not_need_gradients():
    Twins(lambda x, w, n: (x @ w).sin() * n, torch.randn(3, 3, dtype=torch.float64), leaf(3, 3), 2).both(gradients)


def test_inputs_that_are_views():
    def use(fn, base):
        base.grad = None
        out = fn(base[:2].t(), base[2:] * 1.0)
        out.sum().backward()
        return out, base.grad

    Twins(lambda x, y: (x @ y).tanh(), leaf(4, 3)).both(use)


def test_gradients_of_another_layout():
    def use(fn, x):
        out = fn(x)
        return torch.autograd.grad(out, x, torch.arange(12.0, dtype=torch.float64).view(4, 3).t()), torch.autograd.grad(
            fn(x).sum(), x
        )

    Twins(lambda x: x.sin() * 2, leaf(3, 4)).both(use)


def test_two_backwards():
    def use(fn, x):
        x.grad = None
        out = fn(x).sum()
        out.backward(retain_graph=True)
        first = x.grad.clone()
        out.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            out.backward()
        return first, x.grad

    Twins(lambda x: x.exp() * x, leaf(4)).both(use)


def test_only_some_inputs_are_asked_for():
    def use(fn, x, w):
        return torch.autograd.grad(fn(x, w).sum(), w), x.grad, torch.autograd.grad(fn(x, w).sum(), [w, x])

    Twins(chain, leaf(4, 5), leaf(5, 3)).both(use)


def test_gradcheck():
    compiled = framejit.optimize(lambda x, w: F.layer_norm(F.silu(x @ w), (3,)).softmax(-1), backend="fuse")
    assert torch.autograd.gradcheck(compiled, (leaf(4, 5), leaf(5, 3)))
    assert torch.autograd.gradgradcheck(compiled, (leaf(4, 5), leaf(5, 3)))


def test_anomaly_mode():
    def use(fn, x):
        with torch.autograd.detect_anomaly(check_nan=True):
            return torch.autograd.grad(fn(x).sum(), x)

    twins = Twins(lambda x: x.exp() * 2, leaf(4))
    twins.both(gradients)
    twins.both(use)


def test_same_gradient_for_two_inputs_is_no_shared_memory():
    def use(fn, x, y):
        x.grad = y.grad = None
        fn(x, y).sum().backward()
        x.grad.add_(1)
        return x.grad, y.grad

    Twins(lambda x, y: (x + y).sin(), leaf(4), leaf(4)).both(use)


def test_other_values_are_seen():
    with pytest.raises(AssertionError):
        same((torch.ones(2),), (torch.zeros(2),))


def test_tensors_made_of_numbers_are_each_call_s_own():
    norm = nn.BatchNorm1d(4)

    def fn(x):
        norm(x * 2)  # what it counts lets no run be tried out first
        return torch.tensor(1), torch.tensor([2.0, 3.0])

    compiled = framejit.optimize(fn, backend="fuse")
    for _ in range(3):
        made = compiled(torch.randn(8, 4))
        for tensor in made:
            tensor.add_(1)
        assert [tensor.tolist() for tensor in made] == [2, [3.0, 4.0]]
        known = [weakref.ref(tensor) for tensor in made]
        del made, tensor
        assert [reference() for reference in known] == [None, None]


def test_gradients_that_are_pieces_of_others_are_not_added_to():
    def fn(x, y):
        return torch.cat([y, x])[3]

    def use(fn, x):
        x.grad = None
        fn(x, x[:]).backward()
        return x.grad, x.grad.storage_offset(), x.grad.untyped_storage().nbytes()

    Twins(fn, leaf(3)).both(lambda fn, x: use(fn, x))
