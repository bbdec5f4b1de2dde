"""Gradients of gradients, and batches of gradients, of graphs that are fused: eager's."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from tests.training.autograd.functions import gradients

from twins import Twins, leaf, same


def test_gradients_of_gradients():
    def use(fn, x):
        (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        return first, torch.autograd.grad(first.square().sum(), x)

    twins = Twins(lambda x: x.exp() * x.sin(), leaf(4))
    twins.both(gradients)
    twins.both(use)
    twins.both(gradients)


def test_gradients_of_gradients_by_way_of_several_graphs():
    """What led to a graph's inputs, and the hooks on these, are none of its own."""

    def use(fn, x, w):
        seen = []
        y = fn(x, w)
        y.register_hook(lambda gradient: seen.append(gradient.detach().clone()) or gradient * 2)
        w.register_hook(lambda gradient: seen.append(gradient.detach().clone()))
        z = fn(fn(y, w) + y, y)
        first = torch.autograd.grad(z.sum(), [x, y], create_graph=True)
        return z, first, torch.autograd.grad(sum(f.square().sum() for f in first), [x, w]), seen

    twins = Twins(lambda x, w: x.exp() * w.sin() + x, leaf(4), leaf(4))
    twins.both(use)
    twins.both(use)
    twins.both(gradients)


def gradients_of_gradients(fn, x, *others):
    (first,) = torch.autograd.grad(fn(x, *others).float().sum(), x, create_graph=True)
    return first, torch.autograd.grad(first.square().sum(), x)


def test_gradients_of_gradients_of_random_numbers():
    """A gradient of gradients draws the forward's random numbers again, and generators go on as if it had not."""

    def use(fn, x):
        return gradients_of_gradients(fn, x), torch.rand(3)

    twins = Twins(lambda x: F.dropout(x.exp() * torch.rand_like(x)), leaf(50))
    twins.both(use)
    twins.both(use)


def test_gradients_of_gradients_of_statistics():
    """What a graph writes and results are not made of may have changed since, and is not written twice."""
    norm = nn.BatchNorm1d(4).double()

    def use(fn, x):
        norm.reset_running_stats()
        first, second = fn(x), fn(x * 2)
        (found,) = torch.autograd.grad((first.exp() + second).sum(), x, create_graph=True)
        return found, torch.autograd.grad(found.square().sum(), x), [t.clone() for t in norm.buffers()]

    twins = Twins(lambda x: norm(x) * x, leaf(6, 4))
    twins.both(use)
    twins.both(use)


def test_gradients_of_gradients_of_what_is_written():
    def fn(x, scale):
        scale.mul_(2)
        return x.exp() * scale

    Twins(fn, leaf(4), torch.ones(4, dtype=torch.float64)).both(gradients_of_gradients)


def test_gradients_of_gradients_where_the_program_switches_them_on():
    def fn(x):
        with torch.enable_grad():
            return x.exp() * x.sin()

    def use(fn, x):
        y = x * 2
        with torch.no_grad():
            out = fn(y)
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return first, torch.autograd.grad(first.square().sum(), x)

    twins = Twins(fn, leaf(4))
    twins.both(use)
    twins.both(gradients)


def test_gradients_of_gradients_outside_of_autocast():
    def use(fn, x):
        def within(x):
            with torch.autocast("cpu"):
                return fn(x)

        return gradients_of_gradients(within, x)

    def fn(x):
        return x @ x @ x

    # autocast rounds them to whole numbers, and products of these are exact
    x = (torch.randint(0, 3, (3, 3)) + 2**-12).requires_grad_()
    expected, got = (use(each, x) for each in (fn, framejit.optimize(fn)))
    assert all(number == round(number) for number in expected[0].flatten().tolist())
    torch.testing.assert_close(got[0], expected[0], rtol=0, atol=0)
    torch.testing.assert_close(got[1], expected[1], rtol=2**-7, atol=0)


def a_batch_by_autograd(results, w, gradients):
    return torch.autograd.grad(results, w, grad_outputs=[gradients, gradients], is_grads_batched=True)


def a_batch_by_vmap(results, w, gradients):
    return [torch.func.vmap(partial(asked_for, result, w))(gradients) for result in results]


def batches_of_batches(results, w, gradients):
    return torch.func.vmap(torch.func.vmap(partial(asked_for, results[0], w)))(torch.stack([gradients, gradients * 2]))


def asked_for(result, w, gradient):
    return torch.autograd.grad(result, w, gradient)[0]


@pytest.mark.parametrize("asked", [a_batch_by_autograd, a_batch_by_vmap, batches_of_batches])
@pytest.mark.parametrize("write", [False, True])
def test_batches_of_gradients(asked, write):
    """They have no memory that a kernel could read. What the graph draws and writes is drawn and written no more."""

    def fn(x, w):
        x = x.exp()
        if write:
            w = w.mul(1)
            w.add_(1)
        return F.dropout(w * x * w, 0.5), (w * x).tanh()

    def use(fn, x, w):
        return [asked(fn(x, w), w, torch.eye(3, dtype=torch.float64)), *gradients(fn, x, w), torch.rand(2)]

    Twins(fn, leaf(3), leaf(3)).both(use)


def test_jacobians_in_one_go():
    def use(fn, x):
        jacobian = torch.autograd.functional.jacobian(fn, x, vectorize=True)
        return jacobian, torch.autograd.functional.hessian(lambda x: fn(x).sum(), x, vectorize=True)

    Twins(lambda x: x.exp() * x.sum(), leaf(3)).both(use)


def by_hook(results, w):
    seen = []
    results[0].register_hook(lambda gradient: seen.append(gradient.detach().clone()))
    (gradient,) = torch.autograd.grad(results[-1].sum(), w, create_graph=True)
    gradient.square().sum().backward()
    return seen, w.grad


def by_keeping(results, w):
    results[0].retain_grad()
    (gradient,) = torch.autograd.grad(results[-1].sum(), w, create_graph=True)
    (gradient.square().sum() + results[-1].sum()).backward()
    kept = results[0].grad
    return None if kept is None else kept.detach(), w.grad


def by_asking(results, w):
    (gradient,) = torch.autograd.grad(results[-1].sum(), w, create_graph=True)
    return torch.autograd.grad(gradient.square().sum(), [results[0], w], allow_unused=True)


@pytest.mark.parametrize("use", [by_hook, by_keeping, by_asking])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: ((h := (x * w).tanh()), h.square().sum()),
        lambda x, w: ((h := (x * w).exp()), h * 2, (h * x).sum()),
        lambda x, w: ((x * w).exp(),),
        lambda x, w: ((h := (x * w).sigmoid()).t(), h.sin()),
        lambda x, w: ((h := (x * w).sigmoid()), (k := h.sin() * w), (k * k).sum()),
    ],
)
def test_gradients_of_gradients_at_results(fn, use):
    """They come to the results, too, by whose values eager's backward computes; in the first call as later, when the
    graph runs as ATen."""
    compiled = framejit.optimize(fn, backend="fuse")
    for number in range(3):
        outcomes = []
        for called in (fn, compiled):
            torch.manual_seed(number)
            x, w = torch.randn(3, 4, dtype=torch.float64), leaf(3, 4)
            outcomes.append(use(called(x, w), w))
        same(*outcomes)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


@pytest.mark.parametrize("by_name", [False, True])
def test_a_backward_that_must_not_be_differentiated_raises_where_all_gradients_are_asked_for(by_name):
    def use(fn, x):
        x.grad = None
        y = fn(x)  # is still there when its gradient is asked for
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        if by_name:
            return first, torch.autograd.grad(first.square().sum(), x)
        first.sum().backward()
        return first, x.grad

    Twins(lambda x: Once.apply(x.sin()).square().sum(), leaf(4)).both(use)


FORMULAS_THAT_LOOK_AT_NUMBERS = [
    lambda x: x.prod(), lambda x: (x**3).sum() + x.prod(), lambda x: x.cumprod(1).sum(),
    lambda x: torch.linalg.det(x @ x.mT), lambda x: x.prod(1).square().sum(),
]


@pytest.mark.parametrize("function", FORMULAS_THAT_LOOK_AT_NUMBERS)
@pytest.mark.parametrize("ask", ["grad", "func.grad", "func.vjp"])
def test_results_beside_gradients_whose_formulas_look_at_numbers(function, ask):
    """Of fakes, which have no numbers, autograd's graph is another one than that of a second run."""

    def program(x):
        out = function(x)
        if ask == "grad":
            return out, *torch.autograd.grad(out, x, create_graph=True)
        if ask == "func.grad":
            return out, torch.func.grad(function)(x)
        out, pulled_back = torch.func.vjp(function, x)
        return out, *pulled_back(torch.ones_like(out))

    def use(fn, x, number):
        out, gradient = fn(x)
        if number == 0:
            return torch.autograd.grad(gradient.sum(), x)
        if number == 1:
            return torch.autograd.grad(out, x, create_graph=True)
        return torch.autograd.grad(out.square() + gradient.square().sum(), x)

    x = (torch.rand(2, 3, dtype=torch.float64) + 0.5).requires_grad_()
    twins = Twins(program, x, fused=ask != "grad")
    for number in (2, 0, 1, 0, 2):
        twins.both(lambda fn, x, number=number: use(fn, x, number))
