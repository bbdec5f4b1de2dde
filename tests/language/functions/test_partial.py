"""functools.partial, cmp_to_key, and the operator module's objects."""
import functools
import operator

import torch

import framejit

from support import check

X = torch.ones(2)


def collect(*args, **kwargs):
    return args, kwargs


def test_partial_of_a_partial():
    def fn(x):
        p = functools.partial(collect, 1, a=2)
        q = functools.partial(p, 3, a=4, b=5)
        p.keywords["z"] = 9
        merged = q(6, c=7, b=0), q.func is collect, q.args, q.keywords, p(), p.keywords is p.keywords
        return x + 1, merged, callable(p), hasattr(p, "__call__"), hasattr(p, "foo")  # noqa: B004  the attribute is meant

    check(fn, X)


def test_partial_with_attributes():
    def fn(x):
        p = functools.partial(collect, 1)
        p.tag = 3
        q = functools.partial(p, 2)
        return x + 1, p.tag, q.func is p, q(3), p.__dict__

    check(fn, X)
    made = framejit.optimize(
        lambda x: (setattr(p := functools.partial(collect, 1, k=2), "tag", x + 1), p)[1], backend="eager"
    )(X)
    assert made.tag.equal(X + 1) and made(0) == ((1, 0), {"k": 2})


def test_existing_partials():
    plain, tagged, nested = (
        functools.partial(collect, 1, a=2),
        functools.partial(collect, 1),
        functools.partial(functools.partial(collect, 1), 2, b=3),
    )
    tagged.tag = "t"

    def fn(x, which):
        p = (plain, tagged, nested)[which]
        return x + 1, p(6, c=7), p.func is collect, p.args, p.keywords, getattr(p, "tag", None)

    check(fn, X, 0, changed=[(X, 1), (X, 2)])


def test_what_is_refused():
    def fn(x):
        log = []
        wrong = [
            lambda: functools.partial(3), lambda: operator.index(1.5), lambda: operator.itemgetter(1)(),
            lambda: operator.itemgetter(1)(1, 2),
            lambda: operator.attrgetter(3), lambda: operator.delitem(3, 1), lambda: operator.setitem((1,), 0, 1),
            lambda: operator.indexOf([], 1),
        ]
        for call in wrong:
            try:
                call()
            except (TypeError, ValueError) as e:
                log.append((type(e), str(e)))
        return x + 1, log

    check(fn, X, graphs=None, breaks=None)


CALLER = operator.methodcaller("split", ",", maxsplit=1)


def test_operator():
    def fn(x):
        counts = operator.countOf([1, 1, 2], 1), operator.indexOf([1, 2], 2)
        others = operator.call(collect, 1, a=2), operator.index(3), operator.pos(-3), operator.is_not(1, 2)
        return (
            x + 1, counts, others, CALLER("a,b,c"), operator.itemgetter(1, 0)([1, 2]),
            operator.attrgetter("real", "imag")(3),
        )

    check(fn, X)


def test_cmp_to_key():
    def fn(x):
        log = []

        def compare(a, b):
            log.append((a, b))
            return b - a

        key = functools.cmp_to_key(compare)
        return x + 1, sorted([3, 1, 2], key=key), key(1) < key(2), key(1) == key(1), log

    check(fn, X)
    key = framejit.optimize(lambda x: (x + 1, functools.cmp_to_key(lambda a, b: b - a)), backend="eager")(X)[1]
    assert sorted([1, 2], key=key) == [2, 1] and type(key) is type(functools.cmp_to_key(min))
