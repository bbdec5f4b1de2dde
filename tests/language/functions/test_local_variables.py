"""locals() and eval() in captured code: what they tell of the frame they stand in."""
import sys

import pytest
import torch

import framejit

from support import Pair, check

X = torch.tensor([1.0, 2.0])


def read(x, k=2):
    a = 3
    return x * locals()["a"] + locals()["k"], sorted(locals())


def order(x, *rest, flag=True, **named):
    later = 1

    def inner():
        return later, x

    own = list(locals())
    later = inner()[0] + 1
    return x + 1, own, list(locals()), inner is locals()["inner"]


def written(x):
    a = 3
    seen = locals()
    seen["a"], seen["b"] = 5, 6
    first = dict(seen)
    c = 1
    again = locals()
    return x * a + c, first["a"], sorted(again), again is seen, "b" in again


def formatted(x):
    size, name = x.shape[0], "x"
    return x + 1, "{name} of {size}".format(**{k: v for k, v in locals().items() if k != "x"})


def closure(x):
    k = x.shape[0]

    def inner(y):
        z = y * k
        return z + locals()["k"], sorted(locals())

    return inner(x), sorted(locals())


def constants(x):
    return x * eval("2 + 3"), eval(" [1, 2][0]" if False else "(1, 'a') + (2.5,)"), eval("'a' * 3")


def same(fn):
    pair = Pair(lambda: fn)
    for factor in (1, 1, -1):
        pair.call(X * factor)


EACH = [read, order, written, formatted, closure, constants]


@pytest.mark.parametrize("fn", EACH)
def test_captured(fn):
    check(fn, X, fullgraph=True)


def test_arguments_that_change():
    def fn(x, k):
        own = locals()
        return x * own["k"], len(own)

    pair = Pair(lambda: fn, fullgraph=True)
    for k in (2, 3, 4.5):
        pair.call(X, k)


@pytest.mark.parametrize("breaks", [True, False])
def test_functions_that_break_run_as_a_whole(breaks):
    def fn(x):
        y = x + 1
        if breaks:
            print("here")
        z = 2
        return y * z, sorted(locals()), [name for name in locals() if name.startswith("__")]

    same(fn)

    def outer(x):
        w = x * 2
        return fn(w), w + 1

    same(outer)


def test_where_it_speaks_of_something_else():
    def handed_on(x, function):
        a = 1
        return x + 1, function(), a

    compiled = framejit.optimize(handed_on, backend="eager")
    assert sorted(compiled(X, locals)[1]) == sorted(handed_on(X, locals)[1])

    def generator(x):
        def parts():
            a = 1
            yield x * a
            yield sorted(locals())

        return list(parts())

    same(generator)

    def names(x):
        k = 3
        return eval("x * k"), eval("a + 1", {"a": k})

    same(names)


@pytest.mark.parametrize("text, error", [("1 / 0", ZeroDivisionError), ("1 +", SyntaxError), ("missing", NameError)])
def test_expressions_that_raise(text, error):
    def fn(x):
        y = x + 1
        return y, eval(text)

    check(fn, X, raises=error, traceback=False)


def test_one_dict_for_each_frame():
    def fn(x):
        return x + 1, locals() is locals()

    expected = sys.version_info < (3, 13)
    assert framejit.optimize(fn, backend="eager", fullgraph=True)(X)[1] is expected is fn(X)[1]
