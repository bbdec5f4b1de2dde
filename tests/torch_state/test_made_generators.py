"""Generators that captured code makes from a known seed are made by the graph, anew at each call; one that leaves it is
the program's own."""
from __future__ import annotations

import random
import threading

import numpy as np
import pytest
import torch

import framejit

from support import ANY, Pair, check, check_state

X = torch.linspace(-1, 1, 6).view(2, 3)


def of_torch(x):
    g = torch.Generator().manual_seed(42)
    h = torch.Generator(device="cpu")
    first = torch.randn(2, 3, generator=g)
    order = torch.randperm(3, generator=h)
    return x + first, torch.rand(2, generator=g), order, torch.randint(9, (4,), generator=g), torch.rand(2)


def of_python(x):
    a, b = random.Random(3), random.Random(x.dim())
    order = [0, 1, 2]
    a.shuffle(order)
    drawn = a.randint(1, 9), b.gauss(0, 1), a.choice([1, 2])
    return x * order[0] * a.random() + b.uniform(1, 2), drawn, random.random()


def of_numpy(x):
    new, old = np.random.default_rng(0), np.random.RandomState(seed=5)
    noise = torch.from_numpy(new.normal(size=(2, 3)))
    drawn = old.rand(2), new.integers(5), old.uniform(1, 2), new.permutation(3), old.randint(9)
    return x + noise, drawn, np.random.rand()


def of_all(x):
    g, a, new = torch.Generator(), random.Random(-7), np.random.default_rng(seed=2)
    g.manual_seed(1)
    a.seed(4)
    return x * a.random() + new.random(), torch.rand(2, generator=g)


def of_a_function(x):
    def noise(seed):
        return torch.randn(2, 3, generator=torch.Generator().manual_seed(seed))

    return [x + noise(n) for n in (1, 2, 1)]


@pytest.mark.parametrize("fn", [of_torch, of_python, of_numpy, of_all, of_a_function])
def test_one_graph(fn):
    def world():
        return fn

    pair = Pair(world)
    for _ in range(3):
        pair.call(X)
    if torch.Generator.__weakrefoffset__:
        pair.expect(graphs=1, breaks=0)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_gradients(backend):
    def fn(x):
        g, new = torch.Generator().manual_seed(3), np.random.default_rng(1)
        return (x * torch.rand(2, 3, generator=g) * new.random() * random.Random(5).random()).sin()

    found = []
    for function in (fn, framejit.optimize(fn, backend=backend)):
        for _ in range(2):
            x = X.double().requires_grad_()
            (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
            found.append((first.detach(), *torch.autograd.grad(first.sum(), x)))
    for other in found[1:]:
        torch.testing.assert_close(found[0], other)


def test_layers_that_make_their_own():
    class Noise(torch.nn.Module):
        def forward(self, x):
            return x + torch.randn(2, 3, generator=torch.Generator().manual_seed(9))

    check(torch.nn.Sequential(*[Noise() for _ in range(4)]), X)


def test_threads():
    def fn(x, n):
        g = torch.Generator().manual_seed(n)
        for _ in range(20):
            x = x + torch.rand(2, 3, generator=g)
        return x

    fast, wrong = framejit.optimize(fn), []
    expected = [fn(X, n) for n in range(2)]

    def work(n):
        for _ in range(50):
            if not torch.equal(fast(X, n), expected[n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


KEPT = []
LEAVING = {
    "is returned": lambda x: (random.Random(3), x + 1)[1:], "is kept": lambda x: KEPT.append(np.random.default_rng(2)),
    "says its state": lambda x: random.Random(3).getstate()[1][:3],
    "says torch's state": lambda x: torch.Generator().manual_seed(4).get_state()[:9],
    "says its bits": lambda x: type(np.random.default_rng(3).bit_generator).__name__,
    "says its device": lambda x: torch.Generator().device, "says its seed": lambda x: torch.Generator().initial_seed(),
    "has an attribute": lambda x: setattr(random.Random(3), "note", 1),
    "is asked for bytes": lambda x: random.Random(3).randbytes(3),
    "is written": lambda x: str(random.Random)[:9], "has no int for a seed": lambda x: random.Random("text").random(),
    "has no seed": lambda x: type(random.Random().random()),
    "has several seeds": lambda x: np.random.default_rng([1, 2]).random(),
    "has a wrong seed": lambda x: np.random.default_rng(-1),
    "has too large a seed": lambda x: np.random.RandomState(2**32),
    "has a float": lambda x: random.Random(0.5).random(), "draws from text": lambda x: random.Random(3).choice("abc"),
    "is drawn wrongly": lambda x: random.Random(3).randint(3, 1),
    "is none of torch's": lambda x: torch.Generator("nothing"),
}


@pytest.mark.parametrize("use", LEAVING.values(), ids=LEAVING)
def test_a_generator_that(use):
    def fn(x):
        y = x * 2
        try:
            found = use(x)
        except (ValueError, RuntimeError, TypeError) as e:
            found = type(e)
        return y, found

    check(fn, X, graphs=None, breaks=None, calls=1)
    check(fn, X, graphs=None, breaks=None, calls=1)


def test_one_that_is_drawn_from_before_it_leaves():
    def make():
        kept = []

        def fn(x):
            rng = np.random.default_rng(3)
            y = x * rng.random()
            kept.append(rng)
            return y + rng.normal()

        return fn, lambda: [rng.random() for rng in kept]

    check_state(make, (X,), (X,), breaks=ANY)


def test_one_that_lives_across_a_break():
    def fn(x):
        rng = random.Random(3)
        x = x * rng.random()
        print("between")
        return x * rng.random()

    check(fn, X, graphs=None, breaks=ANY, calls=1)


def test_more_than_a_graph_makes():
    def fn(x):
        return [x * random.Random(n).random() for n in range(40)]

    check(fn, X, graphs=None, breaks=None, calls=1)


SEEDED = {
    "torch.Generator": lambda n: torch.rand(2, 3, generator=torch.Generator().manual_seed(n)),
    "random.Random": lambda n: random.Random(n * 1000 + 7).random(),
    "default_rng": lambda n: torch.from_numpy(np.random.default_rng(n).normal(size=(2, 3))),
    "RandomState": lambda n: np.random.RandomState(seed=n + 3).uniform(),
}


@pytest.mark.parametrize("draw", SEEDED.values(), ids=SEEDED)
def test_seeds_that_change(draw):
    pair = Pair(lambda: lambda x, n: x * draw(n))
    for n in (0, 1, 2, 3, 2**31 - 1, 2):
        pair.call(X, n)
    assert pair.graphs <= 3 and not pair.breaks


@pytest.mark.parametrize("draw", SEEDED.values(), ids=SEEDED)
def test_seeds_that_are_counted(draw):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 0

        def forward(self, x):
            self.step += 1
            return x + draw(self.step)

    def make():
        module = Model()
        return module, lambda: module.step

    pair = Pair(make)
    for _ in range(5):
        pair.call(X)
    assert pair.graphs <= 3 and not pair.breaks


@pytest.mark.parametrize("draw", SEEDED.values(), ids=SEEDED)
def test_seeds_that_may_be_refused(draw):
    def fn(x, n):
        try:
            return x * draw(n)
        except (ValueError, TypeError, RuntimeError, OverflowError) as e:
            return x, str(e)

    pair = Pair(lambda: fn)
    for n in (1, 2, -1, 3, 2**40, 2**63, 2**70, -(2**63), True, 4):
        pair.call(X, n)
