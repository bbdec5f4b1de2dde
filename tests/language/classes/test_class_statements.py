"""Class statements inside captured code: a class nobody looks at is never made, any other is made by Python."""
import pytest
import torch

from support import check, check_state

X = torch.arange(1.0, 4.0)


def unused(x):
    class Box:
        """Never used."""

        size = 3

        @staticmethod
        def of(y):
            return y

        @property
        def area(self):
            return x

        def method(self, a=2):
            return self, a

    return x * 2


def unused_function(x, n=2):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return y * n

    return x * n


@pytest.mark.parametrize("fn", [unused, unused_function])
def test_one_that_is_not_used(fn):
    check(fn, X, fullgraph=True)


def used(x):
    y = x + 1

    class Box:
        def value(self):
            return y * 2

    return Box().value() + x


def returned(x):
    class Box:
        item = 3

    y = x * 2
    return y, Box.__name__, Box.item, isinstance(3, Box)


def is_none(x):
    class Box:
        pass

    return x + 1 if Box is None or not Box else x + 2


@pytest.mark.parametrize("fn", [used, returned, is_none])
def test_one_that_is_used(fn):
    check_state(lambda: fn, (X,), (X,), graphs=None, breaks=None)


def test_bodies_that_do_something_run():
    def make():
        seen = []

        class Registers:
            def __init_subclass__(cls):
                seen.append(cls.__name__)

        def fn(x):
            class A:
                seen.append("body")

            class B(Registers):
                pass

            return x + len(seen)

        return fn, seen

    check_state(make, (X,), (X,), graphs=range(0, 9), breaks=range(0, 9))


def test_a_break_while_it_lives():
    def fn(x):
        class Box:
            n = 4

        if x.sum() > 0:
            x = x + 1
        return x * Box.n

    check_state(lambda: fn, (X,), (X,), graphs=None, breaks=None)


def test_bases_that_refuse():
    def fn(x):
        said = []
        try:

            class A(bool):
                pass

        except TypeError as e:
            said.append(str(e))
        try:

            class B(int, str):
                pass

        except TypeError as e:
            said.append(str(e))
        try:

            class C:
                __slots__ = ("n",)
                n = 1

        except ValueError as e:
            said.append(str(e))
        return x + len(said), said

    check(fn, X, graphs=None, breaks=None)


def test_bodies_that_name_the_compilers_cells_run():
    def fn(x):
        y = x + 1
        try:

            class Refused:
                __classcell__ = size = 3
        except TypeError as e:
            return y, str(e)
        return y

    check(fn, X, breaks=None, graphs=None)
