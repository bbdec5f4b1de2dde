"""super() after a break finds its class and object, which it looks up in the frame; from 3.12 on also where it is an
instruction of its own."""
import io

import pytest
import torch

import framejit

from support import check

X = torch.arange(6.0).reshape(3, 2)
SOME = range(1, 6)


class Base:
    scale = 2

    def step(self, x):
        return x * self.scale

    @property
    def amount(self):
        return 3

    @property
    def breaking(self):
        framejit.graph_break()
        return 5

    def __repr__(self):
        return "Base"


class Derived(Base):
    def step(self, x):
        y = x + 1
        framejit.graph_break()
        return super().step(y) + super().amount

    def kept(self, x):
        y = x + 1
        framejit.graph_break()
        above = super()
        return above.step(y)

    def with_arguments(self, x):
        y = x + 1
        framejit.graph_break()
        return super(Derived, self).step(y)  # noqa: UP008 the long form is the point

    def in_a_handler(self, x):
        try:
            framejit.graph_break()
            return x.reshape(7)
        except RuntimeError:
            return super().step(x)

    def in_a_block(self, x):
        with io.StringIO() as file:
            y = super().step(x + 1)
            file.write("written")
            return super().step(y + super().amount)

    def captured_self(self, x):
        def me():
            return self

        framejit.graph_break()
        return super().step(x) + me().scale

    def at_super(self, x):
        return (x + 1) * super().breaking

    def missing(self, x):
        return super().missing(x + 1)


def test_method_and_property():
    check(Derived().step, X, graphs=SOME, breaks=1)


def test_kept_in_a_variable():
    check(Derived().kept, X, graphs=SOME, breaks=1)


def test_with_arguments():
    check(Derived().with_arguments, X, graphs=SOME, breaks=1)


def test_in_a_handler():
    check(Derived().in_a_handler, X, graphs=SOME, breaks=range(1, 3))


def test_in_a_block():
    check(Derived().in_a_block, X, graphs=SOME, breaks=SOME)


def test_first_argument_is_captured():
    check(Derived().captured_self, X, graphs=SOME, breaks=1)


def test_break_in_what_super_finds():
    check(Derived().at_super, X, graphs=SOME, breaks=1)


def test_missing_method():
    check(Derived().missing, X, raises=AttributeError)


def without_arguments():
    super()


def with_its_argument_gone(x):
    del x
    super()


@pytest.mark.parametrize("function", [without_arguments, lambda: with_its_argument_gone(1)])
def test_super_that_finds_no_class(function):
    def fn(x):
        y = x + 1
        try:
            function()
        except RuntimeError as e:
            return y * 2, str(e)

    check(fn, X, graphs=None, breaks=None)


def test_a_function_of_the_program_called_super():
    class Own:
        msg = 3

    class Something:
        def method(self, x):
            return x * super().msg

    thing = Something()
    globals()["super"] = Own
    try:
        check(lambda x: thing.method(x + 1) * 2, X, graphs=None, breaks=None)
    finally:
        del globals()["super"]
