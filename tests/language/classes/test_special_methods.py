"""Special methods of user classes reached through syntax and builtins."""
import pytest
import torch

from support import ANY, check

X = torch.tensor([1.0, 2.0])


class Bag:
    def __init__(self, *items):
        self.items = list(items)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]

    def __setitem__(self, i, v):
        self.items[i] = v

    def __delitem__(self, i):
        del self.items[i]

    def __contains__(self, v):
        return any(v is i for i in self.items)

    def __iter__(self):
        return iter(self.items)

    def __call__(self, x):
        return x + len(self)

    def __bool__(self):
        return bool(self.items)

    def __eq__(self, other):
        return isinstance(other, Bag) and len(self) == len(other)

    def __hash__(self):
        return 7

    def __neg__(self):
        return Bag(*reversed(self.items))

    def __iadd__(self, v):
        self.items.append(v)
        return self

    def __repr__(self):
        return f"Bag({len(self)})"

    def __format__(self, spec):
        return f"<{spec}>"

    def __reversed__(self):
        return reversed(self.items)

    def __index__(self):
        return 1

    def __int__(self):
        return 42


def test_indexing_and_length():
    def fn(b):
        b[0] = b[0] + len(b)
        del b[1]
        return b[0] * 2

    check(fn, Bag(X, 1, 2))


def test_iteration_and_containment():
    check(lambda b, x: ([i for i in b], x in b, x + 1, list(reversed(b))), Bag(1, 2), X)


def test_call_and_truth():
    check(lambda b, x: b(x) if b else x, Bag(1, 2), X, changed=[(Bag(), X)])


def test_equality_and_hash():
    check(lambda a, b, x: (x * 2, a == b, a != b, hash(a), {a: 1}[b]), Bag(1), Bag(2), X)


def test_in_place_add_and_negation():
    def fn(b, x):
        c = b
        b += x + 1
        return (-b).items, c is b

    check(fn, Bag(1), X)


def test_conversions():
    check(lambda b, x: (x + int(b), [10, 20, 30][b], repr(b), str(b), f"{b:abc}"), Bag(), X)


def test_ordering_with_total_ordering():
    import functools

    @functools.total_ordering
    class Rank:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

    check(lambda a, b, x: (x + 1, a >= b, max(a, b) is b, sorted([b, a])[0] is a), Rank(1), Rank(2), X)


def test_old_style_sequence_iteration():
    class Old:
        def __getitem__(self, i):
            if i > 2:
                raise IndexError
            return i

    check(lambda o, x: [x + i for i in o], Old(), X)


def test_subclasses_of_builtin_containers():
    class Stack(list):
        def push(self, v):
            self.append(v)
            return self

    class Config(dict):
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return self[name]

        def __missing__(self, key):
            return 0

    def fn(s, c, x):
        s.push(x * c.scale)
        c["seen"] = True
        return s[-1] + c.nothing, len(s)

    check(fn, Stack([1]), Config(scale=2), X)


def test_length_hint_and_negative_index():
    check(lambda b: (b.items[-1] + 1, b[-1] + 1), Bag(1, X))


def test_contextmanager_methods_get_exception_info():
    class Swallow:
        def __enter__(self):
            return self

        def __exit__(self, kind, value, tb):
            self.kind = kind
            return True

    def fn(x, s):
        with s:
            y = x + 1
            raise KeyError("gone")
        return y, s.kind is KeyError

    check(fn, X, Swallow())


class Count(int):
    def __int__(self):
        return 77

    def __index__(self):
        return 78


class Factor(float):
    pass


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n, f: x * n + (n + 1), lambda x, n, f: n * x - n, lambda x, n, f: x[n], lambda x, n, f: x[:n, n:],
        lambda x, n, f: x.sum(n - 2), lambda x, n, f: x * f + f, lambda x, n, f: torch.add(x, x, alpha=n),
        lambda x, n, f: torch.full((n, n), f), lambda x, n, f: x.roll(n, 1), lambda x, n, f: f / x,
        lambda x, n, f: (x > n, n < x, x == f),
    ],
)
def test_numbers_of_a_programs_class_as_arguments_of_operations(fn):
    x = torch.arange(16.0).view(4, 4)
    check(fn, x, Count(3), Factor(0.5), changed=[(x, Count(2), Factor(0.5)), (x, Count(3), Factor(2.0)), (x, 3, 0.5)])


def test_an_int_of_a_programs_class_is_an_index_as_it_is():
    """CPython does not ask its `__index__`."""
    check(
        lambda x, n: (x * [5, 6, 7, 8][n], (1, 2, 3, 4)[n], "abcd"[n:]), torch.ones(2), Count(3), breaks=None,
        graphs=ANY, changed=[(torch.ones(2), Count(2)), (torch.ones(2), 3)],
    )


class Rank:
    def __init__(self, number):
        self.number = number

    def __lt__(self, other):
        return self.number < other.number


def test_ordering_by_less_than_alone():
    def fn(x, a, b):
        c = Rank(3)
        return x + max([a, b, c]).number, a > b, b > c, min(c, a).number, a.__gt__(b), object.__le__(a, b)

    check(fn, X, Rank(1), Rank(2))

    def without(x, a):
        try:
            return a >= Rank(1), x
        except TypeError as e:
            return str(e), x + 1

    check(without, X, Rank(1))
