"""Index arithmetic against plain integers: every simplification must keep the value, for every turn of the loops."""
from __future__ import annotations

import itertools
import random

import pytest
import torch

from framejit.backends.fuse.loop_ir.index import Index, Indirect, Quotient, Remainder, Var, flatten, strided, unflatten


def value_of(index: Index, turn: dict[Var, int]) -> int:
    total = index.const
    for atom, coefficient in index.terms.items():
        if isinstance(atom, Var):
            total += coefficient * turn[atom]
        elif isinstance(atom, Quotient):
            total += coefficient * (value_of(atom.index, turn) // atom.divisor)
        elif isinstance(atom, Remainder):
            total += coefficient * (value_of(atom.index, turn) % atom.divisor)
    return total


def divided(index: Index):
    """The indices that are divided in it, at any depth."""
    for atom in index.terms:
        if isinstance(atom, Quotient | Remainder):
            yield atom.index
            yield from divided(atom.index)


def turns(loops: list[Var]):
    for values in itertools.product(*(range(var.size) for var in loops)):
        yield dict(zip(loops, values))


@pytest.mark.parametrize("seed", range(60))
def test_random_arithmetic_keeps_its_value(seed: int):
    rng = random.Random(seed)
    loops = [Var(name, rng.choice((1, 2, 3, 4, 6, 8))) for name in "abc"]
    index, plain = Index.of(rng.choice(loops)), None
    history = []
    first = index
    for _ in range(rng.randint(1, 6)):
        kind = rng.choice(("add", "mul", "var", "div", "mod", "sub"))
        n = rng.choice((1, 2, 3, 4, 6, 8, 12))
        var = rng.choice(loops)
        history.append((kind, n, var))
        index = {
            "add": index + n, "sub": index - n, "mul": index * n, "var": index + Index.of(var) * n, "div": index // n,
            "mod": index % n,
        }[kind]
    for turn in turns(loops):
        plain = value_of(first, turn)
        for kind, n, var in history:
            plain = {
                "add": plain + n, "sub": plain - n, "mul": plain * n, "var": plain + turn[var] * n, "div": plain // n,
                "mod": plain % n,
            }[kind]
        assert value_of(index, turn) == plain, (history, turn)
        assert all(value_of(inside, turn) >= 0 for inside in divided(index)), (history, turn)
        low, high = index.bounds
        assert low <= plain <= high


@pytest.mark.parametrize("sizes", [(8, 12), (96,), (4, 2, 3, 4), (16, 6), (2, 3, 16), (1, 96), (3, 32)])
def test_reshaping_there_and_back(sizes: tuple[int, ...]):
    a, b = Var("a", 8), Var("b", 12)
    flat = flatten([a, b], [8, 12])
    there = unflatten(flat, sizes)
    back = flatten(there, sizes)
    for turn in turns([a, b]):
        assert value_of(back, turn) == value_of(flat, turn)
        assert all(0 <= value_of(index, turn) < size for index, size in zip(there, sizes))


def test_a_reshape_that_keeps_the_bounds_needs_no_division():
    a, b, c = Var("a", 8), Var("b", 12), Var("c", 5)
    assert unflatten(flatten([a, b, c], [8, 12, 5]), (8, 60)) == [Index.of(a), Index.of(b) * 5 + c]
    assert unflatten(flatten([a, b, c], [8, 12, 5]), (96, 5)) == [Index.of(a) * 12 + b, Index.of(c)]


def test_substitution_simplifies_again():
    a, b = Var("a", 96), Var("b", 5)
    index = (Index.of(a) // 12) * 12 + Index.of(a) % 12
    hi, lo = Var("hi", 8), Var("lo", 12)
    assert index.substitute({a: Index.of(hi) * 12 + lo}) == Index.of(hi) * 12 + lo
    assert strided([a, b], [5, 1], 7) == Index.of(a) * 5 + b + 7


def test_a_loop_of_one_turn_stays_at_zero():
    assert Index.of(Var("one", 1)) == Index({})


def test_indirect_values_have_the_bounds_they_were_given():
    from framejit.backends.fuse.loop_ir import expr

    position = expr.cast(expr.load("ids", Index.of(Var("a", 4)), torch.int64), torch.int64)
    index = Index({Indirect(position, 100): 768}) + Var("b", 768)
    assert index.bounds == (0, 99 * 768 + 767)
    assert index.vars() == {Var("a", 4), Var("b", 768)}
