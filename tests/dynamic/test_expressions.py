"""Expressions over sizes: equal to Python's integers for all values of their symbols, within their bounds, and
questions answered once."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from random_expressions import grown

from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import INFINITE, Expression, Symbol, evaluate
from framejit.symbols.sym_node import expression_of, symbolic


@pytest.mark.parametrize("seed", range(300))
def test_random_expressions_equal_python(seed):
    rng = random.Random(seed)
    symbols = [Symbol(f"s{i}", rng.randint(2, 12), (2, INFINITE)) for i in range(3)]
    try:
        expression, plain = grown(rng, symbols, 4)
    except ZeroDivisionError:
        return
    for numbers in itertools.product((2, 3, 7, 12, 40), repeat=3):
        values = dict(zip(symbols, numbers))
        try:
            expected = plain(values)
        except ZeroDivisionError:
            continue
        try:
            got = evaluate(expression, values)
        except ZeroDivisionError:
            continue  # a divisor that is 0 in a part that another form does not have
        low, high = expression.bounds
        assert got == expected
        assert low <= expected <= high
    try:
        assert expression.hint == plain({symbol: symbol.hint for symbol in symbols})
    except ZeroDivisionError:
        pass


@pytest.fixture
def sizes():
    conditions = Conditions()
    symbols = [Expression.of(Symbol(name, hint, (2, INFINITE))) for name, hint in (("a", 8), ("b", 12))]
    return conditions, *(symbolic(symbol, conditions) for symbol in symbols)


@pytest.mark.parametrize(
    "simplified",
    [
        lambda a, b: (a * b // a, b),
        lambda a, b: ((a + b - b) * 1, a),
        lambda a, b: ((4 * a + 3) // 4, a),
        lambda a, b: ((a * b * 64) // (b * 64), a),
        lambda a, b: (4 * a % 2, 0),
        lambda a, b: ((a - 0 + 1 - 1) // 1, a),
        lambda a, b: (torch.sym_max(a, 1), a),
        lambda a, b: (torch.sym_min(a + 3, a), a),
    ],
)
def test_what_simplifies(sizes, simplified):
    conditions, a, b = sizes
    left, right = simplified(a, b)
    assert expression_of(left) == expression_of(right)
    assert not list(conditions)


def test_a_question_is_kept_once_and_what_follows_is_not(sizes):
    conditions, a, b = sizes
    assert not a == 1 and a > 0 and a * b >= 4 and not a == 0
    assert not list(conditions)  # sizes are 2 at least
    assert a < 10 and a < 10 and 2 * a < 20
    assert [str(c) for c in conditions] == ["a < 10"]


def test_an_equation_unites(sizes):
    conditions, a, b = sizes
    assert not a == b
    assert a + 4 == b
    known = len(list(conditions))
    assert b - a == 4 and b > a and not b == a and b * 2 == 2 * a + 8
    assert len(list(conditions)) == known


def test_a_number_that_is_asked_for_is_fixed(sizes):
    conditions, a, b = sizes
    assert list(range(a)) == list(range(8))
    assert [str(c) for c in conditions] == ["8 == a"]
    assert int(a) == 8 and a * 2 == 16 and len(list(conditions)) == 1
    assert float(b) / 2 == 6.0
    assert [str(c) for c in conditions][1:] == ["12 == b"]


def test_only_what_was_true_is_kept_of_and_and_or(sizes):
    conditions, a, b = sizes
    assert not (a > 100) & (b < 3)
    assert len(list(conditions)) == 1
    assert (a > 5) | (b < 3)
    assert len(list(conditions)) == 2


def test_text_says_what_is_divided_by_what():
    a, b = (Expression.of(Symbol(name, 6, (2, 100))) for name in "ab")
    one, eight = Expression.constant(1), Expression.constant(8)
    texts = [str(each) for each in ((a + one) // eight, a % (a * b), a // (b + one), (a * b) // eight)]
    assert texts == ["((a + 1) // 8)", "(a % (a*b))", "(a // (b + 1))", "(a*b // 8)"]
    assert ((a + eight - one) // eight).bounds == (1, 13)


def test_quotients_in_quotients_end_as_numbers():
    """Each step writes what came before it three times: after forty no computer could hold it."""
    conditions = Conditions()
    size = symbolic(Expression.of(Symbol("n", 1000, (2, INFINITE))), conditions)
    plain = 1000
    for _ in range(40):
        size = size // 2 + size % 3 + (size + 1) // 5
        plain = plain // 2 + plain % 3 + (plain + 1) // 5
    assert expression_of(size).value == plain
    assert [str(condition) for condition in conditions] == ["1000 == n"]
    assert len(str(size)) < 10


def test_long_sums_stay_open():
    conditions = Conditions()
    symbols = [Symbol(f"s{i}", i + 2, (2, INFINITE)) for i in range(1000)]
    size = sum(symbolic(Expression.of(symbol), conditions) for symbol in symbols)
    assert expression_of(size).value is None and not list(conditions)


def test_nothing_is_assumed_once_the_conditions_are_taken(sizes):
    conditions, a, b = sizes
    assert a < b
    taken = conditions.taken()
    assert [str(condition) for condition in taken] == ["a < b"]
    assert a < b
    with pytest.raises(AssertionError, match="conditions on sizes were taken"):
        bool(a > 5)
