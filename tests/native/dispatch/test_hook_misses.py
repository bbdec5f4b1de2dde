"""The frame hook: what it asks when no entry fits, of whom, and how often."""

from __future__ import annotations

import gc
import sys
import traceback

import pytest

from framejit import _native as native

from native_support import Value, arg, entry_for


def test_a_miss_gets_the_arguments_and_sees_a_quiet_world(hook):
    def make(z):
        def f(a, b=2, *r, k=9, **kw):
            return (lambda: a, z)

        return f

    def make_template(z):
        def f(a, b=2, *r, k=9, **kw):
            return ("new", a, b, r, k, kw, (lambda: a)(), z)

        return f

    f = make("Z")
    seen = []

    def on_miss(fn):
        seen.append((fn, native.busy(), sys._getframe(1).f_back.f_code.co_name))
        assert make("q")(1)[1] == "q"  # the same code, inside the callback: the original
        gc.collect()
        return entry_for(fn, make_template(None))

    hook.make(f, on_miss)
    assert f(1, 5, 6, k=7, y=8) == ("new", 1, 5, (6,), 7, {"y": 8}, 1, "Z")
    assert f(1) == ("new", 1, 2, (), 9, {}, 1, "Z")
    assert seen == [(f, True, "test_a_miss_gets_the_arguments_and_sees_a_quiet_world")]
    cache, fn, flat_args = hook.misses[0]
    assert fn is f and flat_args == (1, 5, 7, (6,), {"y": 8}) and cache is native.code_cache(f.__code__)
    assert (cache.hits, cache.misses) == (1, 1)


def test_declined_and_failed_misses(hook):
    def f(a):
        return ("original", a)

    hook.make(f, lambda fn: None)
    assert [f(i) for i in range(3)] == [("original", i) for i in range(3)]

    def bad(cache, fn, args):
        raise KeyError("compiler")

    native.install_hook_policy(lambda code, ns: code is f.__code__, bad)
    a = Value()
    before = [sys.getrefcount(o) for o in (a, f, f.__code__)]
    for _ in range(300):
        with pytest.raises(KeyError) as caught:
            f(a)
        assert [x.name for x in traceback.extract_tb(caught.tb)] == ["test_declined_and_failed_misses", "bad"]
        del caught
    gc.collect()
    assert [sys.getrefcount(o) for o in (a, f, f.__code__)] == before
    for wrong in (3, entry_for(lambda a, b: 0, lambda a, b: 0)):
        native.install_hook_policy(lambda code, ns: code is f.__code__, lambda *args, wrong=wrong: wrong)
        with pytest.raises((TypeError, ValueError)):
            f(1)


def test_guards_choose_the_entry(hook):
    def f(a):
        return "original"

    def on_miss(cache, fn, args):
        kind = type(args[0])
        made = entry_for(fn, lambda a: "NAME", arg(0, (native.C_TYPE, kind)), NAME=kind.__name__)
        cache.add_entry(made)
        hook.misses.append(args)
        return made

    native.install_hook_policy(lambda code, ns: code is f.__code__, on_miss)
    for _ in range(200):
        assert f(1) == "int" and f("") == "str" and f(2.5) == "float"
    cache = native.code_cache(f.__code__)
    assert len(hook.misses) == 3 and len(cache.entries) == 3 and cache.hits == 597
    cache.skip = True
    assert f(1) == "original"
    cache.skip = False
    cache.clear()
    assert f(1) == "int" and len(cache.entries) == 1


def test_the_policy_is_asked_once_for_each_code():
    asked = []

    def f(a):
        return a

    def policy(code, namespace):
        asked.append((code, namespace is globals()))
        assert native.busy()
        return False

    native.install_hook_policy(policy, lambda *a: None)
    native.intercept_all(True)
    try:
        for i in range(5):
            assert f(i) == i
        assert [ns for code, ns in asked if code is f.__code__] == [True]
        native.reset_code(f.__code__)
        f(1)
        assert [ns for code, ns in asked if code is f.__code__] == [True, True]
        native.skip_code(f.__code__)
        native.reset_all_codes()
        f(1)
        assert len([1 for code, ns in asked if code is f.__code__]) == 2
    finally:
        native.intercept_all(False)
        native.install_hook_policy(None, None)


def test_frames_apart_run_without_the_hook():
    """Module code of which the policy says None: so do those that it calls, also where it raises, and those inside of
    other such."""
    seen, states = [], []

    def f(a):
        states.append(native.hook_active())
        return a

    def policy(code, namespace):
        if code.co_name == "<module>":
            return None if code.co_filename == "<apart>" else False
        seen.append(code.co_name)
        return False

    def run(source, file):
        exec(compile(source, file, "exec"), {"f": f, "run": run})

    native.install_hook_policy(policy, lambda *a: None)
    native.intercept_all(True)
    try:
        native.reset_all_codes()
        run("f(1)", "<apart>")
        assert states == [False] and "f" not in seen and native.hook_active()
        run("run('f(2)', '<apart>'); f(3)", "<apart>")
        assert states == [False] * 3 and "f" not in seen and native.hook_active()
        with pytest.raises(ZeroDivisionError):
            run("f(1 / 0)", "<apart>")
        assert native.hook_active()
        run("run('f(4)', '<apart>'); f(5)", "<here>")
        assert states == [False] * 4 + [True] and seen.count("f") == 1
        run("import framejit; framejit._native.intercept_all(False)", "<apart>")
        assert not native.hook_active()
    finally:
        native.intercept_all(False)
        native.install_hook_policy(None, None)
