"""Steps of a plan with numbers for symbolic sizes, made by a function: what walking through them gives."""

from __future__ import annotations

import random

import pytest
import torch
from random_expressions import grown

from framejit.backends.fuse.plan.sized_steps import for_sizes, has_symbols
from framejit.backends.fuse.sizes.symbolic_size import concrete, symbolic_size
from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import INFINITE, Expression, Symbol
from framejit.symbols.sym_node import symbolic


def tree(rng, symbols, conditions, depth):
    kind = rng.randrange(6 if depth else 3)
    if kind == 0:
        return rng.choice([None, True, 3, -7, 1.5, "text", torch.float32, torch.device("cpu"), (), [], {}])
    if kind < 3:
        expression = grown(rng, symbols, 3)[0]
        if rng.random() < 0.3 and expression.value is None:
            return symbolic(expression, conditions)
        return symbolic_size(expression, conditions)
    items = [tree(rng, symbols, conditions, depth - 1) for _ in range(rng.randrange(4))]
    return tuple(items) if kind == 3 else items if kind == 4 else dict(enumerate(items))


@pytest.mark.parametrize("seed", range(200))
def test_random_structures(seed):
    rng = random.Random(seed)
    symbols = [Symbol(f"s{i}", rng.randint(2, 12), (2, INFINITE)) for i in range(3)]
    conditions = Conditions(lambda condition: None)
    try:
        made = (tree(rng, symbols, conditions, 3), tree(rng, symbols, conditions, 3))
    except ZeroDivisionError:
        return
    function = for_sizes(made)
    for _ in range(5):
        sizes = {symbol: rng.randint(2, 40) for symbol in symbols}
        try:
            expected = concrete(made, sizes)
        except ZeroDivisionError:
            with pytest.raises(ZeroDivisionError):
                function(sizes)
            continue
        got = function(sizes)
        assert got == expected and repr(got) == repr(expected)


def test_expected_shapes_are_repaired_for_the_sizes():
    n = Symbol("n", 5, (2, INFINITE))
    size = symbolic_size(Expression.of(n), Conditions(lambda condition: None))
    step = ("expect", 3, (2, size), (1, 2), None)
    assert has_symbols(step)
    kind, slot, shape, strides, repair = for_sizes(step)({n: 7})
    assert (kind, slot, shape, strides) == ("expect", 3, (2, 7), (1, 2))
    repaired = repair(torch.arange(14.0).view(2, 7))
    assert repaired.stride() == (1, 2) and torch.equal(repaired, torch.arange(14.0).view(2, 7))


def test_a_structure_without_symbols_is_given_as_it_is():
    steps = [("free", 1)]
    assert for_sizes(steps)({}) is steps
