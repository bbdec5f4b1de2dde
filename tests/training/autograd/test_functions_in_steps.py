"""Gradients asked for in captured code that go through an `autograd.Function` of the program's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import framejit
from tests.training.autograd.steps import batch, both, loss_of

from support import seed
from twins import leaf, same


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, beta):
        ctx.save_for_backward(x)
        ctx.beta = beta
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.beta * x)
        return gradient * (s + ctx.beta * x * s * (1 - s)) * 3, None  # another one than autograd's


class Quantised(torch.autograd.Function):
    """With a result without a gradient, a tensor from elsewhere, and one argument that has no gradient."""

    @staticmethod
    def forward(ctx, x, scale):
        result = (x / scale).round()
        inside = result.abs() < LEVELS
        ctx.mark_non_differentiable(inside)
        ctx.inside = inside
        return result * scale, inside, x.exp()

    @staticmethod
    def backward(ctx, gradient, _, other):
        return gradient * ctx.inside + other, None


class Once(Swish):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return Swish.backward(ctx, gradient)


class Counting(Swish):
    calls = 0

    @staticmethod
    def backward(ctx, gradient):
        Counting.calls += 1
        return gradient * 2, None


LEVELS = torch.full((), 3.0, dtype=torch.float64)


class WithFunctions(nn.Module):
    def __init__(self, kind: type[torch.autograd.Function] = Swish) -> None:
        super().__init__()
        self.first, self.last, self.kind = nn.Linear(6, 4).double(), nn.Linear(4, 3).double(), kind
        self.mode = "sharp"
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        self.mode = "flat" if self.mode == "sharp" else "sharp"
        h = self.kind.apply(self.first(x), 1.5 if self.mode == "sharp" else 0.5)
        h, inside, more = Quantised.apply(h, 0.1)
        return self.last(h * inside + more)


def of_functions(kind: type[torch.autograd.Function]) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        module = WithFunctions(kind)
        return module, torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)

    return make


@pytest.mark.parametrize("early", [True, False])
def test_functions_with_backwards_of_their_own(early):
    def step(module, optimizer, x, y):
        if early:
            optimizer.zero_grad()
        loss = loss_of(module, x, y)
        if not early:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, module.mode, module.seen

    both(of_functions(Swish), step, batch, calls=7)
    both(of_functions(Once), step, batch, calls=7, breaks=True)  # changes are kept aside, and it asks for more
    both(of_functions(Counting), step, batch, calls=7, breaks=True)


def test_functions_where_nothing_is_kept_aside():
    def step(w, x):
        h, inside, more = Quantised.apply(Once.apply(x @ w, 1.5), 0.2)
        return torch.autograd.grad((h * 2 + more).square().mean(), w), h, inside

    both(lambda: (leaf(6, 4),), step, lambda: batch()[:1])


def test_gradients_of_gradients_of_functions():
    def step(w, x):
        w.grad = None
        (first,) = torch.autograd.grad(Swish.apply(x @ w, 1.5).sum(), w, create_graph=True)
        first.square().sum().backward()
        return first, w.grad

    both(lambda: (leaf(6, 4),), step, lambda: batch()[:1], breaks=True)


def test_a_gradient_of_what_functions_gave_before():
    def step(w, x):
        w.grad = None
        return Swish.apply(x @ w, 1.5)

    compiled = framejit.optimize(step, backend="fuse")
    w = [leaf(6, 4)] * 2
    for number in range(3):
        seed(number)
        (x, _), outcomes = batch(), []
        for fn, leaf_of in zip((step, compiled), w):
            result = fn(leaf_of, x)
            (first,) = torch.autograd.grad(result.square().sum(), leaf_of, create_graph=True)
            outcomes.append((result.detach(), first.detach(), torch.autograd.grad(first.square().sum(), leaf_of)))
        same(*outcomes)


class Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 5  # another one than autograd's


class Nested(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * Inner.apply(x) * 2


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("changes", [True, False])
def test_gradients_of_gradients_of_a_function_whose_backward_calls_another(backend, changes):
    def fn(x, seen):
        if changes:
            seen.append(len(seen))
        y = Nested.apply(x * 2)
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return gradient

    fast = framejit.optimize(fn, backend=backend)
    for n in range(3):
        x, found = torch.arange(4.0) + n, []
        for each in (fn, fast):
            mine, seen = x.clone().requires_grad_(), []
            gradient = each(mine, seen)
            (second,) = torch.autograd.grad(gradient.sum(), mine)
            found.append((gradient.detach(), second, seen))
        torch.testing.assert_close(found[1], found[0])
