"""A dispatcher gives each argument slot the value that a plain call would, and behaves like its function in every other
respect."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import sys
from typing import Any

import pytest

from framejit import _native as native

from native_support import entry_for, flat, never, replaced, tree


def plain(a, b):
    return (a, b)


def defaults(a, b=2, c=3):
    return (a, b, c)


def keyword_only(a, *, k, k2="d"):
    return (a, k, k2)


def everything(a, /, b, c=3, *args, k, k2="d", **kw):
    return (a, b, c, args, k, k2, kw)


def many(
    a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10=10, a11=11, a12=12, a13=13, a14=14, a15=15, a16=16, a17=17, a18=18
):
    return (a0, a9, a10, a18)


def only_var(*args, **kw):
    return (args, kw)


def no_args():
    return ()


CALLS = [
    (plain, (1, 2), {}),
    (plain, (1,), {"b": 2}),
    (plain, (), {"b": 2, "a": 1}),
    (defaults, (1,), {}),
    (defaults, (1, 5), {}),
    (defaults, (1,), {"c": 7}),
    (keyword_only, (1,), {"k": 2}),
    (keyword_only, (), {"k2": 3, "k": 2, "a": 1}),
    (everything, (1, 2), {"k": 5}),
    (everything, (1,), {"b": 2, "k": 5, "z": 9}),
    (everything, (1, 2, 3, 4, 5), {"k": 7, "k2": 8, "y": 1}),
    (everything, (1, 2), {"k": 5, "a": 6}),  # a is positional-only, so the keyword goes to **kw
    (many, tuple(range(10)), {}),
    (many, tuple(range(10)), {"a18": "x", "a10": "y"}),
    (only_var, (), {}),
    (only_var, (1, 2), {"x": 3}),
    (no_args, (), {}),
]
WRONG_CALLS = [
    (plain, (1,), {}),
    (plain, (1, 2, 3), {}),
    (plain, (1, 2), {"a": 3}),
    (plain, (1,), {"c": 2}),
    (keyword_only, (1, 2), {"k": 1}),
    (keyword_only, (1,), {}),
    (everything, (1,), {"k": 2}),
    (everything, (), {"a": 1, "b": 2, "k": 3}),
    (no_args, (1,), {}),
]


def _ids(calls):
    return [f"{fn.__name__}-{args}-{kwargs}" for fn, args, kwargs in calls]


@pytest.mark.parametrize(("fn", "args", "kwargs"), CALLS, ids=_ids(CALLS))
def test_slots_get_what_a_plain_call_gives_them(fn, args, kwargs):
    dispatcher = replaced(fn, fn)  # the template reads every slot
    for _ in range(3):
        assert dispatcher(*args, **kwargs) == fn(*args, **kwargs)
    assert dispatcher.hits == 3


@pytest.mark.parametrize(("fn", "args", "kwargs"), CALLS, ids=_ids(CALLS))
def test_on_miss_sees_the_flat_arguments(fn, args, kwargs):
    seen = []

    def on_miss(owner, function, flat_args):
        assert owner is dispatcher and function is fn
        seen.append(flat_args)

    dispatcher = native.Dispatcher(fn, on_miss)
    assert dispatcher(*args, **kwargs) == fn(*args, **kwargs)
    bound = inspect.signature(fn).bind(*args, **kwargs)
    bound.apply_defaults()
    by_name = {name: bound.arguments[name] for name in inspect.signature(fn).parameters}
    assert seen == [tuple(by_name[name] for name in fn.__code__.co_varnames[: len(by_name)])]
    assert (dispatcher.hits, dispatcher.misses) == (0, 1)


@pytest.mark.parametrize(("fn", "args", "kwargs"), WRONG_CALLS, ids=_ids(WRONG_CALLS))
def test_wrong_calls_raise_pythons_own_error(fn, args, kwargs):
    with pytest.raises(TypeError) as expected:
        fn(*args, **kwargs)
    with pytest.raises(TypeError) as actual:
        replaced(fn, fn)(*args, **kwargs)
    assert str(actual.value) == str(expected.value)


def test_references_balance():
    class Value:
        pass

    dispatcher = replaced(everything, everything)
    a, b, c, d, e = (Value() for _ in range(5))
    values = a, b, c, d, e
    before = [sys.getrefcount(v) for v in values]
    for _ in range(200):
        dispatcher(a, b, c, d, k=e, x=a)
        with pytest.raises(TypeError):
            dispatcher(a, b, c, d, x=a)
    assert [sys.getrefcount(v) for v in values] == before


def test_defaults_are_read_at_each_call():
    def fn(a, b=1, *, k=2):
        return None

    def template(a, b=1, *, k=2):
        return (a, b, k)

    dispatcher = replaced(fn, template)
    assert dispatcher(0) == (0, 1, 2)
    fn.__defaults__ = (10,)
    fn.__kwdefaults__ = {"k": 20}
    assert dispatcher(0) == (0, 10, 20)


def test_a_new_code_object_drops_the_entries():
    def fn(a):
        return "old"

    def other(a, b=5):
        return ("new", a, b)

    seen = []
    dispatcher = native.Dispatcher(fn, lambda owner, f, args: seen.append(args))
    dispatcher.add_entry(entry_for(fn, lambda a: "replaced"))
    assert dispatcher(1) == "replaced"
    fn.__code__, fn.__defaults__ = other.__code__, other.__defaults__
    assert dispatcher(1) == ("new", 1, 5)
    assert seen == [(1, 5)] and dispatcher.entries == () and dispatcher.code is other.__code__


def test_binds_like_a_function():
    class A:
        def method(self, x):
            return None

        method_of = None

    A.method = replaced(A.method, lambda self, x: (self, x))
    A.static = staticmethod(replaced(lambda x: None, lambda x: ("s", x)))
    A.klass = classmethod(replaced(lambda cls, x: None, lambda cls, x: (cls, x)))
    a = A()
    for _ in range(50):
        assert a.method(1) == (a, 1) and a.method(x=1) == (a, 1) and A.method(a, 1) == (a, 1)
        assert a.static(2) == ("s", 2) and a.klass(3) == (A, 3)
    bound = a.method
    assert bound(4) == (a, 4) and bound.__self__ is a


def test_looks_like_the_function():
    def fn(a: int, b: str = "x") -> float:
        """What it does."""

    fn.mark = 5
    dispatcher = native.Dispatcher(fn, never)
    assert dispatcher.__name__ == "fn" and dispatcher.__qualname__ == fn.__qualname__
    assert dispatcher.__doc__ == "What it does." and dispatcher.__module__ == __name__
    assert dispatcher.function is fn and dispatcher.__wrapped__ is fn and dispatcher.mark == 5
    assert inspect.signature(dispatcher) == inspect.signature(fn)
    assert inspect.unwrap(dispatcher) is fn and "fn" in repr(dispatcher)
    dispatcher.own = 7
    dispatcher.__doc__ = "Another."
    assert dispatcher.own == fn.own == 7 and dispatcher.__doc__ == fn.__doc__ == "Another."
    assert dispatcher.__dict__ is fn.__dict__ and not hasattr(dispatcher, "nothing")
    wrapper = functools.wraps(dispatcher)(lambda *a: None)
    assert wrapper.__name__ == "fn" and wrapper.own == 7
    del dispatcher.own
    assert not hasattr(dispatcher, "own") and not hasattr(fn, "own")


def test_what_is_set_on_it_is_set_on_the_function():
    def fn(a, b=1, *, c=2):
        return a, b, c

    def other(a, b=1, *, c=2):
        return "other", a, b, c

    dispatcher = native.Dispatcher(fn, lambda *a: None)
    dispatcher.__defaults__, dispatcher.__kwdefaults__ = (5,), {"c": 6}
    assert dispatcher(0) == (0, 5, 6)
    dispatcher.__code__ = other.__code__
    assert dispatcher(0) == ("other", 0, 5, 6)
    dispatcher.__name__ = "renamed"
    assert fn.__name__ == dispatcher.__name__ == "renamed"
    with pytest.raises(TypeError):
        dispatcher.__defaults__ = 3


def test_it_can_be_the_wrapper_of_another_function():
    def inner(a):
        """The inner one."""

    dispatcher = functools.wraps(inner)(native.Dispatcher(lambda a: a, lambda *a: None))
    assert dispatcher.__wrapped__ is inner and dispatcher.__doc__ == "The inner one."
    assert dispatcher.function(3) == dispatcher(3) == 3
    again = native.Dispatcher(dispatcher.function, never)
    assert again.__wrapped__ is inner  # as the function itself says


def module_level(a):
    return a


def _by_name(dispatcher: native.Dispatcher) -> Any:
    return _remake, (dispatcher.function,)


def _remake(fn: Any) -> native.Dispatcher:
    return native.Dispatcher(fn, never)


def test_copies_and_pickles_through_the_hook(monkeypatch):
    monkeypatch.setattr(native, "_reduce_hook", _by_name, raising=False)
    dispatcher = native.Dispatcher(module_level, never)
    for again in (copy.copy(dispatcher), copy.deepcopy(dispatcher), pickle.loads(pickle.dumps(dispatcher))):
        assert type(again) is native.Dispatcher and again is not dispatcher and again.__wrapped__ is module_level


def test_options_are_kept_and_visited():
    options = ["anything"]
    dispatcher = native.Dispatcher(plain, never, options)
    assert dispatcher.options is options
    assert any(found is options for found in gc.get_referents(dispatcher))


@pytest.mark.parametrize("bad", [None, 3, len, lambda: None], ids=["None", "3", "len", "on_miss"])
def test_construction_refuses_what_is_not_a_function(bad):
    with pytest.raises(TypeError):
        native.Dispatcher(bad, never) if not callable(bad) or bad is len else native.Dispatcher(plain, None)


def test_entries_must_have_the_argument_slots_of_the_function():
    dispatcher = native.Dispatcher(plain, never)
    with pytest.raises(ValueError, match="argument"):
        dispatcher.add_entry(native.Entry(flat(lambda a: a), lambda a: a, tree(), ()))
    with pytest.raises(ValueError, match="free variables"):
        free = 1
        native.Entry(flat(lambda a, b: free), plain, tree(), ())
    with pytest.raises(ValueError, match="positional"):
        native.Entry(everything.__code__, everything, tree(), ())
