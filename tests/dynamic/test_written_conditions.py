"""Conditions on sizes as one function: what asking them one by one gives."""

from __future__ import annotations

import random

import pytest
from random_expressions import grown

from framejit.backends.fuse.sizes.by_size import OFTEN, Variant, holds
from framejit.backends.fuse.sizes.written_expressions import all_hold
from framejit.symbols.conditions import Condition
from framejit.symbols.expression import INFINITE, Expression, Symbol

SYMBOLS = [Symbol(f"s{i}", 5, (0, INFINITE)) for i in range(3)]


def some(rng: random.Random) -> list[Condition]:
    made: list[Condition] = []
    while len(made) < rng.randrange(4):
        try:
            made.append(Condition(grown(rng, SYMBOLS, 3)[0], rng.choice(("==", "<")), rng.random() < 0.5))
        except ZeroDivisionError:
            pass
    return made


@pytest.mark.parametrize("seed", range(100))
def test_random_conditions(seed: int) -> None:
    """Each before and after a variant has them written."""
    rng = random.Random(seed)
    conditions = some(rng)
    asked = [tuple(rng.randint(0, 6) for _ in SYMBOLS) for _ in range(3 * OFTEN)]
    expected = [all(holds(condition, dict(zip(SYMBOLS, sizes))) for condition in conditions) for sizes in asked]
    assert list(map(all_hold(conditions, SYMBOLS), asked)) == expected
    variant = Variant([], tuple(conditions), tuple(SYMBOLS), lambda sizes: lambda: None, lambda: None)
    assert list(map(variant.fits, asked)) == expected
    assert variant._written is not None


def test_one_that_divides_by_zero_does_not_hold() -> None:
    n, m, _ = map(Expression.of, SYMBOLS)
    for outcome in (True, False):
        written = all_hold([Condition(n // m, "==", outcome)], SYMBOLS)
        assert not written((3, 0, 1)) and written((3, 4, 1)) is outcome


def test_another_symbol_is_refused() -> None:
    with pytest.raises(KeyError):
        all_hold([Condition(Expression.of(Symbol("t", 4)), "<", True)], SYMBOLS)
