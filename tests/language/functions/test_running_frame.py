"""Functions that look at the frame they run in."""

import pytest
import torch

from support import check_state

X = torch.ones(3)


def reads_vars(x):
    a = 1  # noqa: F841
    return x + 1, sorted(vars())


def reads_dir(x):
    b = 1  # noqa: F841
    return x + 1, dir()


def reads_locals_by_another_name(x):
    c, read = 1, locals
    return x + c, sorted(read())


def reads_below(x):
    def inner(y):
        read = vars
        return sorted(read())

    return x + 1, inner(2)


class Plain:
    kept = 1


class Shadowed:
    def __init__(self, field):
        self.__dict__["field"] = field

    @property
    def field(self):
        return "shadowed"


def vars_of_an_object(x):
    return x + 1, vars(Shadowed(1)), [n for n in dir(Plain()) if not n.startswith("_")]


@pytest.mark.parametrize("f", [reads_vars, reads_dir, reads_locals_by_another_name, reads_below, vars_of_an_object])
def test_functions_that_look_at_their_frame(f):
    check_state(lambda: f, (X,), (X,), graphs=None, breaks=None)
