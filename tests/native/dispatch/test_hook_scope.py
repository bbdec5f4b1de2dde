"""The frame hook: which frames it looks at, and that it and what it knows may come and go."""

from __future__ import annotations

import gc
import weakref

import pytest

from framejit import _native as native

from native_support import Hooked, compile_function, entry_for, replaced


def user(x):
    return ("user", x)


def _outer(flags, calls="user(x)"):
    """A dispatcher whose replacement calls `user`, and the list of captured calls."""

    def fn(x):
        return "original"

    seen = []

    def on_miss(cache, fn, args):
        seen.append(args)
        made = entry_for(fn, lambda x: ("captured", x))
        cache.add_entry(made)
        return made

    native.install_hook_policy(lambda code, ns: code is user.__code__, on_miss)
    native.reset_code(user.__code__)
    template = compile_function(f"def fn(x):\n return {calls}, HOOKED()", user=user, HOOKED=native.hook_active)
    fn = type(fn)(fn.__code__, template.__globals__)
    return replaced(fn, template, flags=flags), seen


def test_capture_happens_only_below_entries_that_run_user_code():
    dispatcher, seen = _outer(native.RUNS_USER_CODE)
    assert user(1) == ("user", 1)
    assert dispatcher(1) == (("captured", 1), True)
    assert user(1) == ("user", 1) and not native.hook_active() and seen == [(1,)]
    assert dispatcher(2) == (("captured", 2), True) and seen == [(1,)]
    plain, seen = _outer(0)
    assert plain(1) == (("user", 1), False) and seen == []


def test_what_was_captured_goes_with_the_dispatcher():
    dispatcher, _ = _outer(native.RUNS_USER_CODE)
    dispatcher.options = options = ["shared"]
    dispatcher(1)
    cache = native.code_cache(user.__code__)
    assert cache is not None and cache.options is options and len(cache.entries) == 1
    gone = weakref.ref(cache)
    del cache
    assert gone() is not None
    del dispatcher
    gc.collect()
    assert gone() is None and native.code_cache(user.__code__) is None


def test_compiled_graphs_are_not_captured():
    def fn(x):
        return None

    seen = []
    native.install_hook_policy(lambda code, ns: seen.append(code.co_name) or False, lambda *a: None)
    native.reset_all_codes()
    slot = native.Slot(user, native.SLOT_VALUE)
    template = compile_function("def fn(x):\n return 'GRAPH'(x)")
    dispatcher = native.Dispatcher(fn, lambda *a: None)
    dispatcher.add_entry(entry_for(fn, template, slots=(slot,), flags=native.RUNS_USER_CODE, GRAPH=slot))
    assert dispatcher(1) == ("user", 1) and seen == []
    native.install_hook_policy(None, None)


def test_a_frame_run_plainly_by_a_dispatcher_is_not_considered_twice():
    declined = native.Dispatcher(user, lambda *a: None)
    dispatcher, seen = _outer(native.RUNS_USER_CODE, calls="D(x), user(x)")
    dispatcher.__wrapped__.__globals__["D"] = declined
    assert dispatcher(1) == (("user", 1), ("captured", 1), True) and seen == [(1,)]


def test_switches_reach_the_hook():
    dispatcher, seen = _outer(native.RUNS_USER_CODE, calls="(BEFORE(x), user(x), AFTER(x))[1]")
    namespace = dispatcher.__wrapped__.__globals__
    namespace.update(BEFORE=lambda x: native.set_disabled(True), AFTER=lambda x: native.set_disabled(False))
    assert dispatcher(1) == (("user", 1), True) and seen == []
    namespace.update(BEFORE=lambda x: native.enter_busy(), AFTER=lambda x: native.leave_busy())
    assert dispatcher(1) == (("user", 1), True) and seen == []


def test_exceptions_leave_the_scope_as_it_was():
    dispatcher, _ = _outer(native.RUNS_USER_CODE, calls="1 / x")
    for _ in range(10):
        with pytest.raises(ZeroDivisionError):
            dispatcher(0)
        assert not native.hook_active()


def test_toggling_under_running_frames():
    def f(a):
        return a

    with Hooked() as hook:
        hook.replace(f, lambda a: ("g", a))
        for i in range(1000):
            native.intercept_all(True)
            assert f(i) == ("g", i)
            native.intercept_all(False)
            assert f(i) == i

        def down(n):  # on in the middle of inlined frames, off deeper
            if n == 50:
                native.intercept_all(True)
            if n == 20:
                assert f(1) == ("g", 1)
                native.intercept_all(False)
            return down(n - 1) if n else 0

        for _ in range(50):
            down(100)


def test_code_objects_and_their_entries_may_die_at_any_time(hook):
    for i in range(500):
        f = compile_function("def f(a):\n return a")
        hook.replace(f, compile_function("def g(a):\n return (a,)"))
        assert f(1) == (1,)
        if i % 2:
            native.reset_code(f.__code__)
        hook.forget()
    # the function and the entry go while the replacement runs
    f = compile_function("def f(a):\n return a")
    holder = [f]
    template = compile_function("def g(a):\n a()\n x = [a] * 3\n return len(x)")
    hook.replace(f, template)
    code = f.__code__

    def drop():
        holder.clear()
        native.reset_code(code)
        native.reset_all_codes()
        gc.collect()

    del f
    assert holder[0](drop) == 3


def test_another_hook_may_come_and_go(hook):
    """torch.compile installs a hook of its own."""
    import torch

    def f(a):
        return a

    hook.replace(f, lambda a: ("g", a))
    torch._dynamo.reset()

    @torch.compile(backend="eager")
    def compiled(x):
        return x + 1

    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0)) and f(1) == ("g", 1)
    native.intercept_all(False)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0)) and f(1) == 1
    native.intercept_all(True)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0)) and f(1) == ("g", 1)
