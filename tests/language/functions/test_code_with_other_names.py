"""Code of functions made in captured code may be given other names, as torch 2.15 does with what `torch.no_grad()(fn)`
makes: tracebacks have them, the function's own names stay."""

import traceback

import torch

import framejit

from support import Pair


def test_names_of_code():
    def world():
        def fn(x, n):
            def inner(y):
                """Doubles."""
                return y * 2

            inner.__code__ = inner.__code__.replace(co_name="renamed", co_qualname="outer.renamed")
            code = inner.__code__
            return inner(x) + n, inner.__name__, inner.__qualname__[-5:], inner.__doc__, code.co_name, code.co_qualname

        return fn

    pair = Pair(world)
    for n in range(3):
        pair.call(torch.ones(2), n)
    assert not pair.breaks


def test_a_function_that_leaves():
    def fn(x):
        def inner(y):
            raise ValueError("nothing")

        inner.__code__ = inner.__code__.replace(co_name="renamed")
        return x * 2, inner

    for made in (fn, framejit.optimize(fn, backend="eager", fullgraph=True)):
        for _ in range(2):
            result, inner = made(torch.ones(2))
            torch.testing.assert_close(result, torch.full((2,), 2.0))
            assert (inner.__name__, inner.__code__.co_name) == ("inner", "renamed")
            try:
                inner(1)
            except ValueError as e:
                assert traceback.extract_tb(e.__traceback__)[-1].name == "renamed"


def test_code_that_does_something_else():
    def fn(x):
        def inner(y):
            return y * 2

        def other(y):
            return y * 3

        inner.__code__ = other.__code__
        return inner(x), inner.__name__

    compiled = framejit.optimize(fn, backend="eager")
    for _ in range(2):
        assert repr(compiled(torch.ones(2))) == repr(fn(torch.ones(2)))


def test_functions_in_modes():
    def fn(x):
        def inner(y):
            return (y * 2).requires_grad

        return x + 1, torch.no_grad()(inner)(x), torch.enable_grad()(inner)(x)

    compiled = framejit.optimize(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        assert repr(compiled(torch.ones(2, requires_grad=True))) == repr(fn(torch.ones(2, requires_grad=True)))
