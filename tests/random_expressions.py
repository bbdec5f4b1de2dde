"""Random expressions over sizes."""

from __future__ import annotations

import operator
import random

from framejit.symbols.expression import OPERATIONS, Expression, Symbol

PLAIN = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "min": min,
    "max": max,
}


def grown(rng: random.Random, symbols: list[Symbol], depth: int):
    """A random expression, and the same as a function of the symbols' values."""
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.6:
            symbol = rng.choice(symbols)
            return Expression.of(symbol), lambda values: values[symbol]
        number = rng.randint(-6, 6)
        return Expression.constant(number), lambda values: number
    op = rng.choice(list(PLAIN))
    (a, plain_a), (b, plain_b) = grown(rng, symbols, depth - 1), grown(rng, symbols, depth - 1)
    if op in ("//", "%") and b.hint == 0:
        op = "+"
    return OPERATIONS[op](a, b), lambda values: PLAIN[op](plain_a(values), plain_b(values))
