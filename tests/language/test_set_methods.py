"""Sets and frozensets."""
import torch

from support import check

X = torch.tensor([1.0, 2.0])


def test_mutation():
    def fn(x, s):
        s.add(3)
        s.discard(99)
        s.remove(1)
        s.update([4, 5])
        return x + len(s), sorted(s)

    check(fn, X, {1, 2})


def test_algebra():
    check(lambda x, a, b: (x + 1, *map(sorted, (a | b, a & b, a - b, a ^ b, a.union(b, [9]), a.intersection(b)))), X, {1, 2}, {2, 3})


def test_in_place_algebra():
    def fn(x, a, b):
        a |= b
        a &= {1, 3}
        a -= {3}
        a ^= {7}
        return x + len(a)

    check(fn, X, {1, 2}, {3})


def test_relations():
    check(lambda x, a, b: (x + 1, a <= b, a < b, a >= b, a.issubset(b), a.isdisjoint(b), a == b), X, {1}, {1, 2})


def test_membership_chooses_a_branch():
    check(lambda x, name, known: x + 1 if name in known else x - 1, X, "a", {"a", "b"}, changed=[(X, "z", {"a", "b"})])


def test_frozenset():
    check(lambda x: (x + 1, frozenset([1, 2]) | {3}, {frozenset([1]): 2}[frozenset([1])], len(frozenset())), X)


def test_set_of_tensors_by_identity():
    check(lambda x, y: (x + y, x in {x, y}, len({x, y, x})), X, X + 1)


def test_pop_and_clear():
    def fn(x, s):
        one = s.pop()
        s.clear()
        return x + one, s

    check(fn, X, {4})
