"""`copy.copy` and `copy.deepcopy` of instances that say what their state is, or how they are made."""
from __future__ import annotations

import copy

import pytest
import torch

from support import Pair

X = torch.arange(4.0)


class Restored:
    def __init__(self):
        self.a, self.tensor, self.items, self.left_out = 1, torch.ones(4), [1], object()

    def __getstate__(self):
        state = self.__dict__.copy()
        del state["left_out"]
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.left_out = "made anew"


class Renamed:
    def __init__(self):
        self.a, self.b = 1, [2]

    def __getstate__(self):
        return {"a": self.a + 1, "c": self.b}


class Nothing:
    a = 3

    def __getstate__(self):
        return None


class InTwoParts:
    def __init__(self):
        self.a = 1

    def __getstate__(self):
        return {"a": self.a}, {"b": 2}


class WithItsDict:
    def __init__(self):
        self.a, self.me = 1, self

    def __getstate__(self):
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__ = state


class MadeBy:
    def __new__(cls, a=1):
        made = super().__new__(cls)
        made.made_with = a
        return made

    def __init__(self, a=1):
        self.a = a


class MadeOfSomething:
    def __new__(cls, a):
        return super().__new__(cls)

    def __init__(self, a=2):
        self.a = a


@pytest.mark.parametrize("cls", [Restored, Renamed, Nothing, InTwoParts, WithItsDict, MadeBy, MadeOfSomething])
def test_copies(cls):
    def world():
        instance = cls(5) if cls is MadeOfSomething else cls()

        def fn(x, n):
            found = []
            for copied in (copy.copy, copy.deepcopy):
                try:
                    made = copied(instance)
                except TypeError as e:
                    x = x + len(e.args)
                    continue
                found += [made.a, sorted(vars(made)), getattr(made, "items", 0) is getattr(instance, "items", 1)]
                if n % 2 and hasattr(made, "items"):
                    made.items.append(n)
            return x + sum(a for a in found if type(a) is int), found

        return fn, lambda: sorted(vars(instance))

    pair = Pair(world)
    for n in range(3):
        pair.call(X, n)
    if cls in (Restored, Renamed, Nothing):
        pair.expect(breaks=0)
