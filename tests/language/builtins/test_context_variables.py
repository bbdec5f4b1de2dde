"""`ContextVar`: what a variable has in the context that runs is guarded; what captured code sets is set behind it."""
from __future__ import annotations

import contextlib
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


def reset_at_the_end(variable):
    def fn(x, n):
        token = variable.set(n + 5)
        try:
            return x * variable.get()
        finally:
            variable.reset(token)

    return fn


def counted(variable):
    def fn(x, n):
        variable.set(variable.get(0) + 1)
        x = x * variable.get()
        variable.set(variable.get() + 1)
        return x

    return fn


def one_inside_of_the_other(variable):
    def fn(x, n):
        first = variable.set(n)
        second = variable.set(x)
        seen = [variable.get() + 1]
        variable.reset(second)
        seen.append(variable.get())
        variable.reset(first)
        return seen, variable.get(None)

    return fn


def by_a_context_manager(variable):
    @contextlib.contextmanager
    def switched_on():
        token = variable.set(True)
        try:
            yield
        finally:
            variable.reset(token)

    def scaled(x):
        return x * 2 if variable.get(False) else x * 3

    def fn(x, n):
        with switched_on():
            inside = scaled(x)
        return inside + scaled(x)

    return fn


def raising_behind_it(variable):
    def fn(x, n):
        variable.set(n)
        if n == 2:
            raise ValueError(variable.get())
        return x + 1

    return fn


@pytest.mark.parametrize(
    "make", [reset_at_the_end, counted, one_inside_of_the_other, by_a_context_manager, raising_behind_it]
)
def test_what_is_set_in_captured_code(make):
    def world():
        variable = contextvars.ContextVar("variable")
        return make(variable), lambda: variable.get("none")

    def steps():
        pair = Pair(world)
        for n in range(5):
            pair.call(X, n)
        pair.expect(breaks=0)

    contextvars.copy_context().run(steps)


def token_that_leaves(variable):
    kept = []

    def fn(x, n):
        kept.append(variable.set(n))
        return x * variable.get(), kept[0].old_value is contextvars.Token.MISSING

    return fn


def graph_break_between(variable):
    def fn(x, n):
        token = variable.set(n + 1)
        print(variable.get())
        x = x * variable.get()
        variable.reset(token)
        return x

    return fn


def reset_twice(variable):
    def fn(x, n):
        token = variable.set(n)
        variable.reset(token)
        try:
            variable.reset(token)
        except RuntimeError:
            x = x + 1
        return x

    return fn


def reset_of_another(variable):
    other = contextvars.ContextVar("other", default=3)

    def fn(x, n):
        token = other.set(n)
        try:
            variable.reset(token)
        except ValueError:
            x = x + other.get()
        return x

    return fn


def seen_by_a_copy(variable):
    def fn(x, n):
        variable.set(n * 10)
        copied = contextvars.copy_context()
        return x + copied[variable], copied.run(variable.get)

    return fn


@pytest.mark.parametrize(
    "make", [token_that_leaves, graph_break_between, reset_twice, reset_of_another, seen_by_a_copy]
)
def test_what_breaks_the_graph(make):
    def world():
        variable = contextvars.ContextVar("variable")
        return make(variable), lambda: variable.get("none")

    def steps():
        pair = Pair(world)
        for n in range(4):
            pair.call(X, n)

    contextvars.copy_context().run(steps)


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
