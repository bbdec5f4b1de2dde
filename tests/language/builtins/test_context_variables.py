"""`ContextVar.get()` breaks no graph; what the variable has in the context that runs is guarded."""
from __future__ import annotations

import contextvars

import pytest
import torch

from support import Pair

X = torch.ones(2)


def test_what_a_variable_has():
    def world():
        plain, with_default = contextvars.ContextVar("plain"), contextvars.ContextVar("with_default", default=3)

        def fn(x):
            try:
                found = plain.get() * x
            except LookupError as e:
                found = e.args[0] is plain
            return found, plain.get("none"), with_default.get(), with_default.get(7)

        fn.plain, fn.with_default = plain, with_default
        return fn

    def step(pair, in_context):
        for fn in (pair.eager, pair.compiled):
            in_context(fn)
        for captures in (None, False):
            pair.call(X, captures=captures)

    def steps():
        pair = Pair(world)
        step(pair, lambda fn: None)
        step(pair, lambda fn: fn.with_default.set(4))
        step(pair, lambda fn: fn.plain.set(2.5))
        step(pair, lambda fn: fn.plain.set(torch.ones(2)))
        for _ in range(2):
            step(pair, lambda fn: fn.plain.set(torch.full((2,), 3.0)))
        step(pair, lambda fn: fn.with_default.set(3))
        contextvars.Context().run(step, pair, lambda fn: None)
        pair.expect(breaks=0)

    contextvars.copy_context().run(steps)


@pytest.mark.parametrize("default", [(), (1, 2), (None,)])
def test_setting_and_other_calls(default):
    def world():
        variable = contextvars.ContextVar("variable")

        def fn(x):
            token = variable.set(2)
            x = x * variable.get()
            variable.reset(token)
            try:
                return x, variable.get(*default), variable.name
            except (LookupError, TypeError) as e:
                return x, type(e), len(e.args)

        return fn

    pair = Pair(world)
    for _ in range(2):
        pair.call(X)


def test_a_variable_that_goes():
    def fn(x, variable):
        return x * variable.get(2)

    pair = Pair(lambda: fn)
    for _ in range(3):
        given = contextvars.ContextVar("given", default=1)
        assert torch.equal(pair.compiled(X, given), X * 2)
        token = given.set(4)
        assert torch.equal(pair.compiled(X, given), X * 4)
        given.reset(token)
