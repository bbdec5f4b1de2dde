"""Schedules: powers, quotients and functions of `math` of numbers that change from call to call, in one graph, with
Python's errors where it raises."""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import framejit

from comparison import assert_same
from support import Pair

FLOATS = [0.25, 0.5, 0.75, 1.5, 3.0]
STEPS = [5, 6, 7, 12, 25]
OF_FLOATS = {
    "inverse": lambda x, t: x * (1 / t),
    "quotient": lambda x, t: x * (t / 3),
    "square": lambda x, t: x * (1 - t) ** 2,
    "root": lambda x, t: x * t**0.5,
    "whole power": lambda x, t: x * t**3.0,
    "exp": lambda x, t: x * math.exp(-t),
    "log": lambda x, t: x * math.log(t) + math.log1p(t) * math.log2(t) - math.log10(t),
    "logs to other bases": lambda x, t: x * math.log(t, 2) + math.log(t, 1.5),
    "sqrt": lambda x, t: x + math.sqrt(t),
    "circle": lambda x, t: x * math.sin(t) + math.cos(t),
    "bounded": lambda x, t: x * math.tanh(t) + math.atan(t) - math.erf(t),
    "angles": lambda x, t: x * math.radians(t) + math.degrees(t),
    "chain": lambda x, t: x * (1 / (1 + math.exp(-4 * (t - 0.5)))),
    "function of a function": lambda x, t: x * math.exp(math.sin(t)) * math.sqrt(1 + math.cos(t)),
    "in place": lambda x, t: x.clone().mul_(math.expm1(t)),
    "left": lambda x, t: (x * 2, math.exp(t), 1 / t, t**2),
}
OF_STEPS = {
    "cosine": lambda x, n: x * 0.5 * (1 + math.cos(math.pi * n / 30)),
    "decay": lambda x, n: x * math.exp(-0.1 * n),
    "sigmoid": lambda x, n: x * (1 / (1 + math.exp(-0.5 * (n - 10)))),
    "growth": lambda x, n: x * math.exp(n),
    "bounded": lambda x, n: x * math.tanh(n / 10) + math.atan(n) - math.erf(n * 0.1),
    "angles": lambda x, n: x * math.radians(n) + math.degrees(n / 7) * math.sin(n),
    "averages that warm up": lambda x, n: x * min(0.999, (1 + n) / (10 + n)),
    "averages in place": lambda x, n: x.clone().mul_(d := min(0.99, (1 + n) / (10 + n))).add_(x.sin(), alpha=1 - d),
    "from one step to the next": lambda x, n: (
        x * ((1 + math.cos(math.pi * n / 30)) / (1 + math.cos(math.pi * (n - 1) / 30)) * 0.5 + 0.1)
    ),
    "polynomial": lambda x, n: x * ((1 - n / 40) / (1 - (n - 1) / 40)) ** 1.5,
    "logs to other bases": lambda x, n: x * math.log(n, 3) + math.log(1 + n / 7, 2),
    "part of a cycle": lambda x, n: x * (1 + n / 8 - math.floor(1 + n / 8)),
    "either side": lambda x, n: x * (2.0 if (3 + n) / (20 - n / 2) >= 0.3 else 0.5) * ((n + 1) / (n * 2 + 1)),
    "size": lambda x, n: x * math.exp(-len(x) / 100) + math.cos(len(x)),
}


def same(function, x, number, fast):
    """Results, or errors, are plain Python's, and so are types."""
    try:
        expected = function(x, number)
    except (ArithmeticError, ValueError) as e:
        with pytest.raises(type(e)) as caught:
            fast(x, number)
        assert str(caught.value) == str(e)
        return
    got = fast(x, number)
    assert_same(expected, got, atol=0, rtol=1e-6)
    if isinstance(expected, tuple):
        assert list(map(repr, expected[1:])) == list(map(repr, got[1:]))


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats_that_change(name, backend):
    fast = framejit.optimize(OF_FLOATS[name], backend=backend)
    x = torch.randn(9)
    for t in FLOATS:
        same(OF_FLOATS[name], x, t, fast)
    assert len(fast.entries) == 2
    for t in [-1.0, 0.0, -0.0, math.inf, -math.inf, math.nan, 1e-320, 1e308, -1e308, 401.0, 800.0, -800.0, 1e60, 0.3]:
        same(OF_FLOATS[name], x, t, fast)


@pytest.mark.parametrize("name", OF_STEPS)
def test_steps_that_are_counted(name):
    fast = framejit.optimize(OF_STEPS[name])
    x = torch.randn(9)
    for n in STEPS:
        same(OF_STEPS[name], x, n, fast)
    assert len(fast.entries) <= 2
    for n in [0, 1, -1, -5, 300, 700, 800, 5000, 10**6, 2**62, 2**63, 10**400, 26]:
        same(OF_STEPS[name], x, n, fast)


@pytest.mark.parametrize("name", ["chain", "square", "log"])
def test_gradients(name):
    fast = framejit.optimize(OF_FLOATS[name])
    for t in FLOATS:
        a = torch.linspace(-1, 1, 9, requires_grad=True)
        b = a.detach().clone().requires_grad_()
        OF_FLOATS[name](a, t).sum().backward()
        fast(b, t).sum().backward()
        assert_same(a.grad, b.grad)
    assert len(fast.entries) == 2


def test_whole_numbers_of_two_counts():
    def f(x, epoch, step):
        time = epoch + step / 4
        cycle = int(math.log(time / 2 + 1, 2))
        return x * (time - 2 * (2**cycle - 1)), math.floor(time), cycle, math.ceil(time) * 3

    x, compiled = torch.randn(3), framejit.optimize(f, backend="eager")
    for epoch in range(14):
        for step in range(4):
            assert_same(f(x, epoch, step), compiled(x, epoch, step), atol=1e-7, rtol=1e-6)
    # one for the first epoch, steps, epochs, and each cycle
    assert len(compiled.entries) <= 6


def test_a_schedule_of_an_object():
    class Schedule:
        def __init__(self):
            self.step = 0

        def __call__(self, x):
            self.step += 1
            return x * 0.5 * (1 + math.cos(math.pi * min(self.step, 20) / 20))

    plain, optimized = Schedule(), Schedule()
    fast = framejit.optimize(lambda x: optimized(x))
    x = torch.randn(5)
    for _ in range(30):
        assert_same(plain(x), fast(x))
    assert plain.step == optimized.step == 30
    assert len(fast.entries) <= 3


def test_two_numbers_that_change():
    def f(x, t, total):
        return x * (t / total), x * math.exp(t - total)

    fast = framejit.optimize(f)
    x = torch.randn(5)
    for t, total in [(1.0, 8.0), (2.0, 9.0), (3.0, 7.0), (4.0, 5.0), (5.0, 0.0), (6.0, 2.0)]:
        try:
            expected = f(x, t, total)
        except ZeroDivisionError:
            with pytest.raises(ZeroDivisionError, match="division by zero"):
                fast(x, t, total)
        else:
            assert_same(expected, fast(x, t, total))


ARGUMENTS = {
    "clamp": lambda x, t: x.clamp(-t, t),
    "clamp of one": lambda x, t: (torch.clamp(x, max=t), torch.clamp(x, min=t), x.clamp(t), x.clip(None, t)),
    "clamp with a known number": lambda x, t: (x.clamp(-0.5, t), x.clamp(t, 0.5), torch.clamp(x, min=t, max=-t)),
    "clamp in place": lambda x, t: (x.clone().clamp_(-t, t), x.clone().clamp_max_(t)),
    "clamp on one side": lambda x, t: (x.clamp_min(t), torch.clamp_max(x, t), torch.clamp_min(x, min=t)),
    "masked_fill": lambda x, t: (x.masked_fill(x > 0, t), x.clone().masked_fill_(x < t, -t)),
    "where": lambda x, t: (torch.where(x > t, x, t), torch.where(x > t, -t, x), x.where(x > t, t)),
}


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_take_numbers_only(name, dtype, backend):
    fast = framejit.optimize(ARGUMENTS[name], backend=backend)
    x = torch.tensor([-2.0, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 3.0, math.inf, -math.inf, math.nan])
    x = x.nan_to_num(3, 5, -5).to(dtype) if dtype is torch.int64 else x.to(dtype)
    for t in [*FLOATS, math.inf, math.nan, -1.0, 1e39, -1e300, 0.125]:
        y, z = x.clone(), x.clone()
        try:
            expected = ARGUMENTS[name](y, t)
        except RuntimeError as e:
            with pytest.raises(RuntimeError) as caught:
                fast(z, t)
            assert str(caught.value) == str(e)
        else:
            assert_same(expected, fast(z, t), atol=0, rtol=0)
        assert_same(y, z)
        if t == FLOATS[-1] and dtype in (torch.float32, torch.float64):
            assert len(fast.entries) == 2


@pytest.mark.parametrize("name", ["clamp", "clamp with a known number", "masked_fill", "where"])
def test_gradients_of_clamped_tensors(name):
    fast = framejit.optimize(ARGUMENTS[name])
    for t in FLOATS:
        a = torch.tensor([-3.0, -1.5, -0.5, 0.25, 0.5, 0.75, 1.5, 3.0, math.nan], requires_grad=True)
        b = a.detach().clone().requires_grad_()
        for x, f in ((a, ARGUMENTS[name]), (b, fast)):
            made = f(x, t)
            sum(y.sum() for y in (made if isinstance(made, tuple) else (made,))).backward()
        assert_same(a.grad, b.grad)


def test_versions_of_what_is_clamped_in_place():
    def f(x, t):
        x.clamp_(-t, t)
        x.masked_fill_(x > 0, t)
        return x._version

    fast = framejit.optimize(f)
    for t in FLOATS:
        a, b = torch.randn(5), torch.randn(5)
        assert (f(a, t), a._version) == (fast(b, t), b._version) == (2, 2)


def test_rates_that_go_on_from_what_they_were():
    """As CosineAnnealingLR has it: a number that changes, times one that is computed from a count."""

    def f(x, rate, n):
        return x * ((1 + math.cos(math.pi * n / 30)) / (1 + math.cos(math.pi * (n - 1) / 30)) * (rate - 0.01) + 0.01)

    fast = framejit.optimize(f)
    x = torch.randn(5)
    for n in (1, 2, 3, 7, 15, 29):
        assert_same(f(x, 0.5 / n, n), fast(x, 0.5 / n, n))
    assert len(fast.entries) <= 3
    assert_same(f(x, 0.5, 30), fast(x, 0.5, 30))
    with pytest.raises(ZeroDivisionError):
        fast(x, 0.5, 31)


def test_what_functions_are_made_of_computes_with_a_number():
    """A temperature that falls: an argument of the whole function would be assumed."""

    def make():
        state = {"tau": 5.0}

        def f(x):
            drawn = F.gumbel_softmax(x, tau=state["tau"], hard=True)
            state["tau"] = max(0.5, state["tau"] * 0.9)
            return drawn * x, F.gaussian_nll_loss(x, x + 1, x.square() + 1, eps=state["tau"] * 1e-3)

        return f, state

    pair = Pair(make)
    for number in range(30):
        pair.call(torch.randn(3, 4), captures=False if number not in (0, 1, 21) else None)
    pair.expect(breaks=0, graphs=range(1, 4))


def test_what_is_compared_would_be_too_large_for_other_counts():
    def f(x, n):
        return x * 2 if math.exp(n**1.5) < 60 else x - n

    compiled, x = framejit.optimize(f, backend="eager"), torch.randn(3)
    with framejit.config.patch(debug=True):
        for n in (1, 2, 3, 4, 5, 2, 30):
            assert_same(f(x, n), compiled(x, n))
    for run in (f, compiled):
        with pytest.raises(OverflowError, match="math range error"):
            run(x, 100)
