"""Attributes of functions: their `__dict__` is one live dict, and every function has what all objects have."""
import functools

import torch

import framejit

from support import check

X = torch.ones(2)


def test_the_dict_of_a_function_made_inside_is_live():
    def fn(x):
        def inner():
            "doc"

        d = inner.__dict__
        d.update({"k": 1})
        inner.j, inner.me = 2, inner
        d["l"] = x
        del inner.j
        seen = [inner.k, sorted(d), vars(inner) is d, hasattr(inner, "zz"), hasattr(inner, "j"), getattr(inner, "k", 2), inner.me is inner]
        inner.__dict__ = {"q": 1}
        return x + 1, seen, inner.q, hasattr(inner, "k"), sorted(d)

    check(fn, X)


def test_what_every_function_has():
    def fn(x):
        inner = lambda v: v  # noqa: E731
        found = [hasattr(f, n) for f in (inner, check, functools.partial(inner), len, "a".upper) for n in ("__call__", "__class__", "__hash__", "nothing")]
        return x + 1, found, inner.__class__ is type(inner), inner.__call__(3)

    check(fn, X, graphs=None, breaks=None)


def test_wraps():
    def fn(x):
        def inner(v):
            "inner doc"
            return v + 1

        inner.tag = "t"

        @functools.wraps(inner)
        def outer(v):
            return inner(v)

        return outer(x), outer.__name__, outer.__doc__, outer.tag, outer.__wrapped__ is inner, sorted(outer.__dict__)

    check(fn, X)


def test_functions_leave_captured_code_with_their_dict():
    def fn(x):
        def inner():
            return 5

        inner.me, inner.value = inner, x + 1
        inner.__name__ = "other"
        return inner, inner.__dict__

    inner, namespace = framejit.optimize(fn, backend="eager")(X)
    assert inner.me is inner and inner.__dict__ is namespace and inner.__name__ == "other" and inner() == 5
    assert inner.value.equal(X + 1)


def test_existing_functions():
    def target():
        pass

    def fn(x):
        d = target.__dict__
        d["n"] = 5
        target.m = 6
        seen = target.n, sorted(d), target.c
        del target.m
        del d["n"]
        return x + 1, seen, hasattr(target, "m"), hasattr(target, "n")

    target.c = 0
    check(fn, X)
    assert target.__dict__ == {"c": 0}
