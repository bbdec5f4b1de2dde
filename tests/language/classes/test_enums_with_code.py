"""Members of enums with operators, methods, properties and attributes of the program's own: what these read may change
between calls."""

import enum
import functools
import operator

import pytest
import torch

from support import Pair, check_state

X = torch.ones(2)


def members():
    class Kind(enum.Enum):
        A = 1
        B = 2

        def __add__(self, other):
            return STATE[0] + (other if isinstance(other, int) else 1)

        def __radd__(self, other):
            return STATE[0] + other

        def __neg__(self):
            return -STATE[0]

        def __bool__(self):
            return STATE[0] > 1

        def __str__(self):
            return "s" * STATE[0]

        def __repr__(self):
            return "r" * (STATE[0] + 1)

        def __lt__(self, other):
            return STATE[0] < 2

        def __contains__(self, item):
            return item in STATE

        def __len__(self):
            return STATE[0]

        def __getitem__(self, place):
            return STATE[place]

        def __iter__(self):
            return iter(STATE)

        def __call__(self, value):
            return value * STATE[0]

        def __index__(self):
            return STATE[0]

        def __float__(self):
            return float(STATE[0])

        def __matmul__(self, other):
            return STATE[0]

        def __abs__(self):
            return STATE[0]

        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(name)
            return STATE[0]

        @property
        def now(self):
            return STATE[0]

        @classmethod
        def of_class(cls):
            return STATE[0] * len(cls.__members__)

        def method(self):
            return self.now + self.value

    return Kind


STATE = [1]
USES = {
    "+": lambda e, x: e + 1,
    "+ itself": lambda e, x: e + e,
    "reflected +": lambda e, x: 1 + e,
    "-": lambda e, x: -e,
    "truth": lambda e, x: 2 if e else 3,
    "and": lambda e, x: (e and 5) or 6,
    "str": lambda e, x: len(str(e)),
    "repr": lambda e, x: len(repr(e)),
    "f-string": lambda e, x: len(f"{e}{e!r}"),
    "%": lambda e, x: len("%s" % e),  # noqa: UP031
    "format": lambda e, x: len("{}".format(e)),  # noqa: UP032
    "in a tuple": lambda e, x: len(str((e,))),
    "<": lambda e, x: int(e < 3),
    "tuples": lambda e, x: int((e, 1) < (e, 2)),
    "in": lambda e, x: int(1 in e),
    "len": lambda e, x: len(e),
    "[]": lambda e, x: e[0],
    "unpacking": lambda e, x: [*e][0],
    "call": lambda e, x: e(2),
    "index": lambda e, x: list(range(9))[e],
    "slice": lambda e, x: list(range(9))[e:][0],
    "range": lambda e, x: len(range(e)),
    "float": lambda e, x: float(e),
    "abs": lambda e, x: abs(e),
    "@": lambda e, x: e @ x,
    "missing attribute": lambda e, x: e.nothing,
    "property": lambda e, x: e.now,
    "class method": lambda e, x: e.of_class(),
    "method": lambda e, x: e.method(),
    "operator.add": lambda e, x: operator.add(e, 1),
    "any": lambda e, x: int(any([e])),
    "filter": lambda e, x: len(list(filter(None, [e]))),
    "map": lambda e, x: list(map(operator.neg, [e]))[0],
    "reduce": lambda e, x: functools.reduce(operator.add, [e, 1]),
}


@pytest.mark.parametrize("use", USES)
def test_what_they_read_changes(use, monkeypatch):
    monkeypatch.setitem(globals(), "STATE", [1])
    kind = members()
    pair = Pair(lambda: lambda x: x * USES[use](kind.A, x))
    for number in (1, 1, 4, 0, 2):
        STATE[0] = number
        pair.call(X)


def test_attributes_of_members():
    def make():
        class Kind(enum.Enum):
            A = 1
            B = 2

            def __init__(self, value):
                self.double = value * 2

        Kind.A.extra = 1
        steps = iter(range(5))

        def state():
            step = next(steps)
            Kind.A.extra = step
            Kind.B.double = step
            if step > 2:
                Kind.B.late = step
            return [vars(member).get("extra") for member in Kind]

        return (lambda x: (x * Kind.A.extra, Kind.B.double, getattr(Kind.B, "late", 0))), state

    check_state(make, *[(X,)] * 5)


def test_members_without_code_get_attributes():
    def make():
        class Plain(enum.Enum):
            A = 1

        steps = iter(range(4))

        def state():
            Plain.A.late = next(steps)
            return Plain.A.late

        return (lambda x: x * getattr(Plain.A, "late", 7)), state

    check_state(make, *[(X,)] * 4)


def test_they_compare_and_hash_themselves(monkeypatch):
    monkeypatch.setitem(globals(), "STATE", [1])

    class Kind(enum.Enum):
        A = 1
        B = 2

        def __eq__(self, other):
            return STATE[0] == 1

        def __hash__(self):
            return STATE[0]

    def fn(x, e):
        return (
            x * (2 if e == 3 else 5), e in [7], {Kind.A: 1}.get(Kind.B, 9), e != 4, len({Kind.A, Kind.B}), e is Kind.A,
        )

    pair = Pair(lambda: lambda x: fn(x, Kind.A))
    for number in (1, 1, 4):
        STATE[0] = number
        pair.call(X)


def test_kinds_of_numbers_and_texts():
    """What code they have does not keep the rest from being known."""

    class Level(enum.IntEnum):
        LOW = 1
        HIGH = 2

        def next(self):
            return Level(self + 1) if self < 2 else self

        @property
        def title(self):
            return self.name.title()

    class Text(str, enum.Enum):  # noqa: UP042
        A = "a"
        B = "b"

        @property
        def twice(self):
            return self.value * 2

    class Flags(enum.Flag):
        R = enum.auto()
        W = enum.auto()
        RW = R | W

        @property
        def writes(self):
            return bool(self & Flags.W)

    def fn(x, level, text, flags):
        known = {Level.LOW: 1, Level.HIGH: 2, Text.A: 3, Text.B: 4}
        y = x * known[level] + known[text] + x.sum(level - 1 if level == 1 else 0)
        return (
            y, level + 1, level.next(), level.title, f"{text.value}{level:d}", text == "a", text + "z", text.twice,
            flags.writes, flags | Flags.W, ~flags, Flags.R in flags, level is Level.HIGH, [e.name for e in Level],
            Level["LOW"], Text("b"), isinstance(level, int), text.upper(), level < 2, sorted([level, Level.LOW]),
        )

    pair = Pair(lambda: fn)
    for given in ((Level.LOW, Text.A, Flags.R), (Level.HIGH, Text.B, Flags.RW), (Level.LOW, Text.A, Flags.R)):
        pair.call(X, *given)
    pair.expect(breaks=0)


class Activation(enum.Enum):
    RELU = "relu"
    TANH = "tanh"

    def __call__(self, x):
        return getattr(torch, self.value)(x)


class Scale(enum.Enum):
    HALF = functools.partial(torch.mul, other=0.5)
    TWICE = functools.partial(torch.mul, other=2)

    def __call__(self, x):
        return self.value(x)


class Looked(enum.Enum):
    ONE = 1

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return len(name)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n: Activation.RELU(x) + Activation("tanh")(x),
        lambda x, n: [*Scale][n % len(Scale)](x) if len(Scale) else x,
        lambda x, n: (x + Looked.ONE.abc, Looked.ONE.value, Looked.ONE.four),
    ],
)
def test_members_whose_class_says_no_more_than_calls_and_attributes(fn):
    pair = Pair(lambda: fn)
    for n in (0, 1, 0):
        pair.call(X - 1, n)
    pair.expect(breaks=0)
