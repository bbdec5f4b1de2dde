"""`torch.autograd.functional` in captured code: its derivatives are operations of the graph."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import functional

from tests.training.autograd.steps import both

from support import check
from twins import leaf


def scaled(x):
    return (x**3).sin() * x.sum()


def summed(x):
    return (x**3).sum() + x.prod()


def direction(x):
    return torch.full_like(x, 0.5)


DERIVATIVES = {
    "jacobian": lambda x, **options: functional.jacobian(scaled, x, **options),
    "vjp": lambda x, **options: functional.vjp(scaled, x, direction(x), **options),
    "jvp": lambda x, **options: functional.jvp(scaled, x, direction(x), **options),
    "hessian": lambda x, **options: functional.hessian(summed, x, **options),
    "hvp": lambda x, **options: functional.hvp(summed, x, direction(x), **options),
    "vhp": lambda x, **options: functional.vhp(summed, x, direction(x), **options),
    "jacobian of two": lambda x, **options: functional.jacobian(lambda a, b: a.exp() * b, (x, x * 2), **options),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives(name, strict):
    def step(x):
        return DERIVATIVES[name](x, strict=strict)

    both(tuple, step, lambda: (leaf(2, 3).detach(),))


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_that_have_gradients(name):
    """What is differentiated is a parameter, and what comes of it is trained on."""

    def step(x):
        found = DERIVATIVES[name](x, create_graph=True)
        flat = torch.utils._pytree.tree_leaves(found)
        x.grad = None
        sum(each.square().sum() for each in flat).backward()
        return [each.detach() for each in flat], x.grad

    both(lambda: (leaf(2, 3),), step, tuple)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: functional.jacobian(lambda t: torch.zeros(2), x, strict=True),
        lambda x: functional.vjp(scaled, x, torch.zeros(7)),
        lambda x: functional.vjp(lambda t: 3, x),
        lambda x: functional.vjp(scaled, x),
        lambda x: functional.hessian(scaled, x),
    ],
)
def test_what_torch_refuses(program):
    check(lambda x: program(x * 2), torch.rand(2, 3), raises=(RuntimeError, TypeError))


def test_what_does_not_depend_on_what_is_differentiated():
    def step(x):
        return functional.jacobian(lambda t: torch.zeros(2), x)

    both(tuple, step, lambda: (leaf(2, 3).detach(),))


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_derivatives_in_batches(strategy):
    def program(x):
        return functional.jacobian(scaled, x, vectorize=True, strategy=strategy)

    check(program, torch.rand(2, 3), graphs=range(9), breaks=range(9))
