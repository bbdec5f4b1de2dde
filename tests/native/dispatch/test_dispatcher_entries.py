"""Which entry a dispatcher runs, when it asks for one, and the switches that make it step aside."""

from __future__ import annotations

import sys
import traceback

import pytest

from framejit import _native as native

from native_support import arg, compile_function, entry_for, never, replaced


def f(a):
    return ("original", a)


def _typed(cls, answer):
    return entry_for(f, lambda a: "ANSWER", arg(0, (native.C_TYPE, cls)), ANSWER=answer)


def test_first_passing_entry_runs():
    dispatcher = native.Dispatcher(f, never)
    ints, strs = _typed(int, "int"), _typed(str, "str")
    dispatcher.add_entry(ints)
    dispatcher.add_entry(strs)
    for _ in range(5):
        assert dispatcher(1) == "int" and dispatcher("") == "str"
    assert (ints.hits, strs.hits, dispatcher.hits) == (5, 5, 10)
    assert dispatcher.lookup((1,)) is ints and dispatcher.lookup((1.0,)) is None and dispatcher.hits == 10


def test_an_entry_in_steady_use_moves_to_the_front():
    dispatcher = native.Dispatcher(f, never)
    ints, strs = _typed(int, "int"), _typed(str, "str")
    dispatcher.add_entry(ints)
    dispatcher.add_entry(strs)
    for _ in range(3):
        dispatcher("")
    assert dispatcher.entries == (strs, ints)
    assert dispatcher(1) == "int"


def test_invalid_entries_never_match():
    dispatcher = native.Dispatcher(f, lambda *a: None)
    entry = _typed(int, "int")
    dispatcher.add_entry(entry)
    entry.valid = False
    assert dispatcher(1) == ("original", 1)
    assert dispatcher.entries == ()  # and a miss clears them away


def test_remove_and_clear():
    dispatcher = native.Dispatcher(f, lambda *a: None)
    entry = _typed(int, "int")
    dispatcher.add_entry(entry)
    dispatcher.remove_entry(entry)
    assert dispatcher(1) == ("original", 1)
    with pytest.raises(ValueError, match="no such entry"):
        dispatcher.remove_entry(entry)
    dispatcher.add_entry(entry)
    dispatcher.clear()
    assert dispatcher.entries == () and dispatcher(1) == ("original", 1)
    with pytest.raises(TypeError):
        dispatcher.add_entry(None)


def test_the_entry_of_a_miss_runs_without_its_guards():
    entry = entry_for(f, lambda a: "made", arg(0, (native.C_PY, lambda value: 1 / 0)))
    dispatcher = native.Dispatcher(f, lambda *a: entry)
    assert dispatcher(1) == "made"


def test_on_miss_may_decline_or_fail_or_be_wrong():
    assert native.Dispatcher(f, lambda *a: None)(1) == ("original", 1)

    def fails(*a):
        raise KeyError("compiler")

    value = object()
    before = sys.getrefcount(value)
    failing = native.Dispatcher(f, fails)
    for _ in range(100):
        with pytest.raises(KeyError, match="compiler") as caught:
            failing(value)
        assert [x.name for x in traceback.extract_tb(caught.tb)][1:] == ["fails"]
    del caught
    assert sys.getrefcount(value) == before and not native.busy()
    with pytest.raises(TypeError, match="not an Entry"):
        native.Dispatcher(f, lambda *a: 3)(1)
    with pytest.raises(ValueError, match="arguments"):
        native.Dispatcher(f, lambda *a: entry_for(lambda: 0, lambda: 0))(1)


def test_compiling_is_busy_and_invisible_to_tracers():
    events = []
    inner = replaced(f, lambda a: "replaced")

    def helper():
        return inner(2)

    def on_miss(owner, fn, args):
        assert native.busy()
        assert helper() == ("original", 2)  # nothing is intercepted in the compiler

    dispatcher = native.Dispatcher(f, on_miss)
    sys.setprofile(lambda frame, event, arg: events.append((frame.f_code.co_name, event)))
    try:
        dispatcher(1)
    finally:
        sys.setprofile(None)
    assert not native.busy()
    assert [e for e in events if e[0] in ("on_miss", "helper", "f")] == [("f", "call"), ("f", "return")]


def test_switches():
    dispatcher = replaced(f, lambda a: "replaced")
    assert dispatcher(1) == "replaced"
    dispatcher.skip = True
    assert dispatcher(1) == ("original", 1)
    dispatcher.skip = False
    native.set_disabled(True)
    try:
        assert native.disabled() and dispatcher(1) == ("original", 1)
    finally:
        native.set_disabled(False)
    native.enter_busy()
    try:
        assert dispatcher(1) == ("original", 1)
    finally:
        native.leave_busy()
    assert dispatcher(1) == "replaced"
    with pytest.raises(RuntimeError):
        native.leave_busy()


def test_exceptions_of_the_replacement_look_like_those_of_the_function():
    def raising(a):
        value = a
        raise ValueError(value)

    dispatcher = replaced(f, raising)
    value = object()
    before = sys.getrefcount(value)
    for _ in range(100):
        with pytest.raises(ValueError) as caught:
            dispatcher(value)
        frames = traceback.extract_tb(caught.tb)
        assert [x.name for x in frames[1:]] == ["raising"] and frames[1].lineno == raising.__code__.co_firstlineno + 2
    del caught
    assert sys.getrefcount(value) == before


def test_closures_globals_and_builtins_are_those_of_the_function():
    def make(x):
        def fn(a):
            return None

        def template(a):
            nonlocal x
            x += 1
            return (a, x)

        # the same free variables in the same order
        def fn_with_x(a):
            return x

        return fn_with_x, template

    fn, template = make(10)
    dispatcher = replaced(fn, template)
    assert dispatcher(1) == (1, 11) and dispatcher(1) == (1, 12) and fn(0) == 12
    namespace = {"__builtins__": {"len": lambda v: "mine"}, "G": 7}
    exec("def fn(a):\n return None\ndef template(a):\n return len(a), G", namespace)
    dispatcher = replaced(namespace["fn"], namespace["template"])
    namespace["__builtins__"] = __builtins__
    assert dispatcher([]) == ("mine", 7)


def test_recursion_through_the_dispatcher_has_the_depth_of_plain_python():
    def fn(n):
        return None

    template = compile_function("def f(n):\n return 0 if n == 0 else 1 + 'SELF'(n - 1)")
    dispatcher = native.Dispatcher(fn, never)
    slot = native.Slot(dispatcher, native.SLOT_VALUE)
    dispatcher.add_entry(entry_for(fn, template, slots=(slot,), SELF=slot))
    limit = sys.getrecursionlimit()
    for depth in (1000, 6000, 10**6):
        sys.setrecursionlimit(depth)
        try:
            if depth < 10**6:
                assert dispatcher(depth - 200) == depth - 200
            with pytest.raises(RecursionError):
                dispatcher(10**6)
            plain = native.Dispatcher(
                compile_function("def f(n):\n return 0 if n == 0 else 1 + d(n - 1)"), lambda *a: None
            )
            plain.__wrapped__.__globals__["d"] = plain
            plain.skip = True
            with pytest.raises(RecursionError):
                plain(10**6)
            assert plain(700) == 700
        finally:
            sys.setrecursionlimit(limit)
    assert dispatcher(200) == 200
