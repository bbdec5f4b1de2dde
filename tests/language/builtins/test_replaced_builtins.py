"""Programs that put functions and types of their own in the place of builtins: they run as plain Python until these are
back."""
from __future__ import annotations

import builtins
import warnings

import pytest
import torch

import framejit

from support import of_kind, recorded

FUNCTIONS = """
    len isinstance iter getattr max sum zip enumerate sorted map any hasattr next repr hash min all range
""".split()
TYPES = "tuple list dict str".split()


def fn(x, xs):
    y = x + len(xs)
    z = 0
    for i, a in enumerate(xs):
        if isinstance(a, int):
            z = max(z, a) + sum([a, i])
    table = {k: v for k, v in zip(xs, iter(xs))}
    return y * z, sorted(table), tuple(map(str, xs)), any(xs), x.ndim, list(range(3)), repr(xs)


def counting(original, calls):
    def own(*args, **kwargs):
        calls.append(original.__name__)
        return original(*args, **kwargs)

    return own


@pytest.mark.parametrize("name", [*FUNCTIONS, *(f"type {name}" for name in TYPES)])
@pytest.mark.parametrize("before", [False, True], ids=["first", "after a capture"])
def test_the_programs_own_builtins_are_called_as_plain_python_calls_them(monkeypatch, name, before):
    kind, _, name = name.rpartition(" ")
    original, calls = getattr(builtins, name), []
    x, xs = torch.ones(2), [1, 2, 3]
    compiled = framejit.optimize(fn, backend="eager")
    if before:
        compiled(x, xs)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", framejit.FramejitWarning)
        for run in (fn, compiled, compiled):
            own = type(name, (original,), {}) if kind else counting(original, calls)
            with monkeypatch.context() as patch:
                patch.setattr(builtins, name, own)
                result = run(x, xs)
            found.append(([*calls], [type(part) is own for part in result] if kind else None, repr(result)))
            calls.clear()
    assert found[0] == found[1] == found[2]
    with recorded() as log:
        compiled(x, xs)
        compiled(x, [*xs, 5])
    assert before or any(f"builtins.{name}" in event.fields.get("reason", "") for event in of_kind(log, "frame_done"))
    assert compiled.entries
