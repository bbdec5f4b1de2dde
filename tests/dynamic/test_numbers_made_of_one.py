"""Two numbers that are made of one that changes, as in schedules of learning rates, are compared by a guard."""

import math

import pytest
import torch

import framejit

from comparison import assert_same

OF_COUNTS = {
    "the inverse of a root after warming up": lambda n: 64**-0.5 * min((n + 1) ** -0.5, (n + 1) * 8**-1.5),
    "up, then down": lambda n: min((n + 1) / 5, (14 - n) / 10),
    "with a count itself": lambda n: 2.0 if n * 0.25 + 3 > n else 1.0,
    "a count on the left": lambda n: 2.0 if n <= math.sqrt(n + 20) else n * 0.5,
    "equal somewhere": lambda n: 3.0 if n * 0.5 == n - 4 else 1.0 / (n + 1),
}
OF_FLOATS = {
    "a line and a curve": lambda t: t * 2 if t * t < t + 1 else t - 1,
    "which is greater": lambda t: max(t, 3 - t),
}


def check(number_of, numbers, entries):
    def f(x, number):
        return x * number_of(number)

    compiled, x = framejit.optimize(f), torch.randn(3)
    with framejit.config.patch(debug=True):
        for number in numbers:
            assert_same(f(x, number), compiled(x, number))
    assert len(compiled.entries) <= entries


@pytest.mark.parametrize("name", OF_COUNTS)
def test_of_a_count(name):
    check(OF_COUNTS[name], [*range(20), 7, 0, 9], 4)


@pytest.mark.parametrize("name", OF_FLOATS)
def test_of_a_float(name):
    check(OF_FLOATS[name], [0.1 * number for number in range(1, 40)], 4)


def test_of_sizes():
    def f(x):
        n = x.shape[0]
        return x * 2 if n**-0.5 < n * 0.1 else x + 1

    compiled = framejit.optimize(f, dynamic=True)
    for size in (2, 3, 4, 5, 6, 7, 12, 3, 5):
        x = torch.randn(size)
        assert_same(f(x), compiled(x))
    assert len(compiled.entries) <= 3


def test_numbers_too_great_for_a_float_are_compared_exactly():
    def f(x, n):
        return x + 1 if n * 1.0 >= n else x - 1

    compiled, x = framejit.optimize(f), torch.randn(3)
    for n in (5, 6, 7, 2**53, 2**53 + 1, 2**53 + 3, 2**60 + 1, 8):
        assert_same(f(x, n), compiled(x, n))
