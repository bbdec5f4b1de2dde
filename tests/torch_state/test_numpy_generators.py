"""Generators of numpy's that the program made draw in the graph what they draw in plain Python, and are left in the
same state."""
from __future__ import annotations

from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch

import framejit
from framejit.backends.draws import numpy_random

from support import Pair


def state_of(generator):
    return str(generator.get_state() if isinstance(generator, np.random.RandomState) else generator.bit_generator.state)


KINDS = {
    "RandomState": np.random.RandomState, "default_rng": np.random.default_rng,
    "MT19937": lambda seed: np.random.Generator(np.random.MT19937(seed)),
    "Philox": lambda seed: np.random.Generator(np.random.Philox(seed)),
}
ALL_KINDS = tuple(KINDS.values())


def alike(draw, *args, kinds=ALL_KINDS, times=3, **expected):
    """`draw(generator, *args)` of eager and compiled calls in turn, from generators in the same state."""

    def world(kind):
        generator = kind(7)
        return lambda *given: draw(generator, *given), lambda: state_of(generator)

    for kind in kinds:
        pair = Pair(partial(world, kind))
        for _ in range(times):
            pair.call(*args)
        pair.expect(**expected)


def test_numbers_and_arrays():
    def draw(rng, x):
        if rng.random() < 0.5:
            x = x.flip(-1)
        lam = rng.beta(0.4, 0.4)
        drawn = [
            rng.uniform(-1, 1), rng.normal(), rng.choice(3), rng.poisson(2.0), rng.binomial(5, 0.5), rng.exponential(2),
            rng.standard_normal(), rng.triangular(0, 1, 2), rng.gamma(2.0), rng.uniform(high=3.0), rng.random(),
        ]
        arrays = [
            rng.normal(size=(2, 2)), rng.uniform(0, 1, 3), rng.permutation(4), rng.choice(5, 2, replace=False),
            rng.random((2,)), rng.standard_normal(3), rng.poisson(1.0, size=2),
        ]
        order = torch.from_numpy(rng.permutation(len(x)))
        return lam * x[order], drawn, [type(n) for n in drawn], arrays, [a.dtype for a in arrays], f"{lam:.2f}"

    alike(draw, torch.ones(3), graphs=1, breaks=0)


def test_whole_numbers_of_new_generators():
    def draw(rng, x):
        k = rng.integers(3)
        drawn = [k, rng.integers(0, 9), rng.integers(0, 2, endpoint=True), rng.integers(low=1, high=3)]
        arrays = [rng.integers(5, size=4), rng.integers(0, 5, (2, 2))]
        return x + int(k), x * drawn[1], drawn, [type(n) for n in drawn], arrays, int(drawn[3]) + 1

    alike(draw, torch.ones(3), kinds=[KINDS["default_rng"], KINDS["Philox"]], graphs=1, breaks=0)


def test_whole_numbers_of_old_generators():
    def draw(rng, x):
        return x + rng.randint(5), rng.randint(2, 9), rng.randint(3, size=2), rng.rand(2), rng.randn(), rng.rand()

    alike(draw, torch.ones(3), kinds=[np.random.RandomState], graphs=1, breaks=0)


def test_a_generator_of_an_object():
    class Noise:
        def __init__(self):
            self.rng, self.calls = np.random.default_rng(3), 0

        def __call__(self, x):
            self.calls += 1
            if self.calls == 3:
                self.rng = np.random.default_rng(4)
            return x + torch.from_numpy(self.rng.normal(0, 0.1, (3,))).float() * self.rng.uniform()

    def make():
        noise = Noise()
        return lambda x: noise(x), lambda: (noise.calls, state_of(noise.rng))

    pair = Pair(make)
    for _ in range(5):
        pair.call(torch.ones(3))


def test_generators_with_one_state_and_that_of_the_module():
    def make():
        bits = np.random.PCG64(5)
        a, b, c = np.random.Generator(bits), np.random.Generator(bits), np.random.RandomState(5)

        def fn(x):
            return x * a.random() + b.random(), c.rand(), np.random.rand(), a.normal(), b.normal(), c.normal()

        return fn, lambda: (state_of(a), state_of(c))

    pair = Pair(make)
    for _ in range(3):
        pair.call(torch.ones(2))
    pair.expect(graphs=1, breaks=0)


@pytest.mark.parametrize("value", [0.0, 9.0])
def test_a_graph_that_raises(value):
    def draw(rng, x, y):
        scale = rng.uniform()
        x.add_(scale)
        return torch.linalg.cholesky(torch.eye(2) - y) * rng.normal(), scale

    alike(draw, torch.ones(2), torch.full((2, 2), value), times=4)


def test_a_branch_that_is_not_taken():
    def draw(rng, x):
        if x.sum() > 0:
            x = x * rng.uniform()
        return x, rng.normal()

    for x in (torch.ones(2), -torch.ones(2)):
        alike(draw, x)


def test_where_gradients_are_wanted():
    def draw(rng, x):
        return (x * rng.uniform()).sum() * rng.normal()

    alike(draw, torch.ones(3, requires_grad=True), graphs=1, breaks=0)


OTHERWISE = {
    "another dtype": lambda rng: rng.standard_normal(2, dtype=np.float32),
    "a shuffled list": lambda rng: rng.shuffle([1]),
    "weights": lambda rng: rng.choice(3, p=[0.5, 0.25, 0.25]), "an array": lambda rng: rng.permutation(np.arange(3)),
    "a negative scale": lambda rng: rng.normal(0, -1), "no number between": lambda rng: rng.integers(3, 3),
    "another argument": lambda rng: rng.normal(scales=1), "a method that it has not": lambda rng: rng.nothing(),
    "its bits": lambda rng: type(rng.bit_generator).__name__, "an empty array": lambda rng: rng.random((0, 2)),
    "a method kept": lambda rng: (lambda method: [method(), method()])(rng.random),
    "several steps": lambda rng: rng.spawn(2)[1].random(), "bytes": lambda rng: rng.bytes(3),
}


@pytest.mark.parametrize("use", OTHERWISE.values(), ids=OTHERWISE)
def test_other_uses(use):
    def draw(rng, x):
        try:
            found = use(rng)
        except (TypeError, ValueError, AttributeError) as e:
            found = str(e)
        return x + 1, found, rng.normal()

    alike(draw, torch.ones(2), kinds=[np.random.default_rng])


def test_a_class_of_the_program():
    class Own(np.random.RandomState):
        def normal(self, *args):
            return 2.0

    alike(lambda rng, x: x * rng.normal() + rng.rand(), torch.ones(2), kinds=[Own])


def test_more_generators_than_graphs_know():
    fast, expected = framejit.optimize(lambda rng, x: x * rng.random()), np.random.default_rng(0).random()
    with mock.patch.object(numpy_random, "MOST_GENERATORS", 0):
        generators = [np.random.default_rng(0) for _ in range(3)]
        assert [fast(rng, torch.ones(1)).item() for rng in generators] == pytest.approx([expected] * 3)
