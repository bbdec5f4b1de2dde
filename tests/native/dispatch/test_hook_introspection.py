"""The frame hook: to tracebacks, frame objects, tracers and monitoring a replaced frame is the frame it replaces."""

from __future__ import annotations

import contextlib
import gc
import sys
import traceback

import pytest

from native_support import Hooked, Value

HERE = __file__


def test_tracebacks_show_the_replacement_once(hook):
    def f(a):
        return a

    def g(a):
        y = 1
        if y:
            raise ValueError(a)

    hook.replace(f, g)
    a = Value()
    with pytest.raises(ValueError):
        f(a)
    before = [sys.getrefcount(o) for o in (a, f, f.__code__, g.__code__)]
    for _ in range(500):
        try:
            f(a)
        except ValueError as e:
            frames = traceback.extract_tb(e.__traceback__)
            assert [x.name for x in frames] == ["test_tracebacks_show_the_replacement_once", "g"]
            assert frames[1].lineno == g.__code__.co_firstlineno + 3
            inner = e.__traceback__.tb_next.tb_frame
            assert inner.f_locals == {"a": a, "y": 1} and inner.f_back is sys._getframe()
            del inner
            e.__traceback__ = None
        else:
            raise AssertionError
    gc.collect()
    assert [sys.getrefcount(o) for o in (a, f, f.__code__, g.__code__)] == before


def test_handlers_contexts_and_exception_state(hook):
    def f(a):
        return a

    def g(a):
        raise ValueError(a)

    def h(a):
        try:
            raise KeyError(a)
        except KeyError:
            return sys.exc_info()[1]

    hook.replace(f, g)

    def outer():
        try:
            try:
                f(1)
            finally:
                z = 5
        except ValueError:
            return "caught", z

    assert outer() == ("caught", 5)
    with pytest.raises(ValueError) as caught:
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError:
            f(2)
    assert isinstance(caught.value.__context__, ZeroDivisionError)
    hook.replace(f, h)
    assert isinstance(f(3), KeyError) and sys.exc_info() == (None, None, None)


def test_frame_objects(hook):
    kept = []

    def f(a, b):
        return 0

    def g(a, b):
        x = a + b
        a = [sys._getframe()]
        return a.pop(), x

    def names(a, b):
        return sys._getframe(1).f_code.co_name, [s.name for s in traceback.extract_stack()][-2:]

    hook.replace(f, g)
    for i in range(300):
        frame, x = f(i, 1)
        kept.append(frame)
        assert x == i + 1
    for i, frame in enumerate(kept):
        assert frame.f_locals == {"a": [], "b": 1, "x": i + 1} and frame.f_code.co_name == "g"
    del frame
    kept.clear()
    gc.collect()
    hook.replace(f, names)
    assert f(1, 2) == ("test_frame_objects", ["test_frame_objects", "names"])


@pytest.mark.parametrize("install", [sys.settrace, sys.setprofile], ids=["settrace", "setprofile"])
@pytest.mark.parametrize("raises", [False, True])
def test_tracers_see_the_replacement_and_not_the_compiler(install, raises):
    def f(a, b):
        return 0

    def g(a, b):
        x = a + b
        return x

    def e(a, b):
        raise KeyError(a)

    events = []

    def tracer(frame, event, arg):
        if frame.f_code.co_filename == HERE:
            events.append((frame.f_code.co_name, event, frame.f_lineno - frame.f_code.co_firstlineno))
        return tracer

    with Hooked() as hook:
        hook.replace(f, e if raises else g)
        install(tracer)
        with contextlib.suppress(KeyError):
            f(1, 2)
        install(None)
        lines = {
            (sys.settrace, False): [("g", "call", 0), ("g", "line", 1), ("g", "line", 2), ("g", "return", 2)],
            (sys.settrace, True): [("e", "call", 0), ("e", "line", 1), ("e", "exception", 1), ("e", "return", 1)],
            (sys.setprofile, False): [("g", "call", 0), ("g", "return", 2)],
            (sys.setprofile, True): [("e", "call", 0), ("e", "return", 1)],
        }
        assert [x for x in events if x[0] in "efg"] == lines[install, raises]
        sys.settrace(lambda *a: None)
        for _ in range(1000):
            with contextlib.suppress(KeyError):
                f(1, 2)
        sys.settrace(None)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_monitoring_sees_the_replacement(hook):
    def f(a, b):
        return 0

    hook.replace(f, lambda a, b: a)
    monitoring, events = sys.monitoring, []
    monitoring.use_tool_id(3, "test")
    try:
        for name in ("PY_START", "PY_RETURN", "PY_UNWIND"):
            monitoring.register_callback(
                3, getattr(monitoring.events, name), lambda code, *a, name=name: events.append((code.co_name, name))
            )
        monitoring.set_events(3, monitoring.events.PY_START | monitoring.events.PY_RETURN | monitoring.events.PY_UNWIND)
        f(1, 2)
    finally:
        monitoring.set_events(3, 0)
        monitoring.free_tool_id(3)
    assert [e for e in events if e[0] in ("f", "<lambda>")] == [("<lambda>", "PY_START"), ("<lambda>", "PY_RETURN")]
