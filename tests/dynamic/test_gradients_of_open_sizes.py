"""Captured code asks for gradients of tensors, and to tensors, whose sizes change: a last batch that is smaller, inputs
that are attacked, penalties on gradients. One graph for all sizes, as where sizes are assumed."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit

from support import of_kind, recorded, seed

SIZES = (5, 5, 6, 7, 9, 3, 1, 2, 8)


def penalty():
    critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1)).double()
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)

    def step(real):
        optimizer.zero_grad()
        share = torch.rand(real.size(0), 1, dtype=real.dtype)
        between = (share * real + (1 - share) * real.flip(0)).requires_grad_()
        score = critic(between)
        (found,) = torch.autograd.grad(score, between, torch.ones_like(score), create_graph=True)
        loss = critic(real).mean() + 10 * ((found.view(found.size(0), -1).norm(2, 1) - 1) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), found.detach()

    return step, critic


def residual():
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        x.requires_grad_()
        (first,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), x, create_graph=True)
        loss = ((first[:, 1] - second[:, 0]) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), x.grad

    return step, net


def attack():
    net = nn.Linear(4, 3).double()

    def run(x):
        x.requires_grad_()
        F.cross_entropy(net(x), x.argmax(1) % 3).backward()
        moved = (x + 0.1 * x.grad.sign()).detach()
        x.requires_grad_(False)
        return moved, net(moved).argmax(1), x.grad, x.requires_grad

    return run, net


def attack_in_steps():
    net = nn.Linear(4, 3).double()

    def run(x):
        moved = torch.zeros_like(x).uniform_(-1, 1).requires_grad_()
        for _ in range(3):
            (found,) = torch.autograd.grad(F.cross_entropy(net(x + moved), x.argmax(1) % 3), moved)
            moved.data = (moved.data + 0.5 * found.sign()).clamp(-1, 1)
        return (x + moved).detach(), moved.shape

    return run, net


def of_many_results():
    net = nn.Linear(4, 4).double()

    def run(x):
        net.zero_grad()
        y = net(x).relu()
        y.backward(torch.full_like(y, 2))
        return net.weight.grad.clone(), y.shape

    return run, net


def unused():
    def run(x):
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        found = torch.autograd.grad(
            [(a * 2).sum(0), (a * b).sum()], [a, b], [torch.ones(4, dtype=x.dtype), None], allow_unused=True
        )
        (none,) = torch.autograd.grad(a.sum(), [b], allow_unused=True)
        (zeros,) = torch.autograd.grad(a.sum(), [b], materialize_grads=True)
        return found, none, zeros

    return run, None


def hessian_times_vector():
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)).double()

    def run(x):
        a = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(net(a).sum(), a, create_graph=True)
        (second,) = torch.autograd.grad((first * x).sum(), a)
        return first.detach(), second

    return run, net


def langevin():
    def run(x):
        for _ in range(2):
            x = x.detach().requires_grad_()
            (found,) = torch.autograd.grad((x**4).sum() / 4 - (x**2).sum() / 2, [x])
            x = x - 0.01 * found + 0.1 * torch.randn_like(x)
        return x.detach()

    return run, None


def of_a_view():
    def run(x):
        part = x[x.shape[0] // 2 :].detach()
        part.requires_grad_()
        (part**2).sum().backward()
        return part.grad, x.requires_grad, part.is_leaf

    return run, None


def turned_on_and_off():
    def run(x):
        on = x.shape[0] % 2 == 0
        x.requires_grad_(on)
        found = torch.autograd.grad((x * 2).sum(), x)[0] if on else None
        x.requires_grad_(not on)
        return found, x.requires_grad

    return run, None


PROGRAMS = [
    penalty, residual, attack, attack_in_steps, of_many_results, unused, hessian_times_vector, langevin, of_a_view,
    turned_on_and_off,
]


def outcomes(make, optimize):
    seed(0)
    fn, net = make()
    run = optimize(fn)
    found = []
    for rows in SIZES:
        x = torch.randn(rows, 4, dtype=torch.float64)
        result = run(x)
        state = [] if net is None else [(p.detach().clone(), copy.deepcopy(p.grad)) for p in net.parameters()]
        found.append((result, x, x.grad, x.requires_grad, state))
    return found


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("make", PROGRAMS)
def test_of_sizes_that_change(make, backend):
    expected = outcomes(make, lambda fn: fn)
    compiled = []

    def optimize(fn):
        compiled.append(framejit.optimize(fn, backend=backend))
        return compiled[-1]

    with recorded() as log:
        found = outcomes(make, optimize)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert not of_kind(log, "graph_break") and not of_kind(log, "warning")
    # sizes that are known, states of an optimizer, sizes left open; one, of which torch knows more; odd and even ones
    assert len(compiled[0].entries) <= 5


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_what_raises(backend):
    def fn(x, y):
        a = x.clone().requires_grad_()
        (found,) = torch.autograd.grad(a * y, a, y[: len(y) - 1] if len(x) == 7 else y)
        return found

    fast = framejit.optimize(fn, backend=backend)
    for rows in (4, 5, 6, 7, 8):
        x, y = torch.randn(rows, 4), torch.randn(rows, 4)
        if rows == 7:
            for each in (fn, fast):
                with pytest.raises(RuntimeError, match="Mismatch in shape"):
                    each(x, y)
        else:
            torch.testing.assert_close(fast(x, y), fn(x, y))


@pytest.mark.parametrize("sizes", [((4, 6), (5, 7)), ((3, 4, 6), (2, 5, 7)), ((2, 4, 6, 8), (3, 8, 5, 7))])
@pytest.mark.parametrize(
    "step",
    [torch.relu, torch.tanh, F.hardswish, lambda x: torch.where(x > 0, x, 2.0), lambda x: torch.maximum(x, 1 - x)],
)
def test_gradients_lie_as_in_eager_where_what_comes_in_lies_otherwise(step, sizes, request):
    if "<lambda>1" in request.node.name and torch.__version__ >= "2.15":
        pytest.skip("the derivative of maximum has other operations for fakes there, in another order in memory")

    def fn(x):
        turned = x.to(memory_format=torch.channels_last) if x.dim() == 4 else x.transpose(0, -1)
        return step(turned * 2)

    fast = framejit.optimize(fn, dynamic=True)
    for shape in sizes:
        found = []
        for each in (fn, fast):
            x = torch.linspace(-1, 1, math.prod(shape)).reshape(shape).requires_grad_()
            result = each(x)
            (gradient,) = torch.autograd.grad(result, x, torch.ones(result.shape))
            found.append((result.stride(), gradient.stride()))
            torch.testing.assert_close(result, fn(x))
        assert found[1] == found[0]
