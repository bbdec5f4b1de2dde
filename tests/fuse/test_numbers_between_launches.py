"""Plans in which Python reads a clock or draws numbers are launched step by step: a launch graph would repeat what came
of it while it was recorded."""
from __future__ import annotations

import math
import random
import time
from unittest import mock

import numpy as np
import pytest
import torch

import framejit
from framejit.backends.fuse.launches.memory_use import memory_use
from framejit.backends.fuse.launches.recorder import NotCapturable
from framejit.backends.fuse.plan.plan_parts import PlanParts

OWN, RNG, PYTHON = torch.Generator(), np.random.default_rng(0), random.Random(0)
USES = {
    "a clock": time.perf_counter, "random": random.random, "several numbers": lambda: random.sample([1, 2, 3], 2),
    "random.Random": PYTHON.random, "np.random": np.random.rand, "an array": lambda: np.random.rand(2),
    "default_rng": RNG.random,
}
if torch.Generator.__weakrefoffset__:
    USES["torch.Generator"] = lambda: torch.rand(2, generator=OWN)


def plan_of(fn, *args):
    """The parts of the plan that runs, with launches in place of the numbers of kernels."""
    found = []
    made = PlanParts.__init__

    def note(self, *given, **named):
        made(self, *given, **named)
        found.append(self)

    with mock.patch.object(PlanParts, "__init__", note):
        framejit.optimize(fn, backend="fuse")(*args)
    return found[-1]


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_such_plans(use):
    parts = plan_of(lambda x: (use(), x.sort()[0]), torch.eye(2))
    with pytest.raises(NotCapturable, match="Python"):
        memory_use(parts, torch.device("cpu"))


def test_a_function_of_a_number():
    def fn(x):
        return x.sort()[0], math.exp(x[0, 0].item())

    parts = plan_of(fn, torch.eye(2))
    with pytest.raises(NotCapturable):
        memory_use(parts, torch.device("cpu"))


def test_other_plans():
    memory_use(plan_of(lambda x: x.sort()[0], torch.eye(2)), torch.device("cpu"))
