"""Guard trees that remember a short proof, and what they are tried on.

`explain` always evaluates the whole tree, so it tells what `check` has to answer.
"""

from __future__ import annotations

import framejit.guards.tensor_layout  # noqa: F401  needed by tensor guards
from framejit import _native as native

from native_support import arg, node, tree

A, C = native, native
USES = 6  # enough for a proof to be worth keeping, so that the next one is made at once


def agree(built, flat, fn=None):
    """The answer of the tree, the same each time and with or without its memory."""
    expected = built.explain(flat, fn) is None
    for _ in range(USES):
        assert built.check(flat, fn) is expected
    assert (built.explain(flat, fn) is None) is expected
    return expected


def served(built):
    return sum(built.memos)


def key(name, *checks, children=None):
    return node(A.A_KEY, name, *checks, children=children)


def padding():
    """Guards that always hold: only large trees remember anything."""
    names = {f"n{i}": i for i in range(16)}
    return node(A.A_CONST, names, children=[key(k, (C.C_EQUALS, v)) for k, v in names.items()])


class Part:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def method(self):
        return 1


class Slotted:
    __slots__ = ("x",)


def warm(built, flat, fn=None):
    assert agree(built, flat, fn)
    assert served(built) >= USES - 2
    return built


def attribute_tree(*children, checks=()):
    return tree(arg(0, *checks, children=[node(A.A_DICT, None, children=list(children))]), padding())
