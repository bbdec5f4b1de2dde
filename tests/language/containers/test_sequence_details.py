"""Lists, tuples and sorting in detail: what indices may be, what is raised, which comparisons are made, which object
comes back."""
import copy
from collections import namedtuple

import torch

from support import check, check_state

X = torch.ones(2)
NAN = float("nan")


class Two:
    def __index__(self):
        return 2


class Compared:
    def __init__(self, value, log):
        self.value, self.log = value, log

    def __lt__(self, other):
        self.log.append((self.value, other.value))
        return self.value < other.value


def test_indices():
    def fn(x):
        items, two = list(range(6)), Two()
        items.insert(two, "k")
        taken = items.pop(two)
        slices = items[two:], items[:two], items[::two], items[-100:100], items[100:]
        return x + 1, taken, items[two], slices, items * two, two * [1], items[-1], items.index(3, -4, 100), [0] * -3

    check(fn, X)


def test_messages():
    def fn(x):
        items, log, t = [1, 2], [], "a"
        wrong = [
            lambda: items.index(99), lambda: (1,).index("a"), lambda: items.remove(99), lambda: items[9],
            lambda: (1,)[9], lambda: (1, x)[t], lambda: [x][t],
            lambda: [].pop(), lambda: items.pop(5), lambda: items.__setitem__(5, 1),
            lambda: items.__setitem__(slice(None, None, 2), [1, 2, 3]), lambda: items.__delitem__("a"),
            lambda: items[::0], lambda: [x, 1].index(2, "a"),
        ]
        for call in wrong:
            try:
                call()
            except (IndexError, ValueError, TypeError) as e:
                log.append((type(e), str(e)))
        return x + 1, log, items

    check(fn, X, graphs=None, breaks=None)


def test_identity_of_tuples():
    def fn(x):
        t, u = (1, 2), (x, 1)
        return (
            x + 1, t[:] is t, t * 1 is t, () + t is t, t + () is t, tuple(t) is t, u[:] is u, u * 1 is u, u * 2 is u,
            [*u] == u,
        )

    check(fn, X)


def test_identity_comes_before_equality():
    def fn(x, n):
        return (
            x + 1, n is n, n == n, [n].index(n), [n, 1].count(n), n in [n], n in (1, n), [n] == [n], (n,) == (n,),
            [n].count(float("nan")), n is float("nan"),
        )

    check(fn, X, NAN)
    check(lambda x: fn(x, NAN), X)


def test_identity_of_equal_floats_is_guarded():
    a, b = float("1.5"), float("1.5")

    def fn(x, p, q):
        return x + 1, p is q

    check(lambda x, same: fn(x, a, a if same else b), X, True, changed=[(X, False)])


def test_comparisons_of_sort():
    def fn(x, reverse):
        log = []
        items = [Compared(v, log) for v in (5, 2, 8, 1, 9, 3, 3, 7)]
        items.sort(reverse=reverse)
        by_key = sorted(range(5), key=lambda v: Compared(-v, log), reverse=reverse)
        return x + 1, [i.value for i in items], by_key, log

    check(fn, X, False)
    check(fn, X, True)


def test_sort_that_is_disturbed():
    def fn(x):
        log, items = [], [3, 1, 2]

        def key(v):
            log.append(list(items))
            items.append(v)
            return v

        def failing(v):
            if v == 2:
                raise KeyError(v)
            return v

        for call in (
            lambda: items.sort(key=key), lambda: items.sort(key=failing), lambda: [1, "a"].sort(),
            lambda: items.sort(key=None, reverse=1),
        ):
            try:
                call()
            except (ValueError, KeyError, TypeError) as e:
                log.append((type(e), str(e)))
        return x + 1, log, items

    check(fn, X)


def test_one_tuple_or_slice_is_one_after_a_break():
    def fn(x):
        both = (1, 2, [])
        same, part, again = both, slice(1, 2), [both, both]
        also, append = part, again.append
        method = append
        if x.sum() > 0:  # a graph break
            x = x + 1
        return x, same is both, also is part, again[0] is again[1], again[0] is both, method is append

    check(fn, X, graphs=None, breaks=None)


def test_copies_of_tuples():
    Point = namedtuple("Point", "x y")

    def fn(x, deep):
        plain, cycle, named = (1, [2]), ([],), Point(1, 2)
        cycle[0].append(cycle)
        flat, copied, shared = (1, (2, 3)), copy.deepcopy(cycle), copy.deepcopy([plain, plain])
        found = (
            copy.copy(plain) is plain, copy.deepcopy(flat) is flat, copied[0][0] is copied, shared[0] is shared[1],
            shared[0] is plain,
        )
        return x + 1, found, copy.copy(named) is named, copy.deepcopy(named) is named, copy.copy(deep) is deep

    check(fn, X, (1, 2), graphs=None, breaks=None)


def test_repetition_asked_for_by_name():
    def fn(x, count):
        return (
            x + 1, "ab".__mul__(count), b"ab".__rmul__(count), [1].__mul__(count), "ab".__mul__(2),
            "ab".__eq__(count), (2).__mul__(count),
        )

    check(fn, X, Two(), graphs=None, breaks=None)


class Row(tuple):
    __slots__ = ()


def test_what_an_instance_of_a_subclass_gives_is_another_object():
    def fn(x, row, plain):
        same = (
            row * 1 is row, row[:] is row, () + row is row, row + () is row, plain * 1 is plain, plain[:] is plain,
            () + plain is plain,
        )
        return x + 1, same, type(row * 1), row * 1 == row

    check(fn, X, Row((1, 2)), (1, 2))


class Text(bytes):
    pass


def test_copies_of_what_classes_written_in_c_keep():
    def make():
        text = Text(b"abcd")
        text.note = [1]

        def fn(x):
            shallow, deep = copy.copy(text), copy.deepcopy(text)
            return x + 1, shallow, deep, shallow.note is text.note, deep.note, type(deep)

        return fn

    check_state(make, (X,), breaks=None)
