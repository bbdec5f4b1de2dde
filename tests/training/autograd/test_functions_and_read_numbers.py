"""`F.apply(x, number)` with a number that was read from a tensor: a scale, a count, the outcome of a comparison."""

import pytest
import torch
from torch import nn

import framejit

from support import check_steps


class Rounded(torch.autograd.Function):
    """Straight through, within a range; what is behind `scale` may be left out."""

    @staticmethod
    def forward(ctx, x, scale, shift=None):
        ctx.save_for_backward(x)
        ctx.scale, ctx.rest = scale, (shift, "rest")
        return torch.clamp(torch.round(x / scale), -8, 7) * scale + (0 if shift is None else shift)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        shift = ctx.rest[0]
        return gradient * (x.abs() <= ctx.scale * 3) + (0 if shift is None else shift * 0.01), None, None


class Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor * 0.1, None


def by_scale(h, x):
    return Rounded.apply(h, (h.detach().abs().max() / 7).item())


def by_two_numbers(h, x):
    return Rounded.apply(h, x.abs().max().item() + 0.5, x.sum().item())


def by_one_number_twice(h, x):
    scale = x.abs().max().item()
    return Rounded.apply(Rounded.apply(h, scale, scale), scale)


def by_count(h, x):
    return Times.apply(h, (x > 0).sum().item())


def by_outcome(h, x):
    return Times.apply(h, bool(x.sum() > 0))


def by_int_of_float(h, x):
    return Times.apply(h, int(x.abs().sum()))


PROGRAMS = [by_scale, by_two_numbers, by_one_number_twice, by_count, by_outcome, by_int_of_float]


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_step_is_one_graph(program, backend):
    def outcomes(compile_step):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        optimiser = torch.optim.SGD(module.parameters(), lr=0.01)

        def step(x):
            optimiser.zero_grad()
            loss = module[2](program(module[1](module[0](x)), x)).square().mean()
            loss.backward()
            optimiser.step()
            return loss.detach()

        run = compile_step(step)
        return [(run(torch.randn(5, 4)), [p.grad.clone() for p in module.parameters()]) for _ in range(5)]

    check_steps(outcomes, backend, 2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_backward_outside(program):
    """The loss leaves captured code, and goes backwards later."""
    fast = framejit.optimize(lambda w, x: program(w * 2, x).sum(), backend="eager")
    for _ in range(3):
        x, w = torch.randn(5, 4), torch.randn(5, 4, requires_grad=True)
        expected = program(w * 2, x).sum()
        gradient = torch.autograd.grad(expected, w)
        loss = fast(w, x)
        assert torch.equal(loss, expected)
        assert torch.equal(*torch.autograd.grad(loss, w), *gradient)


def test_a_number_that_decides_is_read_outside():
    class Decides(Times):
        @staticmethod
        def backward(ctx, gradient):
            return gradient if ctx.factor > 0 else -gradient, None

    def step(w, x):
        loss = Decides.apply(w * 2, x.sum().item()).sum()
        loss.backward()
        return loss.detach()

    fast = framejit.optimize(step, backend="eager")
    for sign in (1, -1, 1):
        x, w = sign * torch.ones(3), torch.ones(3, requires_grad=True)
        other = torch.ones(3, requires_grad=True)
        assert torch.equal(fast(w, x), step(other, x))
        assert torch.equal(w.grad, other.grad)
