"""Numbers of Python's `random` are drawn by the graph, in order, and leave its state as plain Python does."""
from __future__ import annotations

import random

import pytest
import torch

from support import ANY, Pair


def calls(fn, *args, times=3, **expected):
    """Eager and compiled calls in turn, each from the same state of `random`, which has to be the same behind them."""
    pair = Pair(lambda: fn)
    for seed in range(times):
        random.seed(seed)
        pair.call(*args)
    pair.expect(**expected)


def test_numbers_are_drawn_by_one_graph():
    def fn(x, p):
        scale, shift = random.uniform(0.5, 1.5), random.randint(0, 3)
        random.random()  # which nobody uses
        if random.random() < p:
            x = x.flip(-1)
        drawn = [random.gauss(0, 1), random.triangular(), random.expovariate(2.0), random.getrandbits(4)]
        x = x * scale + shift + torch.rand(2) * random.random()
        return x, scale, drawn, random.randrange(1, 9, 3), f"{drawn[0]:.2f}", random.random() < p

    calls(fn, torch.ones(2), 0.5, graphs=1, breaks=0)


def test_numbers_of_a_loop_that_data_ends():
    def fn(x):
        k = 0
        while x.sum() > 1 and k < 5:
            x = x * random.uniform(0.2, 0.8)
            k += 1
        return x, k, random.random()

    for x in (torch.ones(3), -torch.ones(3), torch.ones(3) * 9):
        calls(fn, x, breaks=0)


def test_a_branch_that_is_not_taken_draws_nothing():
    def fn(x):
        if x.sum() > 0:
            x = x * random.random()
        return x, random.random()

    for x in (torch.ones(3), -torch.ones(3)):
        calls(fn, x, graphs=ANY, breaks=ANY)


@pytest.mark.parametrize("value", [0.0, 9.0])
def test_a_graph_that_raises_leaves_the_state_that_the_program_would(value):
    def fn(x, y):
        scale = random.random()
        x.add_(scale)
        return torch.linalg.cholesky(torch.eye(2) - y) * random.random(), scale

    calls(fn, torch.ones(2), torch.full((2, 2), value), times=4, graphs=ANY, breaks=None)


def test_where_gradients_are_wanted_the_program_draws():
    weight = torch.ones(3, requires_grad=True)

    def fn(x):
        return (x * weight * random.uniform(0, 2)).sum() * random.random()

    calls(fn, torch.ones(3), graphs=ANY, breaks=ANY)

    def without(x):
        with torch.no_grad():
            return (x * weight * random.uniform(0, 2)).sum() * random.random()

    calls(without, torch.ones(3), graphs=1, breaks=0)


def test_what_the_graph_does_not_draw():
    def world():
        own = random.Random(5)

        def fn(x):
            random.seed(3)
            numbers = [own.random(), own.uniform(0, 1), random.choice([1, 2, 3]), random.randint(2, x.shape[0])]
            return x + numbers[0], numbers, [1, 2, 3][random.randint(0, 2)], random.getstate()

        return fn

    pair = Pair(world)
    pair.call(torch.ones(3))
    pair.expect(graphs=ANY, breaks=ANY)


def test_what_drawing_raises():
    def fn(x, least, most):
        try:
            return x + random.randint(least, most)
        except ValueError as e:
            return x, str(e)

    for least, most in ((1, 4), (4, 1), (2, 2)):
        calls(fn, torch.ones(2), least, most, breaks=None)
