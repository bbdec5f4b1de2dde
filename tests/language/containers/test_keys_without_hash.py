"""Keys and members that have no hash: what is raised, by which operation, and in which words; CPython 3.14 and later
tell what the key was for."""
import collections

import pytest
import torch

from support import check

X = torch.arange(3.0)


class TwoWords:
    def __hash__(self):
        raise TypeError("words", 2)


class OtherError:
    def __hash__(self):
        raise ValueError("other")


class OwnTypeError(TypeError):
    pass


class OwnError:
    def __hash__(self):
        raise OwnTypeError("own")


class Outer:
    class Inner(list):
        pass


KEYS = {
    "list": list,
    "two words": TwoWords,
    "another error": OtherError,
    "an error of its own": OwnError,
    "nested class": Outer.Inner,
    "tuple": lambda: (1, ([],)),
}
OPERATIONS = {
    "subscript": lambda k: {1: 2}[k],
    "in dict": lambda k: k in {1: 2},
    "get": lambda k: {}.get(k),
    "setitem": lambda k: {}.__setitem__(k, 1),
    "setdefault": lambda k: {1: 1}.setdefault(k),
    "delitem": lambda k: {1: 2}.__delitem__(k),
    "pop": lambda k: {1: 1}.pop(k),
    "pop of nothing": lambda k: type({}.pop(k, None)),
    "display": lambda k: {k: 1},
    "fromkeys": lambda k: dict.fromkeys([k]),
    "pairs": lambda k: dict([(k, 1)]),
    "update": lambda k: {}.update([(k, 1)]),
    "dict comprehension": lambda k: {i: 1 for i in [k]},
    "in keys": lambda k: k in {1: 2}.keys(),
    "in items": lambda k: (k, 1) in {1: 2}.items(),
    "set display": lambda k: {k},
    "set": lambda k: set([k]),
    "frozenset": lambda k: frozenset([k]),
    "add": lambda k: set().add(k),
    "in set": lambda k: k in {1},
    "remove": lambda k: {1}.remove(k),
    "discard": lambda k: {1}.discard(k),
    "set comprehension": lambda k: {i for i in [k]},
    "union": lambda k: {1}.union([k]),
    "intersection": lambda k: {1}.intersection([k]),
    "difference": lambda k: {1}.difference([k]),
    "symmetric difference": lambda k: {1}.symmetric_difference([k]),
    "issuperset": lambda k: {1}.issuperset([k]),
    "issubset": lambda k: {1}.issubset([k]),
    "intersection_update": lambda k: {1}.intersection_update([k]),
    "hash": hash,
    "hash of a tuple": lambda k: hash((1, k)),
    "tuple as a key": lambda k: {(k, 1): 1},
    "tuple in a set": lambda k: {(1, (k,))},
    "Counter": lambda k: collections.Counter([k]),
    "defaultdict": lambda k: collections.defaultdict(int)[k],
    "OrderedDict": lambda k: collections.OrderedDict([(k, 1)]),
    "OrderedDict.get": lambda k: collections.OrderedDict().get(k),
    "OrderedDict.pop": lambda k: collections.OrderedDict({1: 1}).pop(k),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", KEYS)
def test_errors_are_those_of_python(operation, kind):
    make, operate = KEYS[kind], OPERATIONS[operation]

    def program(x):
        y = x + 1
        try:
            return y, operate(make())
        except Exception as e:
            return y * 2, type(e), str(e), type(e.__context__), type(e.__cause__)

    check(program, X, breaks=0)
