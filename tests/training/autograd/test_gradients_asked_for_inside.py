"""`torch.autograd.grad` within captured code."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from tests.training.autograd.steps import batch, both, loss_of, perceptron

from twins import leaf


def test_gradients_of_parameters():
    def step(module, x, y):
        loss = loss_of(module, x, y)
        return loss, torch.autograd.grad(loss, module.parameters())

    both(lambda: (perceptron(),), step, batch)


def test_gradients_of_what_is_in_between():
    def step(module, x, y):
        hidden = module[0](x)
        loss = F.cross_entropy(module[3](module[2](module[1](hidden))), y)
        (gradient,) = torch.autograd.grad(loss, hidden, retain_graph=True)
        loss.backward()
        return gradient, hidden.requires_grad, gradient.requires_grad

    both(lambda: (perceptron(),), step, batch)


@pytest.mark.parametrize("options", [{"allow_unused": True}, {"materialize_grads": True}, {}], ids=str)
def test_leaves_that_are_not_used(options):
    def step(v, w, x):
        return torch.autograd.grad((v * x).sum(), [v, w], **options)

    both(lambda: (leaf(3), leaf(3)), step, lambda: (leaf(3).detach(),), breaks=not options)


def test_leaves_that_captured_code_makes():
    def step(module, x):
        x = x.detach().requires_grad_()
        score = torch.logsumexp(module(x), -1).sum()
        (gradient,) = torch.autograd.grad(score, x)
        again = (x + gradient).detach().clone()
        again.requires_grad = True
        module(again).sum().backward()
        return gradient, again.grad, again.is_leaf, x

    both(lambda: (perceptron(),), step, lambda: batch()[:1])


LEAVES = [
    lambda x: torch.zeros(3, dtype=x.dtype, requires_grad=True),
    lambda x: torch.ones_like(x, requires_grad=True),
    lambda x: torch.tensor([1.0, 2.0, 3.0], dtype=x.dtype, requires_grad=True),
    lambda x: x.new_full((3,), 0.5, requires_grad=True),
    lambda x: torch.rand(3, dtype=x.dtype, requires_grad=True),
    lambda x: nn.Parameter(x.clone()),
    lambda x: nn.Parameter(x),
]


@pytest.mark.parametrize("make", LEAVES)
def test_leaves_that_are_made_as_such(make):
    def step(x):
        w = make(x)
        (first,) = torch.autograd.grad((w * x).exp().sum(), w, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), w)
        (w.square() * x).sum().backward()
        before = w.grad.clone()
        w.sum().backward()
        return first.detach(), second, before, w, w.grad, w.is_leaf

    both(tuple, step, lambda: (leaf(3).detach(),))


def test_a_leaf_that_is_made_where_no_gradients_are_wanted():
    def step(x):
        with torch.no_grad():
            w = torch.ones_like(x, requires_grad=True)
            apart = w * 2
        (w * x).sum().backward()
        return w.grad, apart.requires_grad

    both(tuple, step, lambda: (leaf(3).detach(),))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_model_that_is_made_and_trained(kind):
    def step(x, y):
        torch.manual_seed(3)
        layers = nn.Linear(6, 10, dtype=x.dtype), nn.Tanh(), nn.Linear(10, 3, dtype=x.dtype)
        module = nn.Sequential(*layers)
        optimizer = kind(module.parameters(), lr=0.1)
        losses = []
        for _ in range(2):
            optimizer.zero_grad()
            loss = loss_of(module, x, y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, [*module.parameters()], [p.grad for p in module.parameters()]

    both(tuple, step, batch)


def test_a_weight_that_is_sought():
    def step(x):
        w = torch.zeros_like(x, requires_grad=True)
        optimizer = torch.optim.Adam([w], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (w - x).square().sum().backward()
            optimizer.step()
        return w, w.grad

    both(tuple, step, lambda: (leaf(3).detach(),))


def test_what_a_leaf_is_made_of_wants_no_gradients():
    def step(x):
        inner = x.detach().requires_grad_()
        view = x[1:]
        (gradient,) = torch.autograd.grad((inner * inner).sum(), inner)
        return gradient, inner, x.requires_grad, view.requires_grad

    both(tuple, step, lambda: (leaf(4).detach(),))


def test_equations_of_derivatives():
    def make():
        module = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)).double()
        return module, torch.optim.Adam(module.parameters(), lr=1e-3)

    def step(module, optimizer, x):
        optimizer.zero_grad()
        x = x.clone().requires_grad_()
        u = module(x)
        (du,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
        (second,) = torch.autograd.grad(du[:, 0].sum(), x, create_graph=True)
        loss = (du[:, 1] + u[:, 0] * du[:, 0] - 0.01 * second[:, 0]).square().mean()
        loss.backward()
        optimizer.step()
        return loss, du

    both(make, step, lambda: (torch.randn(8, 2, dtype=torch.float64),))


def test_gradients_of_gradients_are_fused():
    def step(module, x):
        (gradient,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        return ((gradient.norm(2, dim=1) - 1) ** 2).mean()

    module, x = perceptron(), leaf(5, 6)
    compiled = framejit.optimize(step, backend="fuse", fullgraph=True)
    compiled(module, x).backward()
    reports = framejit.inspect(compiled).graphs
    assert reports and not any(report.reason for report in reports), reports


def test_learning_to_learn():
    def step(module, x, y):
        parameters = dict(module.named_parameters())
        loss = F.cross_entropy(torch.func.functional_call(module, parameters, (x,)), y)
        gradients = torch.autograd.grad(loss, [*parameters.values()], create_graph=True)
        moved = {name: p - 0.1 * g for (name, p), g in zip(parameters.items(), gradients)}
        loss = F.cross_entropy(torch.func.functional_call(module, moved, (x,)), y)
        loss.backward()
        return loss

    both(lambda: (perceptron(),), step, batch)
