"""== and order of containers and of instances of their subclasses: by content, by the type's own rules, and by what the
program defines."""
import datetime
from collections import Counter, OrderedDict, UserDict, defaultdict, deque

import pytest
import torch

from support import ANY, check

X = torch.tensor([1.0, 2.0])


class T(tuple):
    pass


class L(list):
    pass


class D(dict):
    pass


class S(set):
    pass


class F(frozenset):
    pass


class Q(deque):
    pass


class O(OrderedDict):  # noqa: E742
    pass


class OwnEq(list):
    def __eq__(self, other):
        return "own"

    __hash__ = None


PAIRS = [
    (T([1, 2]), T([1, 2])), (T([1, 2]), (1, 2)), ((1, 2), T([1, 3])), (T([1]), [1]),
    (L([1, 2]), L([1, 2])), (L([1]), [1]), ([1], L([2])), (L([1]), (1,)),
    (D({1: 2}), D({1: 2})), (D({1: 2}), {1: 2}), ({1: 3}, D({1: 2})), (D({1: 2}), [(1, 2)]),
    (S({1}), S({1})), (S({1}), {1}), (S({1}), frozenset({1})), (F({1}), {1}), (F({1}), F({2})), ({"a", "b"}, "ab"),
    ({1}, [1]),
    (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)), (OrderedDict(a=1, b=2), {"b": 2, "a": 1}),
    (O(a=1, b=2), OrderedDict(b=2, a=1)), (O(a=1), O(a=1)),
    (defaultdict(list, a=1), {"a": 1}), (Counter({"a": 0}), Counter()), (Counter(a=1), {"a": 1}),
    (Counter("ab"), Counter("ba")),
    (deque([1, 2]), deque([1, 2])), (Q([1]), deque([1])), (deque([1]), [1]), (UserDict(a=1), {"a": 1}),
    (UserDict(a=1), UserDict(a=2)),
    (OwnEq([1]), [1]), ([1], OwnEq([1])), ([OwnEq([1])], [[1]]),
]


@pytest.mark.parametrize("a, b", PAIRS, ids=lambda v: type(v).__name__)
def test_equality(a, b):
    check(lambda x, a, b: (x + 1, a == b, a != b, b == a, [a] == [b], {1: a} == {1: b}), X, a, b, breaks=None)


def test_views():
    def fn(x, d, e):
        keys, items, values = d.keys(), d.items(), d.values()
        return (
            x + 1, {1} == keys, keys == {1}, {(1, 2)} == items, items == {(1, 2)}, items == e.items(),
            values == values, values == d.values(), keys == [1],
        )

    check(fn, X, {1: 2}, {1: 2}, changed=[(X, {1: 3}, {1: 2})])


def test_made_inside():
    def fn(x):
        return (
            x + 1, T((1, 2)) == T((1, 2)), L([1]) == L([2]), D(a=1) == {"a": 1}, S("ab") == {"a", "b"},
            F("a") == S("a"), O(a=1, b=2) == O(b=2, a=1),
        )

    check(fn, X)


def test_tensors_inside_are_compared_by_identity_first():
    check(lambda x, y: (x + 1, [x] == [x], (x, 1) == (x, 2), {1: x} == {1: x}, T([x]) == T([x])), X, X + 1)


def test_order_of_sequences():
    check(lambda x, a, b: (x + 1, a < b, a <= b, a > b, a >= b, sorted([a, b])), X, T([1, 2]), T([1, 3]))
    check(lambda x, a, b: (x + 1, a < b, a >= b), X, L([1, 2]), [1])
    check(lambda x, a, b: (x + 1, a < b), X, [1], (1,), raises=TypeError)


def test_order_of_sets():
    check(lambda x, a, b: (x + 1, a < b, a <= b, a > b, a >= b), X, S({1}), frozenset({1, 2}))
    check(
        lambda x, a, b: (x + 1, a < b.keys(), a <= b.keys(), b.keys() > a, b.items() >= {(1, 2)}), X, {1}, {1: 2, 3: 4}
    )
    check(lambda x, a, b: (x + 1, a < b), X, {1}, [1], raises=TypeError)


def test_nan_is_equal_to_itself_in_containers():
    nan = float("nan")

    def fn(x):
        return (
            x + 1, nan in [nan], [nan] == [nan], {nan} == {nan}, {1: nan} == {1: nan}, (nan,) == (nan,), nan == nan,
            [nan].index(nan), [nan].count(nan),
        )

    check(fn, X)


def test_eq_of_values_runs_in_order_and_stops_at_the_first_difference():
    class V:
        def __init__(self, name, log):
            self.name, self.log = name, log

        def __eq__(self, other):
            self.log.append((self.name, other.name))
            return self.name == other.name

        __hash__ = None

    def fn(x):
        log = []
        left = {i: V(n, log) for i, n in enumerate("abcd")}
        right = {i: V(n, log) for i, n in enumerate("abxd")}
        return x + 1, left == right, log, left.items() == right.items(), len(log)

    check(fn, X)


class Emptying:
    """Says nothing of equality, and empties a list when it is asked."""

    def __init__(self, target):
        self.target = target

    def __eq__(self, other):
        self.target.clear()
        return NotImplemented

    __lt__ = __eq__


def test_comparing_items_empties_the_lists():
    def fn(x):
        first, second, third = [], [], []
        first.append(Emptying(second))
        second.append(Emptying(first))
        third.append(Emptying(third))
        ordered = [1, 2]
        return (
            x + 1, first == second, third == [1], first != second, len(first), ordered < [1],
            [Emptying(ordered)] == ordered,
        )

    check(fn, X)


def test_complex_numbers_among_tensors():
    def fn(x, one):
        return 1j in [one], [one].count(1 + 0j), [2j, one].index(one), [1 + 0j] == [one], {"a": 1j} == {"a": one}, x + 1

    check(fn, X, torch.tensor(1.0), graphs=ANY, breaks=None)
    check(fn, X, torch.tensor(1j), graphs=ANY, breaks=None)
    check(lambda x: (x + 1, 1j in (x, 2)), X, raises=RuntimeError)


class Told:
    def __init__(self, seen):
        self.seen = seen

    def __eq__(self, other):
        self.seen.append(other)
        return True


@pytest.mark.parametrize("kind", [tuple, list, deque, T, L])
def test_items_of_containers_of_different_lengths(kind):
    """Lists that differ in length ask no item; tuples do."""

    def fn(x):
        seen = []
        return x + 1, kind([Told(seen), 1]) == kind([2]), kind([Told(seen)]) != kind([2, 3]), seen

    check(fn, X)
    check(lambda x: (x + 1, x.shape == (x, 1)), X, raises=RuntimeError)


def test_classes_of_libraries_in_messages():
    def fn(x, date):
        try:
            return x + len(date)
        except TypeError as e:
            return x + 1, str(e)

    check(fn, X, datetime.date(2024, 1, 1))
    check(lambda x, date: [*date], X, datetime.date(2024, 1, 1), raises=TypeError)
