"""Breaks in comprehensions, whose variables are their own: from 3.12 on the compiler puts them into the function, and
swaps variables and cells."""
import torch

import framejit

from support import check

X = torch.arange(6.0).reshape(3, 2)
SOME = range(1, 12)


def marked(value):
    framejit.graph_break()
    return value


def test_variable_shadows_a_local():
    def fn(x):
        i = "outer"
        ys = [marked(x * i) for i in range(3)]
        return ys, i

    check(fn, X, graphs=SOME, breaks=1)


def test_variable_is_captured_by_closures():
    def fn(x):
        fs = [marked(lambda t: t + i) for i in range(3)]  # noqa: B023 late binding is the point
        return [f(x) for f in fs]

    check(fn, X, graphs=SOME, breaks=1)


def test_captured_variable_shadows_a_local():
    def fn(x):
        i = 5
        fs = [marked(lambda t: t + i) for i in range(3)]  # noqa: B023
        return [f(x) for f in fs], i

    check(fn, X, graphs=SOME, breaks=1)


def test_captured_variable_shadows_a_parameter():
    def fn(x, i):
        fs = [marked(lambda t: t + i) for i in range(3)]  # noqa: B023
        return [f(x) for f in fs], i

    check(fn, X, 7, graphs=SOME, breaks=1)


def test_captured_variable_after_a_break_before():
    def fn(x, i):
        y = x + 1
        framejit.graph_break()
        fs = [lambda t: t + i for i in range(3)]  # noqa: B023
        return [f(y) for f in fs], i

    check(fn, X, 7, graphs=SOME, breaks=1)


def test_break_in_the_iterable_before_the_first_item():
    def fn(x, i):
        fs = [lambda t: t + i for i in torch.nonzero(x).tolist()[0]]  # noqa: B023
        return [f(x) for f in fs], i

    check(fn, X, 7, graphs=SOME, breaks=range(1, 3))


def test_exception_puts_the_shadowed_variable_back():
    def fn(x, ds):
        d = 3
        try:
            ys = [marked((x / (10 // d), lambda: d))[0] for d in ds]  # noqa: B023
        except ZeroDivisionError as e:
            ys = x - 1, str(e)
        return ys, d

    check(fn, X, [1, 0], graphs=SOME, breaks=range(1, 3), ops=None)


def test_nested_with_the_same_variable():
    def fn(x):
        return [[marked((x[i, 0], lambda: i))[0] for i in range(i, 3)] for i in range(2)]  # noqa: B023

    check(fn, X, graphs=range(0, 12), breaks=1, ops=None)
