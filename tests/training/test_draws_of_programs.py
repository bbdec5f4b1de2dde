"""Numbers that Python, numpy and generators of the program draw, in graphs that gradients go through: each draw is made
once, and drawn again alike where a graph is run again."""
from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import framejit

from support import CountingBackend

OWN, RNG, PYTHON = torch.Generator(), np.random.default_rng(0), random.Random(0)
WEAK = bool(torch.Generator.__weakrefoffset__)  # graphs know none of the program's otherwise

DRAWS = {
    "random": lambda: random.uniform(0.5, 1.5),
    "several of random": lambda: random.sample([0.5, 1.5, 2.5], 2)[1],
    "random.Random": lambda: PYTHON.gauss(1.0, 0.1),
    "np.random": lambda: np.random.beta(0.4, 0.4),
    "an array": lambda: torch.from_numpy(np.random.uniform(0.5, 1.5, 3)),
    "default_rng": lambda: RNG.uniform(0.5, 1.5),
    "an array of default_rng": lambda: torch.from_numpy(RNG.normal(1.0, 0.1, 3)),
    "torch.Generator": lambda: torch.rand(3, generator=OWN, dtype=torch.float64),
    "all of them": lambda: random.random() * np.random.rand() * RNG.random() * torch.rand(3, dtype=torch.float64),
}


def seed(number):
    torch.default_generator.manual_seed(number)
    random.seed(number)
    np.random.seed(number)
    OWN.manual_seed(number)
    PYTHON.seed(number)
    RNG.bit_generator.state = np.random.default_rng(number).bit_generator.state


def states():
    return (
        random.getstate(), str(np.random.get_state()), OWN.get_state().tolist(), PYTHON.getstate(),
        str(RNG.bit_generator.state), torch.default_generator.get_state().tolist(),
    )


def both(fn, use, graphs=1):
    """What `use(function, x, weight)` gives, eager and compiled, and the states behind it."""
    fast = framejit.optimize(fn, backend="fuse")
    for number in range(3):
        found = []
        for function in (fn, fast):
            seed(number)
            x = torch.linspace(-1, 1, 3, dtype=torch.float64).requires_grad_()
            weight = torch.linspace(1, 2, 3, dtype=torch.float64).requires_grad_()
            found.append((use(function, x, weight), states()))
        torch.testing.assert_close(found[0][0], found[1][0])
        assert found[0][1] == found[1][1]
    reports = framejit.inspect(fast).graphs
    if graphs is not None:
        assert len(reports) >= graphs and not any(report.reason for report in reports)


def first_order(function, x, weight):
    y = function(x, weight)
    y.sum().backward()
    return y.detach(), x.grad, weight.grad


def second_order(function, x, weight):
    y = function(x, weight)
    random.random(), np.random.rand(), OWN.seed  # drawn between the forward and what runs it again
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return [y.detach(), first.detach(), *torch.autograd.grad(first.sum(), (x, weight))]


def batched(function, x, weight):
    y = function(x, weight)
    RNG.random(), PYTHON.random()
    return torch.autograd.grad(y, (x, weight), torch.eye(3, dtype=torch.float64), is_grads_batched=True)


@pytest.mark.parametrize("use", [first_order, second_order, batched])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_gradients(draw, use):
    def fn(x, weight):
        scale = draw()
        return (x * weight * scale).sin() * scale

    both(fn, use, graphs=None)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_one_graph(draw):
    def fn(x):
        return ((x * draw()).sin() * draw()).sum()

    backend = CountingBackend()
    fast = framejit.optimize(fn, backend=backend)
    for _ in range(3):
        fast(torch.ones(3, dtype=torch.float64).requires_grad_()).backward()
    assert len(backend.graphs) == 1 or not WEAK and draw is DRAWS["torch.Generator"]


def test_what_is_drawn_of_a_tensor_with_gradients():
    def of_mean(x, weight):
        return torch.normal(x * weight, 0.1, generator=OWN) * weight

    def into(x, weight):
        y = x * weight
        return y.normal_(generator=OWN) * weight

    def chosen(x, weight):
        return torch.bernoulli(x.sigmoid(), generator=OWN) * weight * x

    for fn in (of_mean, into, chosen):
        both(fn, lambda function, x, weight: torch.autograd.grad(function(x, weight).sum(), weight), graphs=None)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_that_draws(reentrant):
    def fn(x, weight):
        return checkpoint(lambda y: (y * weight).sin() * torch.rand(3), x * random.random(), use_reentrant=reentrant)

    both(fn, first_order, graphs=None)

    def inside(x, weight):
        return checkpoint(lambda y: y * weight + random.random(), x, use_reentrant=reentrant)

    both(inside, first_order, graphs=None)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_steps_of_training_with_mixup(backend):
    def run(compiled):
        seed(5)
        module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        for parameter in module.parameters():
            torch.nn.init.uniform_(parameter, -1, 1, OWN)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

        def step(x, target):
            lam = float(np.random.beta(0.4, 0.4))
            order = torch.from_numpy(RNG.permutation(len(x)))
            if random.random() < 0.5:
                x = x.flip(-1)
            out = module(lam * x + (1 - lam) * x[order])
            loss = torch.nn.functional
            return lam * loss.cross_entropy(out, target) + (1 - lam) * loss.cross_entropy(out, target[order])

        step = framejit.optimize(step, backend=backend) if compiled else step
        losses = []
        for _ in range(4):
            loss = step(torch.arange(20.0).view(5, 4) / 10, torch.tensor([0, 1, 2, 0, 1]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, copy.deepcopy(module.state_dict()), states()

    expected, found = run(False), run(True)
    torch.testing.assert_close(expected[:2], found[:2], rtol=1e-4, atol=1e-5)
    assert expected[2] == found[2]
