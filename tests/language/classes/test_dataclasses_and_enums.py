"""dataclasses, enums and namedtuples as model configurations and outputs."""
import dataclasses
import enum
import typing

import pytest
import torch

import framejit

from support import check

X = torch.tensor([1.0, 2.0])


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    names: list = dataclasses.field(default_factory=list)
    act: str = "relu"

    def __post_init__(self):
        self.twice = self.scale * 2


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: int = 5


@dataclasses.dataclass(slots=True)
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None


class Mode(enum.Enum):
    SUM = "sum"
    MEAN = "mean"

    @property
    def short(self):
        return self.value[0]


class Bits(enum.IntFlag):
    READ = 1
    WRITE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Pair(typing.NamedTuple):
    left: torch.Tensor
    right: int = 3

    def total(self):
        return self.left + self.right


def test_dataclass_argument():
    def fn(x, c):
        c.names.append("seen")
        return getattr(x * c.scale + c.twice, c.act)()

    check(fn, X, Config(), changed=[(X, Config(scale=3.0)), (X, Config(act="sin"))])


def test_dataclass_made_inside():
    check(lambda x: (Config(scale=x.shape[0]), Output(x + 1), Output(logits=x, loss=x.sum())), X)


def test_frozen_dataclass():
    def fn(x, f):
        try:
            f.a = 2
        except dataclasses.FrozenInstanceError:
            x = x + f.b
        return x, f == Frozen(1), hash(f) == hash(Frozen(1)), f < Frozen(2), {f: 1}[Frozen(1)]

    check(fn, X, Frozen(1), graphs=range(1, 6), breaks=range(0, 5))


def test_dataclass_helpers():
    def fn(x, c):
        d = dataclasses.replace(c, scale=7.0)
        return x * d.scale, [f.name for f in dataclasses.fields(c)], dataclasses.is_dataclass(c), repr(Frozen(1))

    check(fn, X, Config(), graphs=range(1, 6), breaks=range(0, 5))


def test_enum_members_choose_a_branch():
    def fn(x, mode):
        if mode is Mode.SUM:
            return x.sum()
        return x.mean() if mode == Mode.MEAN else x

    check(fn, X, Mode.SUM, changed=[(X, Mode.MEAN)])


def test_enum_lookup_iteration_and_properties():
    check(
        lambda x: (x + 1, Mode("sum"), Mode["MEAN"], [m.name for m in Mode], Mode.SUM.short, len(Mode)), X,
        graphs=range(1, 6), breaks=range(0, 5),
    )


def test_int_enum_and_flags():
    check(
        lambda x, lv, b: (x + lv, lv > 5, b & Bits.READ, bool(b & Bits.WRITE), Level.LOW + 1), X, Level.HIGH, Bits.READ
    )


def test_enum_as_a_dict_key():
    check(lambda x, m: x * {Mode.SUM: 2, Mode.MEAN: 3}[m], X, Mode.MEAN)


def test_named_tuple_class():
    def fn(p):
        left, right = p
        return p.total(), Pair(left * right), p._replace(right=9)

    check(fn, Pair(X))


def test_model_output_is_dict_and_attributes():
    ModelOutput = pytest.importorskip("transformers.utils").ModelOutput

    @dataclasses.dataclass
    class Out(ModelOutput):
        a: torch.Tensor | None = None
        b: torch.Tensor | None = None

    def fn(x):
        out = Out(a=x + 1)
        return out, out["a"], out[0], list(out.keys()), out.to_tuple()

    check(fn, X)


def test_a_name_no_member_has():
    class Kind(enum.Enum):
        ONE = 1

    def fn(x):
        try:
            return x + Kind["TWO"].value
        except KeyError as e:
            return x + 1, str(e), Kind["ONE"]

    check(fn, X)


def test_each_unfinished_member_that_int_makes_is_another_object():
    def fn(x, cls, known):
        made = int.__new__(cls, 103)
        made.first = len(known)
        print("made")
        made.second = len(known)
        if known:
            known[0].first += 1
        known.append(made)
        return x + 1, made.first, made.second, [m.first for m in known], len({id(m) for m in known})

    def ended(run):
        members = enum.IntEnum("Members", "A B")
        known = []
        return [str(run(X, members, known)) for _ in range(4)]

    assert ended(framejit.optimize(fn, backend="eager")) == ended(fn)


class Equation(enum.StrEnum):
    OUTER = "i,j->ij"


def test_members_as_arguments_of_operations():
    def fn(x, bits):
        return x + (bits | Bits(2)), torch.einsum(Equation.OUTER, x, x)

    check(fn, X, Bits(1), fullgraph=True)


@dataclasses.dataclass
class Tree:
    value: int
    parts: list = dataclasses.field(default_factory=list)
    note: object = dataclasses.field(default=None, repr=False)


def test_the_text_of_a_dataclass():
    def program(x, given, n):
        made = Tree(n)
        made.parts += [Tree(2), made]
        given.parts.append(given)
        return x * n, repr(made), f"{given}", repr(Tree(n, [(1, 2.5)])), str([given, made])

    for n in (1, 2):
        check(program, torch.ones(2), Tree(0), n)


class Loudness(enum.IntEnum):
    LOW = 1
    HIGH = 2


@pytest.mark.parametrize("table", ["_value2member_map_", "_member_map_"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    "look", [lambda x: x * Loudness(1), lambda x: x * Loudness["LOW"], lambda x: x * sum(Loudness)]
)
def test_a_member_is_looked_for_where_its_class_looks(table, in_place, look):
    fast, known = framejit.optimize(look), dict(getattr(Loudness, table))

    def outcome(fn):
        try:
            return repr(fn(torch.ones(2)))
        except Exception as e:
            return repr(e)

    try:
        for _ in range(2):
            assert outcome(fast) == outcome(look)
        other = {(key if value is Loudness.HIGH else "another"): value for key, value in known.items()}
        if in_place:
            getattr(Loudness, table).clear()
            getattr(Loudness, table).update(other)
        else:
            setattr(Loudness, table, other)
        for _ in range(2):
            assert outcome(fast) == outcome(look)
    finally:
        setattr(Loudness, table, known)
    assert outcome(fast) == outcome(look)


class Loud(enum.Enum):
    ON = 1

    def __eq__(self, other):
        return other == "on" or self is other

    __hash__ = enum.Enum.__hash__


class Guest:
    def __eq__(self, other):
        return True if other is Mode.SUM else NotImplemented

    __hash__ = None


@pytest.mark.parametrize("other", [
    Config(), Frozen(1), Guest(), object(), [1], {"a": 1}, {1}, {1: X}, (1, X), "sum", None, Mode.SUM, Mode.MEAN,
    Level.LOW, Loud.ON, Mode,
], ids=lambda other: type(other).__name__)
def test_members_compared_with_any_object(other):
    def fn(x, other):
        kind = None
        match other:
            case Mode.SUM:
                kind = "sum"
            case Bits.READ | Loud.ON:
                kind = "other"
        return (
            kind, other == Mode.SUM, Mode.SUM == other, other != Mode.SUM, Mode.SUM != other, Loud.ON != other,
            other in [Mode.MEAN, Mode.SUM], x + 1,
        )

    check(fn, X, other, calls=2)
