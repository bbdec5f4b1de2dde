"""Objects that were told apart by identity, in a table or by ==, are guarded to be different ones."""
import threading
import time

import pytest
import torch

from framejit import _native as native

from support import ANY, Pair

X = torch.tensor([1.0, 2.0])


class Obj:
    pass


KINDS = {
    "set": lambda a, b: len({a, b}),
    "dict": lambda a, b: len({a: 1, b: 2}),
    "in set": lambda a, b: a in {b},
    "in dict": lambda a, b: a in {b: 1},
    "get": lambda a, b: {a: 1}.get(b, 5),
    "set built from list": lambda a, b: len(set([a, b])),
    "comprehension": lambda a, b: len({o: i for i, o in enumerate((a, b))}),
    "union": lambda a, b: len({a} | {b}),
    "intersection": lambda a, b: len({a}.intersection([b])),
    "difference": lambda a, b: len({a}.difference([b])),
    "set equality": lambda a, b: {a} == {b},
    "dict equality": lambda a, b: {a: 1} == {b: 1},
    "dict merge": lambda a, b: len({**{a: 1}, **{b: 2}}),
    "update": lambda a, b: len(dict({a: 1}, **{}) | {b: 1}),
    "discard": lambda a, b: _without({a}, b),
    "fromkeys": lambda a, b: len(dict.fromkeys([a, b])),
    "tuple keys": lambda a, b: len({(a, 1), (b, 1)}),
    "nested tuple keys": lambda a, b: ((a, 1), 2) in {((b, 1), 2): 3},
    "frozenset of frozensets": lambda a, b: len({frozenset([a]), frozenset([b])}),
    "view": lambda a, b: a in {b: 1}.keys(),
    "is": lambda a, b: a is b,
}
OBJECT_KINDS = {
    "in list": lambda a, b: a in [b],
    "index": lambda a, b: [b, 1, a].index(a),
    "count": lambda a, b: [b, a].count(a),
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "values": lambda a, b: a in {1: b}.values(),
    "items": lambda a, b: (1, a) in {1: b}.items(),
    "list equality": lambda a, b: [a] == [b],
    "tuple equality": lambda a, b: (a, 1) == (b, 1),
    "dict of values": lambda a, b: {1: a} == {1: b},
    "id": lambda a, b: id(a) == id(b),
    "id in set": lambda a, b: id(a) in {id(b)},
    "bound methods": lambda a, b: len({a.__init__, b.__init__}),
}


def _without(members, one):
    members.discard(one)
    return len(members)


@pytest.mark.parametrize("kind", KINDS)
def test_tensors(kind):
    def make():
        return lambda a, b: (a + 1, KINDS[kind](a, b))

    pair = Pair(make)
    x, y = X.clone(), X.clone()
    pair.call(x, y)
    expected, got = pair.eager(x, x), pair.compiled(x, x)
    assert expected[1] == got[1]
    pair.call(x, y, captures=False)


@pytest.mark.parametrize("kind", [*KINDS, *OBJECT_KINDS])
def test_objects(kind):
    fn = {**KINDS, **OBJECT_KINDS}[kind]
    if kind == "bound methods":
        class WithMethod(Obj):
            def __init__(self):
                self.n = 1

        p, q = WithMethod(), WithMethod()
    else:
        p, q = Obj(), Obj()

    def make():
        return lambda x, a, b: (x + 1, fn(a, b))

    pair = Pair(make)
    for a, b in ((p, q), (p, p), (q, p), (q, q)):
        assert pair.eager(X, a, b)[1] == pair.compiled(X, a, b)[1], (a is b)


def test_keys_of_an_existing_dict_and_a_stranger():
    p, q, r = Obj(), Obj(), Obj()
    table = {p: 1, q: 2}
    pair = Pair(lambda: lambda x, d, o: (x + 1, d.get(o, 0)))
    for o in (r, p, q, r):
        assert pair.eager(X, table, o)[1] == pair.compiled(X, table, o)[1]


def test_members_of_an_existing_set():
    p, q, r = Obj(), Obj(), Obj()
    pair = Pair(lambda: lambda x, s, o: (x + 1, o in s, len(s | {o})))
    for s in ({p, q}, {p, r}, {r}, {q, r}):
        for o in (r, p, q):
            assert pair.eager(X, s, o)[1:] == pair.compiled(X, s, o)[1:]


@pytest.mark.parametrize(
    "make", [lambda: "".join(["a b"] * 2), lambda: int("1000001"), lambda: float("4.5"), lambda: bytes([1, 2])]
)
def test_numbers_and_texts_by_identity(make):
    one, other = make(), make()
    assert one == other and one is not other
    pair = Pair(lambda: lambda x, a, b: (x + 1, a is b, a is not b, a is one, b is a))
    for a, b in ((one, other), (one, one), (other, one), (other, other), (make(), make())):
        assert pair.eager(X, a, b)[1:] == pair.compiled(X, a, b)[1:]


def test_texts_made_here():
    def fn(x, a):
        made = "ke"
        made += "y1"
        return x + 1, made is "key1", made is made, a is "key1", a + "" is a, 1000 + len(a) is 1004  # noqa: F632

    pair = Pair(lambda: fn)
    for a in ("key1", "".join(["key", "1"])):
        assert pair.eager(X, a)[1:] == pair.compiled(X, a)[1:]


def test_a_set_of_many_tensors_has_one_guard():
    """The guard is linear in the number of tensors, and so is its time."""

    def fn(model):
        return len({p for p in model.parameters()})

    def time_of(n):
        model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(1), requires_grad=False) for _ in range(n)])
        pair = Pair(lambda: lambda x: (x + 1, fn(model)))
        assert pair.compiled(X)[1] == n
        entry = pair.compiled.entries[0]
        records = [r for r in entry.tag.records if r.check == native.C_DISTINCT]
        assert len(records) == 1 and len(records[0].also_names) == n - 1
        best = min(_timed(pair.compiled, X) for _ in range(20))
        model[1] = model[0]
        assert pair.compiled(X)[1] == n - 1
        return best

    assert time_of(400) < 60 * time_of(40) + 1e-4


def _timed(fn, *args):
    began = time.perf_counter()
    fn(*args)
    return time.perf_counter() - began


class OwnLength(list):
    def __len__(self):
        return 1


class Compared(type):
    def __eq__(cls, other):
        return cls is other

    def __hash__(cls):
        return 5


@pytest.mark.parametrize("make", [OwnLength, threading.Lock, lambda: Compared("C", (), {})])
def test_objects_without_a_model(make):
    one, other = make(), make()
    pair = Pair(lambda: lambda x, a, b: (x + 1, a is b, a is not b[0] if type(b) is tuple else None))
    for a, b in ((one, one), (one, other), (other, other), (one, (one,)), (one, (other,))):
        assert pair.eager(X, a, b)[1:] == pair.compiled(X, a, b)[1:]
    pair.expect(graphs=ANY, breaks=0)


def test_the_class_of_an_object_that_compares_itself():
    first, second = Compared("First", (), {}), Compared("Second", (), {})
    pair = Pair(lambda: lambda x, a, cls: (x + 1, type(a) is cls))
    for a, cls in ((first(), first), (first(), second), (second(), second)):
        assert pair.eager(X, a, cls)[1:] == pair.compiled(X, a, cls)[1:]
