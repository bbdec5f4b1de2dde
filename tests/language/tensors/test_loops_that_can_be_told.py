"""Loops on data that are no node of the graph: where that could be told from the program, the graph breaks at the
loop's condition."""
import itertools

import pytest
import torch

import framejit
from tests.language.tensors.loop_results import OTHERS, X, same

from support import CountingBackend, Pair


def either(x):
    n = 0
    while x.max() > 4 or n < 2:
        x = x / 2
        n += 1
    return x * n


def conditional(x):
    if x.sum() > 1:
        while x.max() > 1:
            x = x / 2
    return x + 1


def other_shapes(x):
    while x.numel() > 1 and x.sum() > 1:
        x = x[1:] + 0
    return x + 1


def other_dtypes(x):
    x = x.int()
    while x.abs().max() > 1:
        x = x / 2
    return x + 1


def other_strides(x):
    x = x.reshape(2, 2)
    while x.abs().max() > 1:
        x = x.T / 2
    return x + 1


def in_place(x):
    y = x * 1
    while y.abs().max() > 1:
        y /= 2
    return y


def argument_in_place(x):
    while x.abs().max() > 1:
        x /= 2
    return x + 1


def written_afterwards(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    y.add_(1)
    return y, x


def input_written_afterwards(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    x.add_(1)
    return y * 2


def identity(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    return y is x, y + 1


def view_afterwards(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    return y[1:], y


def two_names(x):
    y = z = x * 1
    while y.abs().max() > 1:
        y = z = y / 2
    return y, z


def swapped(x):
    y, z = x * 1, x * 2
    while y.abs().max() > 1:
        y, z = z / 8, y
    return y, z


def view_of_what_is_carried(x):
    x = x * 1
    y = x
    while y.abs().max() > 1:
        x = x / 2
        y = x[:]
    return x, y


def two_names_in_the_middle(x):
    y = z = x * 1
    n = 0
    while y.abs().max() > 1:
        y = y / 2
        n += 1
        if y.sum() < 3:
            break
        z = y
    z.add_(n)
    return y, z


def inner_loop_takes_over(x):
    y, z = x * 1, x * 2
    n = 0
    while n < 1 and y.sum() < 100:
        n += 1
        y = y - 1
        k = 0
        while y.sum() < 3 and k < 2:
            k += 1
            z = y
    z.mul_(2)
    return y, z


def kept_by_a_branch(x):
    y, n = x.float(), 0
    while y.abs().sum() > 1 and n < 2:
        n += 1
        if y.sum() > 0:
            y = y - 1
    return y, y is x


def handed_out_by_a_branch(x):
    y, n = x.float(), 0
    while y.abs().sum() > 1 and n < 2:
        n += 1
        if y.sum() > 0:
            y = y - 1
    return y


def view_of_what_is_made(x):
    y, n = x.reshape(2, 2) * 1, 0
    while n < 3 and y.sum() < 100:
        n += 1
        y = (x + n).view(2, 2)
    return y, n


def strides_of_a_view(x):
    y, n = torch.zeros(3, 3), 0
    while n < 2 and y.sum() < 100:
        n += 1
        y = (torch.ones(3, 4) * x)[:, 1:]
    return y.is_contiguous(), y * 2


def asks_in_the_loop(x):
    y = z = x * 1
    n, same = 0, 0
    while y.abs().max() > 1 and n < 5:
        if y is z:
            same += 1
        n += 1
        y = y / 2
    return y, same


def writes_around(x):
    y, n = x * 1, 0
    while y.sum() < 9 and n < 5:
        y.add_(1)
        n += 1
    return y, n


def left_as_another_kind(x):
    found = False
    while x.abs().max() > 1:
        x = x / 2
        found = x.sum() > 1
        if x.sum() < 2:
            break
        found = False
    return found, x * 1


def left_as_another_dtype(x):
    y = x.sum() * 1
    while x.abs().max() > 1:
        x = x / 2
        y = x.sum().double()
        if x.sum() < 2:
            break
        y = x.sum() * 1
    return y * 1, x * 1


def left_as_none(x):
    y = None
    while x.abs().max() > 1:
        x = x / 2
        y = x + 1
        if x.sum() < 2:
            break
        y = None
    return y, x * 1


def else_clause(x):
    while x.abs().max() > 1:
        x = x / 2
        if x.sum() < -2:
            break
    else:
        x = x + 100
    return x + 1


def continues(x):
    while x.abs().max() > 1:
        x = x / 2
        if x.sum() > 1:
            continue
        x = x * 0.9
    return x + 1


def number_is_size(x):
    n = 1
    while x.abs().max() > 1:
        x = x / 2
        n += 1
    return torch.ones(n) * x.sum()


def large_ints(x):
    n = 3
    while x.abs().max() > 1:
        x = x / 1.01
        n = n * 3
    return x * 1, n


def int_becomes_float(x):
    n = 1
    while x.abs().max() > 1:
        x = x / 2
        n = n / 2
    return x * 1, n


def bound_inside(x):
    while x.abs().max() > 1:
        x = x / 2
        y = x + 1
    return y if x.sum() > 100 else x * 2


def returns_in_the_middle(x):
    while x.abs().max() > 1:
        x = x / 2
        if x.sum() < -1:
            return x * 10
    return x + 1


def in_try(x):
    try:
        while x.abs().max() > 1:
            x = x / 2
    except RuntimeError:
        x = x + 100
    return x + 1


def over_a_list(x):
    for y in [x, x + 1, x + 2]:
        x = x + y
        if x.sum() > 10:
            break
    return x + 1


def iterator_goes_on(x):
    numbers = iter(range(20))
    for i in numbers:
        x = x / 2 + i
        if x.max() > 3:
            break
    return x, next(numbers)


def draws(x):
    while x.mean() < 3:
        x = x + torch.rand_like(x)
        if torch.rand(()) < 0.1:
            break
    return x + torch.rand(4)


def is_a_key(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    return {x: 1, y: 2}[x], y in {x: 1}, y + 1


def hung_afterwards(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    y.mark = 1
    return hasattr(x, "mark"), y


def hung_before(x):
    y, x.mark = x, 1
    while y.abs().max() > 1:
        y = y / 2
    return hasattr(y, "mark"), y


def steps_a_count(x):
    numbers = itertools.count()
    while x.max() > 1:
        x = x / 2 - next(numbers)
    return x * 1, next(numbers)


def steps_a_generator(x):
    numbers = (n * n for n in range(20))
    while x.max() > 1:
        x = x / 2 - next(numbers)
    return x * 1, next(numbers)


def steps_several(x):
    numbers = zip(enumerate(reversed([1, 2, 3, 4, 5, 6, 7, 8])), "abcdefgh")
    while x.max() > 1:
        [(n, m), text] = next(numbers)
        x = x / 2 - n * m
    return x * 1, len([*numbers])


def changes_defaults(x):
    def scale(by=0.5):
        return by

    while x.abs().max() > 1:
        x = x * scale()
        scale.__defaults__ = (scale() * 0.75,)
    return x * 1, scale()


BREAKS = [
    other_shapes, other_dtypes, other_strides, in_place, argument_in_place, written_afterwards,
    input_written_afterwards, identity, view_afterwards, two_names, swapped, view_of_what_is_carried, else_clause,
    two_names_in_the_middle, inner_loop_takes_over, kept_by_a_branch, handed_out_by_a_branch, asks_in_the_loop,
    writes_around, view_of_what_is_made, strides_of_a_view, left_as_another_kind, left_as_another_dtype, left_as_none,
    continues, number_is_size, large_ints, int_becomes_float, returns_in_the_middle, in_try, over_a_list,
    iterator_goes_on, draws, conditional, either, is_a_key, hung_afterwards, hung_before, steps_a_count,
    steps_a_generator, steps_several, changes_defaults,
]


@pytest.mark.parametrize("program", BREAKS)
@pytest.mark.parametrize("backend", ["fuse", "counting"])
def test_what_could_be_told(program, backend):
    fast = framejit.optimize(program, backend=CountingBackend() if backend == "counting" else backend)
    for x in (X, *OTHERS, X):
        same(program, fast, x)


@pytest.mark.parametrize("program", [bound_inside])
def test_exceptions(program):
    pair = Pair(lambda: program)
    for x in (X * 0, X * 100, X):
        pair.call(x)


WEIGHT = torch.nn.Parameter(X.clone(), requires_grad=False)


def parameter(x):
    y = WEIGHT
    while y.max() > x.max():
        y = y / 2
    return type(y).__name__, isinstance(y, torch.nn.Parameter), y * 1


def test_parameters():
    pair = Pair(lambda: parameter)
    for x in (X, X / 10, X):
        pair.call(x)


def asks_for_a_mark(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    return getattr(y, "mark", None), isinstance(y, torch.nn.Parameter), y


def test_attributes_of_what_may_be_an_argument():
    pair = Pair(lambda: asks_for_a_mark)
    pair.call(X)
    pair.expect(graphs=1, breaks=0)
    marked = X / 10
    marked.mark = "a"
    for x in (marked, X / 10, X):
        pair.call(x)
