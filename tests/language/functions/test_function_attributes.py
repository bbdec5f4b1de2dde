"""Attributes of functions: their `__dict__` is one live dict, and every function has what all objects have."""
import functools
import types

import pytest
import torch

import framejit

from support import check, check_state

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
        seen = [
            inner.k, sorted(d), vars(inner) is d, hasattr(inner, "zz"), hasattr(inner, "j"), getattr(inner, "k", 2),
            inner.me is inner,
        ]
        inner.__dict__ = {"q": 1}
        return x + 1, seen, inner.q, hasattr(inner, "k"), sorted(d)

    check(fn, X)


def test_what_every_function_has():
    def fn(x):
        inner = lambda v: v  # noqa: E731
        found = [
            hasattr(f, n)
            for f in (inner, check, functools.partial(inner), len, "a".upper)
            for n in ("__call__", "__class__", "__hash__", "nothing")
        ]
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


class Named:
    name = "first"

    def method(self, *args):
        "doc"
        return self.name, args

    @classmethod
    def of_class(cls, *args):
        return cls.__name__, args


METHODS = {
    "__call__": lambda m: m.__call__(1),
    "__get__": lambda m: (
        (m.__get__(Named(), Named)(2), m.__get__(None, Named)(3)) if hasattr(types.MethodType, "__get__") else None
    ),
    "__eq__": lambda m: (m.__eq__(m), m.__ne__(m), m.__eq__(m.__func__), m.__eq__(3)),
    "__hash__": lambda m: m.__hash__() == hash(m),
    "__repr__": lambda m: (m.__repr__() == repr(m), m.__str__() == str(m), f"{m}" == m.__format__("")),
    "__dir__": lambda m: sorted(m.__dir__()) == sorted(dir(types.MethodType)),
    "__reduce__": lambda m: (m.__reduce__()[1][1], m.__reduce_ex__(4)[1][1]),
    "__getattribute__": lambda m: (m.__getattribute__("__name__"), m.__getattribute__("__func__").__name__),
    "of its function": lambda m: (
        m.__name__, m.__qualname__, m.__doc__, m.__code__.co_name, m.__defaults__, hasattr(m, "__closure__"),
        hasattr(m, "x"),
    ),
}


@pytest.mark.parametrize("part", METHODS)
@pytest.mark.parametrize("made", ["outside", "inside", "of a class"])
def test_what_a_bound_method_has_is_its_own_before_its_functions(part, made):
    use, outside = METHODS[part], Named().method

    def fn(x):
        method = outside if made == "outside" else Named().method if made == "inside" else Named.of_class
        return x + 1, use(method)

    check_state(lambda: fn, (X,), (X,), graphs=None, breaks=None)


@pytest.mark.parametrize(
    "change", [lambda m: m.__setattr__("q", 1), lambda m: m.__delattr__("q"), lambda m: setattr(m, "q", 1)]
)
def test_a_bound_method_takes_no_attributes(change):
    def fn(x):
        y = x + 1
        change(Named().method)
        return y

    check(fn, X, raises=AttributeError)
    assert not hasattr(Named.method, "q")


def test_a_class_method_of_what_cannot_be_called():
    class Holds:
        nothing = classmethod(None)

    def fn(x):
        found = Holds.nothing
        return x + 1, type(found).__name__, callable(found)

    check(fn, X, graphs=None, breaks=None)


def test_an_optimized_function_keeps_its_attributes_where_captured_code_finds_them():
    @framejit.optimize(backend="eager")
    def counted(x):
        counted.calls += 1
        return x * counted.calls, hasattr(counted, "limit")

    def caller(x):
        counted.calls *= 10
        return counted(x)

    counted.calls = 0
    outer = framejit.optimize(caller, backend="eager")
    seen = [counted(X), counted(X), outer(X), outer(X)]
    counted.limit = 3
    seen.append(counted(X))
    assert [(float(y[0]), limited) for y, limited in seen] == [
        (1, False), (2, False), (21, False), (211, False), (212, True)
    ]
    assert counted.calls == 212


def test_defaults_and_code_may_be_set_on_an_optimized_function():
    @framejit.optimize(backend="eager")
    def fn(x, a=1, *, b=2):
        return x * a + b

    def other(x, a=1, *, b=2):
        return x - a - b

    assert fn(X).tolist() == [3, 3]
    fn.__defaults__, fn.__kwdefaults__ = (5,), {"b": 9}
    assert fn(X).tolist() == [14, 14]
    fn.__code__ = other.__code__
    assert fn(X).tolist() == [-13, -13]
    fn.__defaults__ = None
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        fn(X)


def test_an_optimized_function_may_wrap_another():
    def deco(fn):
        @functools.wraps(fn)
        @framejit.optimize(backend="eager")
        def wrapper(*args):
            return fn(*args) + 1

        return wrapper

    @deco
    def doubled(x):
        return x * 2

    assert doubled(X).tolist() == [3, 3] and doubled.__wrapped__(X).tolist() == [2, 2]
    assert doubled.__name__ == "doubled"
