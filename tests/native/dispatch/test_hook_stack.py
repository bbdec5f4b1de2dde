"""The frame hook: recursion has the depth of plain Python, and no stack is overrun."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import traceback

import pytest

from framejit import _native as native

import forked
from native_support import Value, compile_function


def test_deep_recursion_has_the_depth_of_plain_python(hook):
    f = compile_function("def f(n):\n return None")
    hook.replace(
        f,
        compile_function("def g(n):\n a = b = c = d = [n]\n return 0 if n == 0 else 1 + f(n - 1)"),
        flags=native.RUNS_USER_CODE,
    )
    assert f(500) == 500
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(5000)
        assert f(3000) == 3000
    finally:
        sys.setrecursionlimit(limit)
    for _ in range(5):
        with pytest.raises(RecursionError):
            f(10**6)
    assert f(100) == 100


def test_without_a_recursion_limit_the_stack_is_not_overrun(hook):
    code = (
        "import sys\nfrom framejit import _native as n\nn.intercept_all(True)\nsys.setrecursionlimit(10**6)\n"
        "def f(k): return 0 if k == 0 else 1 + f(k - 1)\n"
        "try:\n f(900_000)\nexcept RecursionError as e: print('stopped', f(500))\n"
    )
    run = forked.run(["-c", code], env=dict(os.environ), timeout=100)
    assert run.stdout == "stopped 500\n", run.stderr[-2000:]


def test_frames_at_the_end_of_a_stack_chunk(hook):
    """Frames of many sizes, so that the end of a chunk of the data stack falls everywhere."""
    body = " ".join(f"v{i} = n;" for i in range(150))
    f = compile_function("def f(n, k):\n return None")  # its globals name it
    good = compile_function(f"def g(n, k):\n {body}\n return (n + v149) if k == 0 else f(n, k - 1)")
    bad = compile_function(f"def h(n, k):\n {body}\n if k == 0: raise KeyError(n)\n return f(n, k - 1)")

    def pad(k, depth, n):
        return pad(k - 1, depth, n) if k else f(n, depth)

    hook.replace(f, good, flags=native.RUNS_USER_CODE)
    for k in range(100):
        for depth in (0, 1, 2, 3, 5, 11, 40):
            assert pad(k, depth, 21) == 42
    hook.replace(f, bad, flags=native.RUNS_USER_CODE)
    value = Value()
    with contextlib.suppress(KeyError):
        pad(1, 1, value)
    before = [sys.getrefcount(o) for o in (value, f, bad.__code__, f.__code__)]
    for k in range(100):
        for depth in (0, 1, 7, 40):
            try:
                pad(k, depth, value)
            except KeyError as e:
                assert len(traceback.extract_tb(e.__traceback__)) == k + depth + 3
            else:
                raise AssertionError
    gc.collect()
    assert [sys.getrefcount(o) for o in (value, f, bad.__code__, f.__code__)] == before
