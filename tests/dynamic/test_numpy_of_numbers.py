"""Functions of numpy of Python's numbers that change: few entries serve all of them, and numbers are numpy's own."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn, optim

import framejit

from support import of_kind, recorded, seed

FUNCTIONS = {
    "cos": lambda n: np.cos(np.pi * n / 30),
    "half a cosine": lambda n: 0.5 * (1 + np.cos(np.pi * n / 30)),
    "sqrt of an int": lambda n: np.sqrt(n + 1),
    "sqrt": lambda n: np.sqrt(0.3 + n / 7),
    "exp": lambda n: float(np.exp(-n / 10)),
    "a sigmoid": lambda n: np.exp(-5.0 * (1.0 - np.clip(n, 0.0, 10.0) / 10.0) * 2),
    "log": lambda n: np.log(1 + n) - np.log10(1.5 + n),
    "tanh": lambda n: -np.tanh(n / 10),
    "clip": lambda n: np.clip(n / 10, 0.25, 0.75),
    "least": lambda n: np.minimum(1.0, n / 10),
    "greatest": lambda n: np.maximum(n / 10, 0.5),
    "interp": lambda n: np.interp(n, [0, 5, 10], [0.0, 1.0, 0.5]),
    "power": lambda n: np.power(0.9, n + 1),
    "arithmetic": lambda n: (2 * np.sin(n / 3) - 1.5) / 4 * np.float64(0.5) + n,
    "of math": lambda n: math.sqrt(np.cos(n / 30) + 1.0) * math.pow(0.9, n),
}


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_numbers_that_change(name, backend):
    function = FUNCTIONS[name]

    def fn(n, x):
        number = function(n)
        return x * number, x.add(x, alpha=float(number)), number, type(number).__name__, [number]

    fast = framejit.optimize(fn, backend=backend)
    for n in range(14):
        x = torch.arange(6.0, dtype=torch.float64) + n
        expected, got = fn(n, x), fast(n, x)
        torch.testing.assert_close(got[:2], expected[:2], rtol=1e-14, atol=1e-14)
        assert got[2:] == expected[2:] and type(got[2]) is type(expected[2])
    assert len(fast.entries) <= 4


def test_comparisons_are_guarded():
    def fn(n, x):
        weight = np.sqrt(n / 14 + 0.01)
        return (x * 2 if weight > 0.5 else x - 1), weight > 0.5, bool(weight), isinstance(weight, float)

    fast = framejit.optimize(fn, backend="eager")
    for n in range(14):
        expected, got = fn(n, torch.ones(2)), fast(n, torch.ones(2))
        assert torch.equal(expected[0], got[0])
        assert expected[1:] == got[1:] and type(expected[1]) is type(got[1])
    assert len(fast.entries) <= 5


def test_other_uses_are_those_of_numpys_number():
    def fn(n, x):
        w = np.cos(n / 3)
        values = np.array([1.0, 2.0]) * w, w**2, abs(w), round(w, 2), w // 0.3, w % 0.3, max(w, 0.1), w.item(), w == w
        tensors = torch.full((2,), w), torch.tensor([w, 1.0]), torch.ones(3).mul_(w).add_(x, alpha=w), x.clamp(max=w)
        return values, tensors, w.dtype, f"{w:.3f}", {"w": w}, w / np.float64(3.0), x / w

    fast = framejit.optimize(fn, backend="eager")
    for n in range(8):
        x = torch.ones(3, dtype=torch.float64)
        assert repr(fast(n, x)) == repr(fn(n, x))


def test_warnings_of_numpy_are_its_own():
    def fn(n, x):
        return x * np.sqrt(3.0 - n), np.log(5 - n), np.sqrt(abs(n) + 1.0) * n * 1e150

    fast = framejit.optimize(fn, backend="eager")
    for n in (*range(8), 1.5, 2.5, -2.5, 1e160, -1e160, 3.5):
        found = []
        for each in (fn, fast):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                outcome = repr(each(n, torch.ones(2)))
            found.append((outcome, [str(warning.message) for warning in caught]))
        assert found[0] == found[1]


def train(compile_step, rate):
    seed(0)
    module = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    optimiser = optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    schedule = optim.lr_scheduler.LambdaLR(optimiser, rate) if rate is not None else None

    def step(n, x):
        if schedule is None:
            for group in optimiser.param_groups:
                group["lr"] = 0.05 * (1 + np.cos(np.pi * n / 20))
        loss = module(x).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if schedule is not None:
            schedule.step()
        return loss.detach()

    run, found = compile_step(step), []
    for n in range(16):
        loss = run(n, torch.randn(4, 5, dtype=torch.float64))
        found.append((loss, repr(optimiser.param_groups[0]["lr"])))
    return found, [p.detach() for p in module.parameters()]


@pytest.mark.parametrize("rate", [None, lambda n: 0.5 * (1 + np.cos(np.pi * n / 20))], ids=["by hand", "a schedule"])
def test_rates_that_numpy_computes(rate):
    expected = train(lambda step: step, rate)
    with recorded() as log:
        found = train(lambda step: framejit.optimize(step, backend="fuse"), rate)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-9, atol=1e-9)
    for (loss, number), (known, wanted) in zip(found[0], expected[0]):
        torch.testing.assert_close(loss, known, rtol=1e-9, atol=1e-9)
        assert number == wanted
    assert len(of_kind(log, "capture_started")) <= 5
    assert not of_kind(log, "graph_break")
