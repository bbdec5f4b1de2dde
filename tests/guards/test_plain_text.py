"""What guards show of a value runs none of the program's code."""

import types

import pytest

from framejit.guards.plain_text import short


def module_that_makes_names(asked):
    made = types.ModuleType("made_up")

    def make(name):
        asked.append(name)
        raise AttributeError(name)

    made.__getattr__ = make
    return made


def of_no_module():
    """An object whose class has a `__repr__` that says of no module that it is its own."""
    names = {}
    exec("class Nameless:\n    def __repr__(self):\n        raise AssertionError('asked')", {"__name__": None}, names)
    return names["Nameless"]()


@pytest.mark.parametrize("within", [lambda m: m, lambda m: [m], lambda m: {"m": (m,)}])
def test_a_module_is_not_asked(within):
    asked = []
    made = within(module_that_makes_names(asked))
    assert short(made)
    assert not asked


def test_a_module_is_told_by_its_name():
    assert short(types) == "<module 'types'>"
    nameless = types.ModuleType("gone")
    del nameless.__name__
    assert short(nameless) == "<module None>"


@pytest.mark.parametrize("within", [lambda v: v, lambda v: [v]])
def test_a_repr_of_no_module_is_the_programs(within):
    assert "object>" in short(within(of_no_module()))
