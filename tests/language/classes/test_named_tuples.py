"""Named tuples whose type stands in a module, made in captured code: what they hold, what they are, and what they
complain of."""

import collections
import copy
import operator
import typing

import pytest
import torch

import framejit

from support import ANY, Pair, check, check_state

X = torch.tensor([1.0, 2.0])
Point = collections.namedtuple("Point", "x y")  # noqa: PYI024
Padded = collections.namedtuple("Padded", "x y z", defaults=(3, None))  # noqa: PYI024


class Output(typing.NamedTuple):
    logits: torch.Tensor
    hidden: torch.Tensor | None = None
    extra: tuple = ()

    def total(self):
        return self.logits.sum() + (0 if self.hidden is None else self.hidden.sum())

    @property
    def twice(self):
        return self.logits * 2


class Vector(Point):
    __slots__ = ()

    def __new__(cls, x, y=None):
        return super().__new__(cls, x, x if y is None else y)

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)


class Tagged(Point):
    """With a dict beside the items."""


def test_making_and_reading():
    def fn(x):
        p = Point(x + 1, y=x * 2)
        a, b = p
        return (
            p, p.x, p[1], a * b, len(p), p[-1] + p[0], p[:1], [*p], Point(*p), Point(**p._asdict()), p._fields,
            type(p) is Point, isinstance(p, tuple),
        )

    check(fn, X)


def test_defaults_and_methods():
    def fn(x):
        p = Padded(x)
        q = p._replace(z=x + 1, x=2)
        return p, q, Padded._make([x, 1, 2]), q._asdict(), p._field_defaults, Padded(x, z=1), p.y

    check(fn, X)


def test_classes_of_typing():
    def fn(x):
        out = Output(x + 1, extra=(1, x))
        both = Output(x, x * 2)
        return (
            out, out.total() + both.total(), out.twice, out.extra[1] + 1, out.hidden is None,
            isinstance(both, Output), both._replace(hidden=None),
        )

    check(fn, X)


def test_subclasses():
    def fn(x):
        v = Vector(x) + Vector(x, x * 3)
        t = Tagged(x, 1)
        t.note = x + 5
        return v, v.y, isinstance(v, Point), t.note, t.x, t.y, type(v).__name__

    check(fn, X)


def test_equality_order_and_hashes():
    def fn(x):
        p = Point(1, 2)
        table = {p: x, Padded(1, 2): x + 1}
        return (
            table[(1, 2)], p == (1, 2), p < Point(1, 3), Point(x, 1) == Point(x, 1), hash(p) == hash((1, 2)),
            p in [(1, 2)], p + (x,), p * 2, repr(p), str(p),
        )

    check(fn, X)


def test_they_travel():
    def made(x):
        return Output(x, [x, Point(x * 2, {"deep": Point(1, x)})])

    def fn(x, given):
        out = made(x)
        first, (second, third) = out.logits, out.hidden
        by_name = {name: getattr(third, name) for name in third._fields}
        print("break")
        in_order = sorted([Point(2, 1), Point(1, 2)], key=operator.attrgetter("y"))
        return out, first + second, by_name, third.y["deep"].y * given.x, given._replace(y=out), in_order

    check(fn, X, Point(X, 1), graphs=ANY, breaks=1, changed=[(X, Point(X * 2, "other"))])


def test_arguments_and_results_are_the_same_objects():
    def fn(x, p):
        return x + p.x, p, Point(p, p)

    p = Point(X, 1)
    _, same, outer = framejit.optimize(fn, backend="eager", fullgraph=True)(X, p)
    assert same is p and outer.x is p and outer.y is p and type(outer) is Point


def test_kept_in_objects_that_outlive_the_call():
    def make():
        history, box = [], {}

        def fn(x):
            history.append(Point(x + len(history), len(history)))
            box["last"] = history[-1]._replace(y=-1)
            return history[0].x + box["last"].x

        return fn, (history, box)

    check_state(make, (X,), (X,), (X,))


def test_copies():
    def fn(x):
        p = Point([1, 2], 3)
        return x + 1, copy.copy(p), copy.deepcopy(p), p

    check(fn, X, graphs=ANY, breaks=None)


MISUSED = {
    "too few": lambda x: Point(x),
    "too many": lambda x: Point(x, x, x),
    "unknown": lambda x: Point(x, z=x),
    "twice": lambda x: Point(x, x=x),
    "set": lambda x: setattr(Point(x, x), "x", 1),
    "deleted": lambda x: delattr(Point(x, x), "x"),
    "missing": lambda x: Point(x, x).z,
    "item": lambda x: operator.setitem(Point(x, x), 0, 1),
    "index": lambda x: Point(x, x)[2],
    "replaced": lambda x: Point(x, x)._replace(z=1),
    "made of too few": lambda x: Point._make([x]),
    "unpacked": lambda x: [a for a, _, _ in [Point(x, x)]],
    "vector": lambda x: Vector(),
    "output": lambda x: Output(hidden=x),
    "compared": lambda x: Point(1, 2) < 3,
}


@pytest.mark.parametrize("misuse", MISUSED)
def test_misuse(misuse):
    wrong = MISUSED[misuse]

    def fn(x):
        y = x + 1
        try:
            return y, wrong(x)
        except (TypeError, AttributeError, ValueError, IndexError) as e:
            return y * 2, type(e), str(e)

    check(fn, X, graphs=ANY, breaks=None)
    check(lambda x: (x + 1, wrong(x)), X, graphs=None, breaks=None, raises=Exception)


def test_types_made_inside():
    def fn(x, default):
        local = collections.namedtuple("local", "a b c", defaults=(default,))  # noqa: PYI024
        made = local(x + 1, b=2)
        other = made._replace(b=3)
        facts = (
            local._fields, local.__name__, local.__module__, local._field_defaults, isinstance(made, tuple),
            isinstance(made, local), type(other) is local,
        )
        return made.a * made.b + other[1] + made.c, facts, made._asdict(), made == other, len(made)

    pair = Pair(lambda: fn, fullgraph=True)
    for default in (4, 4, 5):
        pair.call(X, default)


def test_types_made_inside_that_leave():
    def make():
        kept = []

        def fn(x):
            local = collections.namedtuple("local", ["a", "b"])  # noqa: PYI024
            first, second = local(x + 1, 2), local(x, x)
            kept.append(local)
            return first, [second], local, collections.namedtuple("other", "class a", rename=True)  # noqa: PYI024

        return fn, kept

    def seen(fn, kept):
        first, (second,), local, other = fn(X)
        assert type(first) is type(second) is local is kept[-1] and len(set(map(id, kept))) == len(kept)
        return (
            repr(first), repr(second), local.__module__, local.__qualname__, local._make([1, 2])._asdict(),
            other._fields, other.__name__,
        )

    eager, eager_kept = make()
    fn, kept = make()
    compiled = framejit.optimize(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        assert seen(compiled, kept) == seen(eager, eager_kept)
    assert len(compiled.entries) == 1


def test_types_made_inside_across_a_break():
    def fn(x):
        local = collections.namedtuple("local", "a b")  # noqa: PYI024
        made = local(x, 2)
        if x.sum() > 0:
            made = made._replace(b=5)
        return made.a * made.b, tuple(local(1, b=3)), {local: 1}[local]

    check(fn, X, graphs=ANY, breaks=None, calls=1)


def test_names_that_are_refused():
    def fn(x):
        try:
            collections.namedtuple("local", "a a")  # noqa: PYI024
        except ValueError as e:
            return x + 1, str(e)
        return x

    check(fn, X, fullgraph=True)
    check(lambda x: (x + 1, collections.namedtuple("local", "1 b")), X, raises=ValueError)  # noqa: PYI024


USES = [
    "Made[int, str]", "list[Made]", "typing.Optional[Made]", "dict[str, Made]", "tuple[Made, ...]", "typing.List[Made]",
    "Made | None", "collections.abc.Callable[[Made], int]", "collections.abc.Callable[..., Made]",
]


@pytest.mark.parametrize("use", USES)
def test_what_is_made_of_a_class_made_inside_holds_that_class(use):
    make = eval(f"lambda Made: {use}")

    def fn(x):
        made = collections.namedtuple("Made", "a b")
        alias = make(made)
        found = [
            part
            for part in (typing.get_origin(alias), *typing.get_args(alias))
            if getattr(part, "__name__", "") == "Made"
        ]
        return x + 1, [part is made for part in found]

    compiled = framejit.optimize(fn, backend="eager")
    for _ in range(2):
        assert str(compiled(torch.ones(2))) == str(fn(torch.ones(2)))


@pytest.mark.parametrize("use", USES)
def test_what_is_made_of_a_class_made_inside_leaves_with_that_class(use):
    make = eval(f"lambda Made: {use}")

    def fn(x):
        made = collections.namedtuple("Made", "a b")
        return x + 1, make(made), made

    compiled = framejit.optimize(fn, backend="eager")
    for _ in range(2):
        _, alias, made = compiled(torch.ones(2))
        held = (typing.get_origin(alias), *typing.get_args(alias))
        assert made in held or made in held[1]


def test_fields_that_the_program_wrote_into():
    """What is no string is no name of an attribute."""
    Written = collections.namedtuple("Written", "left right")  # noqa: PYI024
    Written._fields = ("left", "right", 1)

    def f(x):
        made = Written(x, 1)
        made = made._replace(right=2)
        return made.left + 1, made.right, made._fields

    pair = Pair(lambda: f)
    for _ in range(2):
        pair.call(torch.ones(2))
    pair.expect(breaks=0)
