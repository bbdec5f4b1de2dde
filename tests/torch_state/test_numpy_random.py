"""Numbers and arrays of numpy's `np.random` are drawn by the graph, in order, and leave its state as plain Python
does."""
from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from support import ANY, Pair


def calls(fn, *args, times=3, **expected):
    """Eager and compiled calls in turn, each from the same states, which have to be the same behind them."""
    pair = Pair(lambda: fn)
    for _ in range(times):
        pair.call(*args)
    pair.expect(**expected)


def test_numbers_are_drawn_by_one_graph():
    def fn(x, p):
        lam = np.random.beta(0.4, 0.4)
        lam = max(lam, 1 - lam)
        np.random.rand()  # which nobody uses
        if np.random.rand() < p:
            x = x.flip(-1)
        drawn = [
            np.random.uniform(-1, 1), np.random.normal(), np.random.randint(5), np.random.randint(2, 9),
            np.random.choice(3), np.random.poisson(2.0), np.random.binomial(5, 0.5), np.random.exponential(2),
            np.random.random(), np.random.standard_normal(), np.random.triangular(0, 1, 2),
            np.random.randint(high=9, low=7), np.random.uniform(high=3.0), np.random.randint(4, None),
        ]
        return lam * x + (1 - lam) * x.flip(0), drawn, [type(n) for n in drawn], f"{lam:.2f}"

    calls(fn, torch.ones(2), 0.5, graphs=1, breaks=0)


def test_arrays_are_drawn_by_one_graph():
    def fn(x):
        drawn = [
            np.random.rand(2, 3), np.random.randn(2), np.random.normal(0, 0.1, (2, 2)), np.random.randint(0, 5, 3),
            np.random.randint(3, size=(2,)), np.random.uniform(size=2), np.random.uniform(low=2, high=3, size=[1, 2]),
            np.random.choice(5, 2, replace=False), np.random.permutation(4), np.random.random((2,)),
            np.random.standard_normal(3), np.random.choice(5, size=(2, 2)),
        ]
        noisy = x.numpy() + np.random.normal(0, 0.1, x.shape).astype(np.float32)
        order = torch.from_numpy(np.random.permutation(len(x)))
        return x[order] + torch.from_numpy(drawn[1]).sum(), noisy, drawn, drawn[0] * 2

    calls(fn, torch.ones(3), graphs=1, breaks=0)


def test_numbers_of_several_generators_in_order():
    def fn(x):
        first = [random.random(), np.random.rand(), torch.rand(1)]
        return first, random.random(), np.random.rand(2), torch.rand(1), x + 1

    calls(fn, torch.ones(2), graphs=1, breaks=0)


def test_numbers_of_a_loop_that_data_ends():
    def fn(x):
        k = 0
        while x.sum() > 1 and k < 5:
            x = x * np.random.uniform(0.2, 0.8)
            k += 1
        return x, k, np.random.rand()

    for x in (torch.ones(3), -torch.ones(3), torch.ones(3) * 9):
        calls(fn, x, graphs=ANY)


BRANCHES = {
    "a number": lambda x: x * np.random.rand(), "a seed": lambda x: (np.random.seed(3), x)[1],
    "an array": lambda x: x + torch.from_numpy(np.random.rand(2)), "a choice": lambda x: x * random.choice([2.0, 3.0]),
}


@pytest.mark.parametrize("change", BRANCHES.values(), ids=BRANCHES)
def test_a_branch_that_is_not_taken_draws_nothing(change):
    def fn(x):
        if x.sum() > 0:
            x = change(x)
        return x, np.random.rand(), random.random()

    for x in (torch.ones(2), -torch.ones(2)):
        calls(fn, x, graphs=ANY)


def test_the_state_is_set_among_the_numbers():
    def fn(x):
        before = np.random.rand()
        np.random.seed(3)
        middle = np.random.rand(2)
        np.random.seed(seed=4)
        return x * np.random.rand(), before, middle

    calls(fn, torch.ones(2), graphs=1, breaks=0)


@pytest.mark.parametrize("value", [0.0, 9.0])
def test_a_graph_that_raises_leaves_the_state_that_the_program_would(value):
    def fn(x, y):
        scale = np.random.rand()
        x.add_(scale)
        return torch.linalg.cholesky(torch.eye(2) - y) * np.random.rand(), scale

    calls(fn, torch.ones(2), torch.full((2, 2), value), times=4, graphs=ANY)


def test_where_gradients_are_wanted():
    weight = torch.ones(3, requires_grad=True)

    def fn(x):
        return (x * weight * np.random.beta(1, 1)).sum() * np.random.rand()

    calls(fn, torch.ones(3), graphs=1, breaks=0)

    def without(x):
        with torch.no_grad():
            return (x * weight * np.random.beta(1, 1)).sum() * np.random.rand()

    calls(without, torch.ones(3), graphs=1, breaks=0)


RAISING = {
    "no number lies between": lambda: np.random.randint(0), "a negative scale": lambda: np.random.normal(0, -1),
    "a negative size": lambda: np.random.rand(-1), "None for a number": lambda: np.random.uniform(0.0, None),
    "a seed that is none": lambda: np.random.seed(-1), "more than there are": lambda: np.random.choice(2, 3, False),
    "another argument": lambda: np.random.rand(size=3), "a float for a size": lambda: np.random.rand(2.0),
}


@pytest.mark.parametrize("draw", RAISING.values(), ids=RAISING)
def test_what_drawing_raises(draw):
    def fn(x):
        try:
            return x + 1, draw()
        except (TypeError, ValueError) as e:
            return x + 2, str(e)

    calls(fn, torch.ones(2))


OTHERWISE = {
    "an empty array": lambda: np.random.rand(0, 2), "a large array": lambda: np.random.rand(300, 300),
    "another dtype": lambda: np.random.randint(5, size=2, dtype=np.int32),
    "what numpy chooses from": lambda: np.random.choice([1.5, 2.5]),
    "vectors": lambda: np.random.dirichlet([1.0, 2.0]),
    "an array's own order": lambda: np.random.permutation(np.arange(3)),
    "an array of scales": lambda: np.random.normal(np.zeros(2), 1.0), "the state": lambda: np.random.get_state()[1][:3],
    "an array without dimensions": lambda: np.random.rand(*()), "an empty size": lambda: np.random.uniform(size=()),
}


@pytest.mark.parametrize("draw", OTHERWISE.values(), ids=OTHERWISE)
def test_what_the_graph_does_not_draw(draw):
    def fn(x):
        return x + 1, draw(), np.random.rand()

    calls(fn, torch.ones(2))
