"""Entries captured for distinct inputs are not used for aliased ones, and the reverse."""
import torch

from support import Pair

X = torch.tensor([1.0, 2.0, 3.0])


def writes(a, b):
    a.add_(1)
    return b * 2


def test_distinct_then_same():
    p = Pair(lambda: writes)
    p.call(X, X * 2)
    p.call(*[X] * 2)
    p.call(X, X * 2, captures=False)


def test_same_then_distinct():
    p = Pair(lambda: writes)
    p.call(*[X] * 2)
    p.call(X, X * 2, captures=True)
    p.call(*[X] * 2, captures=False)


def test_overlapping_views():
    p = Pair(lambda: writes)
    p.call(X[:2].clone(), X[1:].clone())
    base = X.clone()
    p.call(base[:2], base[1:])


def test_identity_test_in_the_program():
    p = Pair(lambda: lambda a, b: a + 1 if a is b else a - b)
    p.call(X, X * 2)
    p.call(*[X] * 2, captures=True)
    p.call(X, X * 2, captures=False)


def test_aliased_containers():
    def fn(x, a, b):
        a.append(1)
        return x + len(b)

    p = Pair(lambda: fn)
    p.call(X, [], [])
    shared = []
    p.call(X, shared, shared)
    p.call(X, [], [])


def test_same_object_under_two_attributes():
    class Obj:
        def __init__(self, a, b):
            self.a, self.b = a, b

    def fn(x, o):
        o.a["n"] = 5
        return x + o.b["n"]

    p = Pair(lambda: fn)
    p.call(X, Obj({"n": 1}, {"n": 1}))
    d = {"n": 1}
    p.call(X, Obj(d, d))


def test_argument_aliases_a_parameter():
    def make():
        w = torch.nn.Parameter(X.clone(), requires_grad=False)

        def fn(x):
            x.add_(1)
            return w * x

        return fn, w

    p = Pair(make)
    p.call(X)
    assert torch.equal(p.compiled(p.state), p.eager(p.eager_state))
    assert torch.equal(p.state, p.eager_state)


def test_argument_aliases_a_global_list():
    def make():
        log = []

        def fn(x, items):
            items.append(1)
            return x + len(log)

        return fn, log

    p = Pair(make)
    p.call(X, [])
    assert torch.equal(p.compiled(X, p.state), p.eager(X, p.eager_state))
    assert p.state == p.eager_state == [1]


def test_many_tensors_written_in_place():
    """One guard for all, not one for each pair."""
    from framejit import _native as native

    def fn(tensors, x):
        for i, t in enumerate(tensors):
            t.add_(i)
        return x + tensors[0]

    pair = Pair(lambda: fn)
    pair.call([X.clone() for _ in range(40)], X)
    records = [r for r in pair.compiled.entries[0].tag.records if r.check == native.C_DISTINCT]
    assert len(records) == 1 and len(records[0].also_names) == 40
    shared = X.clone()
    pair.call([shared] * 40, X)
    pair.call([X.clone() for _ in range(40)], X, captures=False)
