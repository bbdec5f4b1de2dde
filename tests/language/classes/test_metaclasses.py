"""Classes whose metaclass has methods of the program's own: operators on a class, calls of it, and its truth."""

import operator
import typing

import pytest
import torch

from support import ANY, Pair, check_state

X = torch.ones(2)
T = typing.TypeVar("T")


def classes():
    class Meta(type):
        def __getitem__(cls, i):
            return cls.values[i]

        def __len__(cls):
            return cls.values[0]

        def __iter__(cls):
            return iter(cls.values)

        def __contains__(cls, item):
            return item in cls.values

        def __add__(cls, other):
            return cls.values[0] + (other if isinstance(other, int) else 1)

        def __radd__(cls, other):
            return cls.values[1] + other

        def __neg__(cls):
            return -cls.values[0]

        def __abs__(cls):
            return cls.values[0]

        def __lt__(cls, other):
            return cls.values[0] < 2

        def __or__(cls, other):
            return cls.values[0]

        def __matmul__(cls, other):
            return cls.values[0]

        def __repr__(cls):
            return "x" * cls.values[0]

        def __index__(cls):
            return cls.values[0]

        def __float__(cls):
            return float(cls.values[0])

        def __call__(cls, value):
            return cls.values[0] * value

        def __instancecheck__(cls, instance):
            return cls.values[0] == 1

        @property
        def first(cls):
            return cls.values[0]

    class Special(metaclass=Meta):
        values = [1, 2, 3]

    return Special


def entered(cls, x):
    first, *_ = cls
    return first


USES = {
    "[]": lambda cls, x: cls[0],
    "len": lambda cls, x: len(cls),
    "iter": lambda cls, x: sum(cls),
    "in": lambda cls, x: int(1 in cls),
    "+": lambda cls, x: cls + 1,
    "+ itself": lambda cls, x: cls + cls,
    "reflected +": lambda cls, x: 1 + cls,
    "operator.add": lambda cls, x: operator.add(cls, 1),
    "-": lambda cls, x: -cls,
    "abs": lambda cls, x: abs(cls),
    "<": lambda cls, x: int(cls < 3),
    "|": lambda cls, x: cls | cls,
    "@": lambda cls, x: cls @ x,
    "repr": lambda cls, x: len(repr(cls)),
    "f-string": lambda cls, x: len(f"{cls}"),
    "%": lambda cls, x: len("%s" % cls),  # noqa: UP031
    "index": lambda cls, x: list(range(9))[cls],
    "range": lambda cls, x: len(range(cls)),
    "float": lambda cls, x: float(cls),
    "call": lambda cls, x: cls(2),
    "isinstance": lambda cls, x: int(isinstance(3, cls)),
    "truth": lambda cls, x: 2 if cls else 3,
    "property": lambda cls, x: cls.first,
    "unpacking": entered,
}


@pytest.mark.parametrize("use", USES)
def test_operators_on_a_class(use):
    """What they read is looked at again by each call."""

    def make():
        special = classes()

        def fn(x, n):
            special.values[0] = n
            return x * USES[use](special, x)

        def outside(x, n):
            return x * USES[use](special, x)

        return fn, lambda: special.values

    check_state(make, (X, 1), (X, 1), (X, 4), (X, 0), breaks=None)


@pytest.mark.parametrize("use", USES)
def test_what_changes_between_calls(use):
    def make():
        special = classes()
        number = iter([1, 1, 4, 0])

        def state():
            special.values[0] = next(number)
            return special.values

        return (lambda x: x * USES[use](special, x)), state

    check_state(make, (X,), (X,), (X,), (X,), breaks=None)


def test_classes_that_compare_themselves():
    def make():
        class Meta(type):
            def __eq__(cls, other):
                seen.append("eq")
                return cls.value == 1

            def __hash__(cls):
                seen.append("hash")
                return cls.value

        class Special(metaclass=Meta):
            value = 1

        seen = []

        def fn(x, made):
            return x * (2 if Special == 3 else 3), Special in [5, 6], isinstance(made, Special), {Special: 1}

        made = Special()
        return (lambda x: fn(x + 1, made)[:3]), lambda: list(seen)

    check_state(make, (X,), (X,), (X,), breaks=None)


def test_calls_by_super():
    """`type.__call__`, from the metaclass's own `__call__`."""

    def make():
        class Counts(type):
            made = 0

            def __call__(cls, *args, **kwargs):
                Counts.made += 1
                found = super().__call__(*args, **kwargs)
                found.number = Counts.made
                return found

        class Once(type):
            known = {}

            def __call__(cls, *args):
                if cls not in Once.known:
                    Once.known[cls] = type.__call__(cls, *args)
                return Once.known[cls]

        class Box(metaclass=Counts):
            def __init__(self, value, *, factor=1):
                self.value = value * factor

        class Single(metaclass=Once):
            def __init__(self, value):
                self.value = value

        def fn(x):
            one, two = Box(x), Box(x, factor=2)
            return one.value + two.value, one.number, two.number, Single(2).value * x, Single(3) is Single(4)

        return fn, lambda: (Counts.made, len(Once.known))

    check_state(make, (X,), (X,), (X,), graphs=ANY)


def test_subscripts_of_a_class():
    """`__class_getitem__` of the program's own is called by each call; that of `Generic` is not captured."""

    def make():
        class Table:
            rows = [1]

            def __class_getitem__(cls, place):
                return cls.rows[0] + place

        class Child(Table):
            pass

        class Box(typing.Generic[T]):
            pass

        numbers = iter([1, 1, 4, 2])

        def state():
            Table.rows[0] = next(numbers)
            return Table.rows

        def fn(x, n):
            return x * Table[2] + Child[n], list[int], Box[int] is Box[int]

        return fn, state

    check_state(make, *[(X, 3)] * 4, breaks=None)


WITHOUT_A_NAME = """
import abc
import torch

class Sequenced(type):
    def __getitem__(cls, i):
        return cls.__qualname__, i

    def __len__(cls):
        return cls.length

    def __add__(cls, other):
        return cls.length + other

class A(metaclass=Sequenced):
    length = 3

    def __class_getitem__(cls, i):
        return "of the class"

class Base(abc.ABC):
    pass

class C:
    pass

def operators(x):
    return A[2], len(A), A + 1, (2, A)[1] + 1, x + len(A)

def made_here(x):
    made = type("T", (C,), {"a": 1})
    try:
        module = made.__module__
    except AttributeError as e:
        module = str(e)
    return made().a, repr(made), isinstance(made(), C), module, x + 1

def refused(x):
    try:
        return x + type("T", (), {})()
    except TypeError as e:
        return x, str(e)

def registered(x):
    return isinstance(C(), Base), C.__module__, repr(C), x + 1

def of_an_argument(x, y=None):
    return type(y).__qualname__, isinstance(y, C), x + 1

nameless = type("N", (), {})
"""


@pytest.mark.parametrize("name", ["operators", "made_here", "refused", "registered", "of_an_argument"])
def test_classes_in_globals_without_a_name(name):
    worlds = []

    def make():
        namespace = {}
        exec(WITHOUT_A_NAME, namespace)
        worlds.append(namespace)
        return namespace[name], None

    pair = Pair(make)
    for length in (3, 3, 5):
        for world in worlds:
            world["A"].length = length
        pair.call(X)
    for world in worlds:
        world["Base"].register(world["C"])
    pair.call(X)
    if name == "of_an_argument":
        pair.call(X, worlds[0]["nameless"]())
        pair.call(X, 3)
        pair.call(X, worlds[0]["nameless"]())
