"""What functools.lru_cache is asked for: keys that are equal, die, change, or run code when they are compared."""

import functools
import gc
import weakref

import pytest
import torch

import framejit
from tests.side_effects.cached_twins import Twins, outcome

from support import Pair

X = torch.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize("typed", [False, True])
def test_keys_that_are_equal(typed):
    def make(log):
        @functools.lru_cache(typed=typed)
        def name(v, **kwargs):
            return f"{v!r}{kwargs}"

        return lambda x: (
            x + 1, name(1), name(1.0), name(True), name(1, a=1, b=2), name(1, b=2, a=1), name(1, a=1.0, b=2),
            name("1"), name(-0.0),
        ), name

    def compared(fn):
        return outcome(fn, X)[1:]

    twins = Twins(make)
    for _ in range(3):
        assert compared(twins.optimized) == compared(twins.plain)
        twins.check()


def test_methods_and_their_objects_die():
    class Model:
        def __init__(self, k):
            self.k = k

        @functools.lru_cache(maxsize=4)  # noqa: B019
        def scaled(self, n):
            return self.k * n

    fn = framejit.optimize(lambda m, x: x * m.scaled(3), backend="eager")
    first, second = Model(1), Model(2)
    for _ in range(3):
        assert fn(first, X).tolist() == [3.0, 6.0, 9.0]
        assert fn(second, X).tolist() == [6.0, 12.0, 18.0]
    assert Model.scaled.cache_info()[:2] == (4, 2)
    first.k = 5
    assert fn(first, X).tolist() == [3.0, 6.0, 9.0]
    gone = weakref.ref(first)
    Model.scaled.cache_clear()
    del first
    gc.collect()
    assert gone() is None
    assert fn(second, X).tolist() == [6.0, 12.0, 18.0]


def test_tensors_as_arguments():
    def make(log):
        @functools.lru_cache
        def total(t):
            log.append(tuple(t.shape))
            return t.sum().item()

        return lambda x: x + total(x) + total(x), total

    twins = Twins(make)
    a, b = torch.ones(3), torch.ones(3)
    for x in (a, a, b):
        twins.call(x)
    a.add_(1)
    twins.call(a)  # the cache knows the tensor, not its contents
    assert twins.log == [(3,), (3,)]


def test_numbers_that_change():
    def make(log):
        @functools.lru_cache
        def double(n):
            log.append(n)
            return n * 2

        return lambda x, n: x + double(n), double

    twins = Twins(make)
    for n in (1, 2, 3, 4, 3, 5, 6, 7, 8, 9, 10, 11, 2):
        twins.call(X, n)


@pytest.mark.parametrize("argument", [[1], {"a": 1}])
def test_arguments_without_a_hash(argument):
    def make(log):
        @functools.lru_cache
        def size(items):
            log.append("never")
            return len(items)

        return lambda x: x + size(argument), size

    twins = Twins(make)
    for _ in range(2):
        twins.call(X)


def test_comparison_of_their_own_runs_no_more_often():
    def make(log):
        class Key:
            def __hash__(self):
                log.append("hash")
                return 1

            def __eq__(self, other):
                log.append("eq")
                return True

        keys = Key(), Key()

        @functools.lru_cache
        def value(key):
            return 3

        return lambda x: x + value(keys[0]) + value(keys[1]), value

    twins = Twins(make)
    for _ in range(3):
        twins.call(X)


def test_sizes_and_tuples_as_arguments():
    def make():
        calls = []

        @functools.cache
        def weight(shape, kind=(str, int)):
            calls.append(shape)
            return torch.ones(shape) * len(kind)

        @functools.lru_cache
        def triple(n):
            calls.append(n)
            return n * 3

        def fn(x):
            return x * weight(tuple(x.shape)) + weight(x.shape, kind=(str, "q")) + triple(x.shape[0])

        return fn, lambda: (list(calls), weight.cache_info(), triple.cache_info())

    pair = Pair(make, fullgraph=True)
    for n in (2, 3, 4, 5, 3, 2):
        pair.call(torch.ones(n))
