"""`F.apply(x, number)` with a number that changes from call to call."""

import pytest
import torch
from torch import nn

import framejit
from tests.training.autograd.functions import Reversed

from support import seed

BACKENDS = ("eager", "fuse")


class Compared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, shift):
        ctx.numbers = scale, (shift, scale * 2)
        return x * scale + shift

    @staticmethod
    def backward(ctx, gradient):
        scale, (shift, double) = ctx.numbers
        if scale > 1.4:
            gradient = gradient * double
        return (gradient + shift) * scale, None, None


class Settings:
    scale = 1.0


class ReadAgain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx, gradient):
        return gradient * Settings.scale * ctx.scale, None


class ComparedAgain(ReadAgain):
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3 if Settings.scale > 2 else gradient, None


def outcomes(step, arguments):
    w = nn.Parameter(torch.arange(1.0, 4.0))
    found = []
    for given in arguments:
        found.append((step(w, *given).detach().clone(), w.grad.clone()))
        w.grad = None
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_is_one_graph_for_all_numbers(backend):
    def step(w, scale):
        result = Reversed.apply(w * 2, scale).tanh()
        result.sum().backward()
        return result

    arguments = [(0.1 * number,) for number in range(8)]
    compiled = framejit.optimize(step, backend=backend, fullgraph=True)
    torch.testing.assert_close(outcomes(compiled, arguments), outcomes(step, arguments))
    assert len(compiled.entries) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_backward_does_with_numbers(backend):
    def step(w, scale, shift):
        result = Compared.apply(w * 1, scale, shift)
        result.sum().backward()
        return result

    arguments = [(1 + number / 5, 1.5 - number / 2) for number in range(8)]
    arguments += [(1 + number / 5, 1 - number) for number in range(4)]
    compiled = framejit.optimize(step, backend=backend)
    torch.testing.assert_close(outcomes(compiled, arguments), outcomes(step, arguments))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [ReadAgain, ComparedAgain])
def test_a_number_that_a_backward_reads_is_the_one_that_is_there_then(backend, function):
    def step(w):
        return function.apply(w, Settings.scale)

    def outcomes_of(step):
        w, found = nn.Parameter(torch.ones(3)), []
        for number in range(6):
            Settings.scale = 1 + number / 4
            result = step(w)
            Settings.scale = 5.0 - number
            result.sum().backward()
            found.append((result.detach().clone(), w.grad.clone()))
            w.grad = None
        return found

    torch.testing.assert_close(outcomes_of(framejit.optimize(step, backend=backend)), outcomes_of(step))


def test_the_program_s_functions_are_given_numbers():
    seen = []

    class Drop(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, share):
            assert type(share) in (int, float)
            ctx.mask = (torch.rand_like(x) > share).to(x.dtype)
            ctx.share = share
            return x * ctx.mask

        @staticmethod
        def backward(ctx, gradient):
            seen.append(ctx.share)
            return gradient * ctx.mask, None

    def step(w, share):
        result = Drop.apply(w, share)
        result.sum().backward()
        return result

    arguments = [(share,) for share in (0.1, 0.3, 0.7, 0.9, -1, -2, -3)]
    found = []
    for each in (step, framejit.optimize(step)):
        seed(0)
        found.append((outcomes(each, arguments), [*seen]))
        seen.clear()
    torch.testing.assert_close(*found)


class Numbered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, number):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1).mul(7).round() / 7

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1), None


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_int_that_nothing_is_computed_with(backend):
    """The number of the step."""
    def step(w, x, number):
        loss = Numbered.apply(w * x, number).sum()
        loss.backward()
        return loss

    torch.manual_seed(0)
    arguments = [(torch.randn(3), number) for number in (1, 2, 3, 7, 2)]
    compiled = framejit.optimize(step, backend=backend)
    torch.testing.assert_close(outcomes(compiled, arguments), outcomes(step, arguments))
    (report,) = [each for each in framejit.status().functions if each.function.endswith("step")]
    assert not report.breaks and len(compiled.entries) <= 2
