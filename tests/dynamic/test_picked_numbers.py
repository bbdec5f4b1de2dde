"""Numbers that tables have under an index or key which changes from call to call, as those of schedules, and dicts with
tuples of such numbers for keys."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch

from support import Pair

X = torch.arange(4.0)
CONSTANT = tuple(k / 4 for k in range(30))


def of_a_list():
    betas = [0.125 * k for k in range(30)]
    return lambda x, n: (x * betas[n] + betas[n - 1], betas[n] > 1.0, betas[-1 - n] / 2), betas


def of_tuples():
    alphas = tuple(2.0**-k for k in range(30))
    return lambda x, n: (x * alphas[n] + CONSTANT[n], CONSTANT[n + 1]), None


def of_a_dict():
    rates = {k: k * 0.5 for k in range(30)} | {"last": 3.0}
    return lambda x, n: (x * rates[n] + rates["last"], rates[n] + 1), rates


def of_a_counter_of_its_own():
    class Schedule:
        step, sigmas = 0, [1.0 / (k + 1) for k in range(30)]

    def fn(x, n):
        schedule = Schedule
        step = state["step"]
        state["step"] += 1
        return x * (schedule.sigmas[step + 1] - schedule.sigmas[step])

    state = {"step": 0}
    return fn, state


def whole_numbers():
    counts = [3 * k for k in range(30)]
    return lambda x, n: (x + counts[n], counts[n] % 2, [counts[n]]), counts


def tuple_keys():
    cache, state = {}, {"step": 0}

    def fn(x, n):
        state["step"] += 1
        step = state["step"]
        for layer in range(2):
            if (layer, step - 1) in cache:
                x = x + cache[layer, step - 1]
            cache[(layer, step)] = float(layer + step)
            cache["last", layer] = x.sum().item()
        return x + len(cache), cache[0, step], cache.get(("none", step))

    return fn, cache


def tuples_in_tuples():
    cache = defaultdict(list)

    def fn(x, n):
        cache[n, ("a", n + 1)].append(x)
        return x + len(cache)

    return fn, cache


PROGRAMS = {
    of_a_list: 2, of_tuples: 2, of_a_dict: 2, of_a_counter_of_its_own: 1, whole_numbers: 2, tuple_keys: 4,
    tuples_in_tuples: 3,
}
"""Each with how many entries it may take."""


@pytest.mark.parametrize("make", PROGRAMS)
def test_few_entries(make):
    pair = Pair(make)
    for n in range(9):
        pair.call(X + n, n)
    assert pair.graphs <= PROGRAMS[make], pair.story()
    assert not pair.breaks


def changed_around():
    table = [float(k) for k in range(30)]

    def fn(x, n):
        before = table[n]
        table[n] = 7.5
        table[n + 1] = table[n] + before
        return x * before + table[n + 1], before

    return fn, table


def changed_by_the_program():
    table = {k: 0.5 for k in range(30)}

    def fn(x, n):
        value = table[n]
        table[n] = value + 1
        return x * value, value

    return fn, table


def past_the_end():
    table = [0.5, 1.5, 2.5]

    def fn(x, n):
        try:
            return x * table[n]
        except IndexError as e:
            return x + 1, str(e)

    return fn, table


def of_other_kinds():
    table = [0.5, 1, "a", 2.5, None, 3, True, 1.0, 2.0]
    return lambda x, n: (x + 1, table[n], [table[n]]), table


def sizes():
    table = [2, 2, 4, 4, 2, 1, 4, 2, 1]
    return lambda x, n: x.reshape(table[n], -1).sum(0), table


def missing_keys():
    cache = {(0, 0): 1.5}

    def fn(x, n):
        try:
            found = cache[(0, n * 2)]
        except KeyError as e:
            found = e.args
        cache[(0, n + 1)] = n * 0.5
        return x + 1, found

    return fn, cache


def equal_keys():
    cache = {}

    def fn(x, n):
        cache[n % 2, n % 3] = n
        cache[True, 0] = x
        cache[n % 2, 0.0] = "float"
        return x + len(cache), [*cache]

    return fn, cache


class Key:
    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return 1

    def __eq__(self, other):
        return isinstance(other, Key) and self.n == other.n


def keys_of_the_program():
    cache = {}

    def fn(x, n):
        cache[(Key(n % 2), 0)] = n
        cache[(0, n)] = 2
        return x + len(cache)

    return fn, lambda: (len(cache), [*cache.values()])


@pytest.mark.parametrize(
    "make",
    [
        changed_around, changed_by_the_program, past_the_end, of_other_kinds, sizes, missing_keys, equal_keys,
        keys_of_the_program,
    ],
)
def test_values(make):
    pair = Pair(make)
    for n in range(9):
        pair.call(X + n, n)


def test_tables_that_change_between_calls():
    table = [0.5] * 9

    pair = Pair(lambda: lambda x, table, n: x * table[n])
    for n in range(6):
        table[n] = n + 0.25
        pair.call(X, table, n)
    table[3] = 3
    pair.call(X, table, 3)
    table[3] = torch.ones(4)
    pair.call(X, table, 3)
