"""Objects, classes and functions at the edges of the protocol: what is written past a descriptor stays there."""

import collections
import enum
import functools
import re
import sys
import threading
import types
import typing
from collections import deque

import pytest
import torch

import framejit

from support import check, check_state

X = torch.ones(3)


def same(make, *calls):
    check_state(make, *(calls or ((X,), (X,))), graphs=None, breaks=None)


# ---- functions that change -------------------------------------------------------------------------


def test_defaults_that_become_fewer():
    def make():
        def target(x, b=1, c=2):
            return x + b * c

        def f(x, shorten):
            if shorten:
                target.__defaults__ = (5,) * shorten
            try:
                return target(x, c=3), target(x)
            except TypeError as e:
                return str(e)

        return f

    same(make, (X, 0), (X, 1), (X, 2), (X, 0))


def test_special_attributes_of_functions_made_inside():
    def f(x):
        def k(a=1, *, v=1):
            return a + v

        found = [k(), type(k).__name__, k.__class__.__name__, k.__code__.co_name, k.__closure__]
        k.__kwdefaults__ = None
        k.__defaults__ = (7,)
        try:
            found.append(k())
        except TypeError as e:
            found.append(str(e))
        try:
            k.__defaults__ = [1]
        except TypeError as e:
            found.append(str(e))
        return x + 1, found

    same(lambda: f)


# ---- attributes of classes and modules ---------------------------------------------------------------


def test_class_attributes_written_inside_are_seen_through_instances():
    def make():
        class Base:
            count = 0
            label = "base"

            def describe(self):
                return self.count, self.label

        class Derived(Base):
            pass

        def f(x):
            d = Derived()
            Base.count += 1
            d2 = Derived()
            Derived.label = "derived"
            return x + Base.count, d.count, d2.describe(), Derived.count, d.label

        return f, lambda: (Base.count, Derived.__dict__.get("label"))

    same(make)


def test_singletons():
    def make():
        class Single:
            _instance = None

            def __new__(cls):
                if cls._instance is None:
                    cls._instance = object.__new__(cls)
                return cls._instance

            def __init__(self):
                self.made = getattr(self, "made", 0) + 1

        def f(x):
            a, b = Single(), Single()
            return x + a.made, a is b, a is Single._instance

        return f, lambda: Single._instance.made if Single._instance else None

    same(make, (X,), (X,), (X,))


def test_module_attributes_are_globals():
    this = sys.modules[__name__]

    def f(x):
        this.WRITTEN = x + 1
        return WRITTEN * 2  # noqa: F821

    same(lambda: f)


# ---- __dict__ ----------------------------------------------------------------------------------------


class Shadowed:
    def __init__(self, n):
        self.__dict__["field"] = n

    field = property(lambda self: self.__dict__["field"] * 2)


def test_written_past_a_property():
    def f(x):
        made = Shadowed(42)
        return x + made.field, made

    class Compared(Shadowed):
        def __eq__(self, other):
            return self.__dict__ == other.__dict__

    same(lambda: lambda x: f(x)[0])
    made = framejit.optimize(f, backend="eager")(X)[1]
    assert (type(made), made.__dict__) == (Shadowed, {"field": 42})


def test_dict_methods_that_change_it():
    def f(x):
        o = Shadowed(1)
        o.extra = 2
        o.__dict__.update(third=3)
        o.__dict__.pop("extra")
        o.__dict__.setdefault("fourth", 4)
        before = dict(o.__dict__)
        o.__dict__.clear()
        return x + 1, before, dict(vars(o))

    same(lambda: f)


def test_thread_locals():
    local = threading.local()

    def f(x):
        local.__dict__["new"] = x + 1
        local.other = 2
        return local.new * local.other

    same(lambda: f)


# ---- tuples with methods of their own ------------------------------------------------------------------


class Rows(typing.NamedTuple):
    a: torch.Tensor
    b: torch.Tensor

    def __getitem__(self, i):
        return Rows(self.a[i], self.b[i])

    def total(self):
        return self.a + self.b


class Backwards(tuple):
    def __iter__(self):
        return iter([self[1], self[0]])

    def __len__(self):
        return 7


class Renamed(collections.namedtuple("Renamed", "a b")):  # noqa: SLOT002
    @property
    def a(self):
        return 100


def test_overridden_methods_of_tuples():
    def f(x, rows, back, renamed):
        first, second = back
        inner = Rows(x, x * 2)
        return (
            rows.a + 1, rows.total(), rows[0].b, first - second, len(back), renamed.a + renamed.b, inner[1].b,
            tuple.__len__(rows), inner.a,
        )

    same(lambda: f, *[(X, Rows(X, X + 1), Backwards((X, X * 2)), Renamed(X, X))] * 2)


# ---- making things of odd classes ------------------------------------------------------------------------


class Options(typing.TypedDict):
    a: torch.Tensor


class CallMeta(type):
    def __call__(cls, *args):
        return ("called", args)


class Called(metaclass=CallMeta):
    pass


def test_odd_constructors():
    def f(x, colour):
        d = Options(a=x + 1)
        point = collections.namedtuple("point", "u v")(x, 2)
        return (
            d["a"] * 2, type(d), colour(1).name, colour("none").name, Called(1, 2), point.u + point.v,
            type(point).__module__,
        )

    def make():
        seen = []

        class Colour(enum.Enum):
            RED = 1

            @classmethod
            def _missing_(cls, value):
                seen.append(value)
                return cls.RED

        return lambda x: f(x, Colour), seen

    same(make)


def test_annotations_are_looked_up_in_the_functions_module():
    def f(x):
        @functools.singledispatch
        def kind(v):
            return 1

        @kind.register
        def _(v: "collections.abc.Sequence"):
            return 2

        return x + kind([1]) + kind({})

    same(lambda: f)


def test_exceptions_are_initialized_anew():
    def f(x):
        e = ImportError("t", name="n")
        e.__init__()
        k = KeyError(1, 2)
        k.__init__(3)
        made = [e.args, e.name, k.args]
        for cls, args in (
            (UnicodeError, ("a",)), (UnicodeDecodeError, ()), (OSError, (2, "no")), (SyntaxError, ("a", 1)),
            (StopIteration, (4,)),
        ):
            try:
                error = cls(*args)
                made.append((type(error), error.args, str(error), getattr(error, "value", None)))
            except TypeError as err:
                made.append(str(err))
        return x + 1, made

    same(lambda: f)


def test_subclasses_on_the_right_go_first_only_with_a_method_of_their_own():
    class Base:
        def __add__(self, other):
            return "add of base"

        def __radd__(self, other):
            return "radd of base"

    class Inherits(Base):
        pass

    class Overrides(Base):
        def __radd__(self, other):
            return "radd of derived"

    def f(x):
        return x + 1, Base() + Inherits(), Base() + Overrides(), Inherits() + Base()

    same(lambda: f)


class Getterless:
    def __set__(self, obj, value):
        obj.__dict__["a"] = value


class HasGetterless:
    a = Getterless()


class ItemsAsAttributes(dict):
    __setattr__ = dict.__setitem__


class OnlyWeakref:
    __slots__ = ("__weakref__",)


class InitReturns:
    def __init__(self):
        return 3  # noqa: PLE0101


@pytest.mark.xfail(
    sys.version_info[:2] == (3, 13),
    reason="on 3.13 the error about what __init__ returns leaves the try block it stands in",
)
def test_odd_descriptors_and_slots():
    def f(x):
        o, d = HasGetterless(), ItemsAsAttributes()
        before = type(o.a).__name__
        o.a = 42
        d.key = 1
        try:
            InitReturns()
        except TypeError as e:
            text = str(e)
        try:
            property().fget = 1
        except AttributeError as e:
            text += str(e)
        return x + o.a, before, dict(d), hasattr(OnlyWeakref(), "__dict__"), text

    same(lambda: f)


def test_dict_of_a_function_made_inside():
    def marked(f):
        f.mark = "yes"
        return f

    def f(x):
        @marked
        def inner(y):
            return y * 2

        @functools.wraps(inner)
        def outer(y):
            return inner(y) + 1

        outer.__dict__["other"] = 3
        names = inner.__dict__
        inner.late = x
        return outer(x), outer, sorted(names), outer.mark, outer.other

    eager, compiled = f(X), framejit.optimize(f, backend="eager")(X)
    assert compiled[2:] == eager[2:]
    assert (compiled[1].mark, compiled[1].other, compiled[1].__name__, sorted(vars(compiled[1]))) == (
        "yes", 3, "inner", sorted(vars(eager[1])),
    )


def test_capture_does_not_call_repr():
    def make():
        log = []

        class Loud:
            def __init__(self, n):
                self.n = n

            def __repr__(self):
                log.append("repr")
                return "Loud"

        held = {Loud(1): 1}
        loud = Loud(2)

        def f(x):
            return x + loud.n + sum(held.values())

        return f, log

    same(make)


class ListOfItsOwn(list):
    pass


class DequeOfItsOwn(deque):
    pass


class BytesOfItsOwn(bytearray):
    pass


@pytest.mark.parametrize(
    "kind, content",
    [(ListOfItsOwn, [1, 2]), (DequeOfItsOwn, [1, 2]), (BytesOfItsOwn, [1, 2]), (bytearray, 1), (list, "ab")],
)
def test_objects_of_c_classes_are_initialized_again(kind, content):
    def fn(x, given, how):
        made = kind(content)
        for again in (made, given):
            again.__init__(*how)
        return x + 1, type(made), list(made), list(given)

    for how in ((), ([5],)):
        check(fn, X, kind(content), how, graphs=None, breaks=None)


def test_classes_with_parameters_are_called():
    class Box(list):
        def __class_getitem__(cls, kind):
            return types.GenericAlias(cls, kind)

    class Refuses(Box):
        def __setattr__(self, name, value):
            raise AttributeError(name)

    def fn(x):
        table, box = dict[str, int](a=1), Box[int]([2])
        return x + table["a"] + box[0] + list[int]([3])[0], box.__orig_class__, len(Refuses[str]()), type(table)

    check(fn, torch.ones(2))


def test_what_a_class_in_c_makes_anew_at_each_read():
    """One read is one object, however often it is used; another read is another."""
    pattern, view = re.compile("(?P<a>b)"), memoryview(b"abc")

    def fn(x):
        groups, shape = pattern.groupindex, view.shape
        again, size = (groups, shape), view.nbytes
        return x + groups["a"] + shape[0], pattern.groupindex is groups, view.shape is shape, size, groups, shape, again

    def told(result):
        *known, groups, shape, again = result[1:]
        return [*known, dict(groups), type(groups), shape, groups is again[0], shape is again[1]]

    compiled = framejit.optimize(fn, backend="eager")
    for _ in range(3):
        expected, got = fn(X), compiled(X)
        assert torch.equal(expected[0], got[0]) and told(expected) == told(got)
    view = memoryview(b"abcde")
    expected, got = fn(X), compiled(X)
    assert torch.equal(expected[0], got[0]) and told(expected) == told(got)
