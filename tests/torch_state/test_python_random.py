"""Numbers of Python's `random` are drawn by the graph, in order, and leave its state as plain Python does."""
from __future__ import annotations

import copy
import gc
import random
import weakref

import pytest
import torch

import framejit

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


def test_where_gradients_are_wanted():
    weight = torch.ones(3, requires_grad=True)

    def fn(x):
        return (x * weight * random.uniform(0, 2)).sum() * random.random()

    calls(fn, torch.ones(3), graphs=1, breaks=0)

    def without(x):
        with torch.no_grad():
            return (x * weight * random.uniform(0, 2)).sum() * random.random()

    calls(without, torch.ones(3), graphs=1, breaks=0)


def test_what_the_graph_does_not_draw():
    def world():
        class Own(random.Random):
            def random(self):
                return super().random() / 2

        own = Own(5)

        def fn(x):
            random.seed("text")
            numbers = [own.random(), own.uniform(0, 1), random.choice("abc"), random.randint(2, x.shape[0])]
            tensors = [x, x + 1]
            random.shuffle(tensors)
            return x + numbers[0], numbers, tensors, [1, 2, 3][random.randint(0, 2)], random.getstate()

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


def test_numbers_are_chosen_by_one_graph():
    def fn(x):
        one = [random.choice([1, 2, 3]), random.choice((0.5, 1.5)), random.choice(range(2, 9, 3))]
        several = [
            random.sample(range(9), 2), random.sample([3.0, 4.0], k=2), random.choices([1, 2], k=3),
            random.choices([1, 2, 3], [1, 5, 2], k=2), random.choices([0.5]), random.choices((1, 2), weights=None),
        ]
        order = [*range(4)]
        same = order
        random.shuffle(order)
        chosen = x[torch.tensor(random.sample(range(3), 2))]
        return x * one[0], one, several, order, same is order, chosen, order[0] * x

    calls(fn, torch.ones(3), graphs=1, breaks=0)


def test_what_choosing_raises():
    def fn(x, numbers, count, weights):
        found = []
        for function in (
            lambda: random.choice(numbers), lambda: random.sample(numbers, count),
            lambda: random.choices(numbers, weights, k=count), lambda: random.shuffle(tuple(numbers)),
        ):
            try:
                found.append(function())
            except (IndexError, TypeError, ValueError) as e:
                found.append((type(e).__name__, str(e)))
        return x + 1, found

    for given in (([], 1, None), ([1, 2], 3, [1, 2]), ([1, 2], 1, [0, 0]), ([1, 2], 1, [1]), ([True, 2], 0, None)):
        calls(fn, torch.ones(2), *given, breaks=None)


def test_the_state_is_set_among_the_numbers():
    def fn(x):
        before = random.random()
        random.seed(3)
        return x * random.random(), before, random.gauss(0, 1)

    calls(fn, torch.ones(2), graphs=1, breaks=0)


def test_generators_of_the_program():
    def world():
        holder = [random.Random(5)]

        def fn(x):
            own = holder[0]
            own.seed(own.randint(1, 9)) if x.dim() > 1 else None
            return x * own.random(), own.choice([1, 2]), own.sample(range(5), 2), own.gauss(0, 1), random.random()

        def states():
            return [own.getstate() for own in holder]

        def exchange(own):
            holder[:] = [own]

        fn.states, fn.exchange = states, exchange
        return fn

    plain, compiled = world(), world()
    fast = framejit.optimize(compiled)
    for _ in range(2):
        for own in (None, random.Random(7), random.Random(5)):
            for fn in (plain, compiled):
                if own is not None:
                    fn.exchange(copy.copy(own))
            for _ in range(2):
                random.seed(1)
                expected = plain(torch.ones(2))
                random.seed(1)
                found = fast(torch.ones(2))
                assert repr(expected) == repr(found)
                assert plain.states() == compiled.states()


def test_a_generator_of_the_program_goes_with_it():
    own = random.Random(5)
    gone = weakref.ref(own)

    @framejit.optimize
    def fn(x, own):
        return x * own.random()

    fn(torch.ones(2), own)
    del own
    gc.collect()
    assert gone() is None
    assert torch.equal(fn(torch.ones(2), random.Random(6)), torch.ones(2) * random.Random(6).random())


def test_a_graph_that_raises_leaves_the_state_of_the_programs_generator():
    own = random.Random(5)

    def fn(x, y):
        random.seed(4)
        scale = own.random()
        x.add_(scale)
        return torch.linalg.cholesky(torch.eye(2) - y) * own.random(), own.sample(range(9), 2)

    found = []
    for run in (fn, framejit.optimize(fn)):
        own.seed(1)
        for value in (0.0, 9.0, 0.0, 9.0):
            x = torch.ones(2)
            try:
                result = run(x, torch.full((2, 2), value))
            except RuntimeError as e:
                result = str(e)
            found.append((repr(result), x.tolist(), own.getstate(), random.getstate()))
    assert found[:4] == found[4:]
