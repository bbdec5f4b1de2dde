"""User classes: construction, properties, descriptors, inheritance, special attribute access."""
import abc
import collections
import re
import sys
import types
import typing

import pytest
import torch

import framejit

from support import Pair, check

X = torch.tensor([1.0, 2.0])


class Base:
    kind = "base"

    def __init__(self, t):
        self.t = t

    def scale(self, k):
        return self.t * k

    @classmethod
    def make(cls, t):
        return cls(t)

    @staticmethod
    def twice(t):
        return t * 2

    @property
    def size(self):
        return self.t.shape[0]

    @size.setter
    def size(self, n):
        self.t = self.t[:n]


class Derived(Base):
    kind = "derived"

    def __init__(self, t):
        super().__init__(t + 1)
        self.extra = 5

    def scale(self, k):
        return super().scale(k) + self.extra


def test_construct_inside_and_return():
    check(lambda x: Derived(x), X)


def test_methods_and_super():
    check(lambda o: o.scale(3), Derived(X))


def test_classmethod_and_staticmethod():
    check(lambda x: Derived.make(x).t + Base.twice(x) + Derived(x).twice(x), X)


def test_property_get_and_set():
    def fn(o):
        n = o.size
        o.size = n - 1
        return o.t * n

    check(fn, Base(X))


def test_attributes_written_on_an_argument():
    def fn(o):
        o.t = o.t + 1
        o.fresh = "new"
        del o.extra
        return o.t

    check(fn, Derived(X))


def test_class_attribute_and_type_of_instance():
    check(lambda o: (o.t + 1, o.kind, type(o).kind, type(o) is Derived, isinstance(o, Base)), Derived(X))


def test_getattr_fallback():
    class Lazy:
        def __getattr__(self, name):
            if name.startswith("k"):
                return int(name[1:])
            raise AttributeError(name)

    check(lambda o, x: (x * o.k7, hasattr(o, "z"), getattr(o, "y", None)), Lazy(), X)


def test_getattribute_override():
    class Loud:
        def __init__(self):
            self.v = 3

        def __getattribute__(self, name):
            value = object.__getattribute__(self, name)
            return value * 2 if name == "v" else value

    check(lambda o, x: x + o.v, Loud(), X)


def test_setattr_and_delattr_hooks():
    class Tracked:
        def __init__(self):
            object.__setattr__(self, "log", [])

        def __setattr__(self, name, value):
            self.log.append(("set", name))
            object.__setattr__(self, name, value)

        def __delattr__(self, name):
            self.log.append(("del", name))
            object.__delattr__(self, name)

    def fn(o, x):
        o.a = x + 1
        del o.a
        o.b = 2
        return x * o.b

    check(fn, Tracked(), X)


def test_data_descriptor():
    class Positive:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, obj, owner=None):
            return self if obj is None else getattr(obj, self.name)

        def __set__(self, obj, value):
            setattr(obj, self.name, abs(value))

    class Holder:
        n = Positive()

    def fn(o, x):
        o.n = -4
        return x + o.n

    check(fn, Holder(), X)


def test_slots():
    class Point:
        __slots__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    def fn(p):
        p.a = p.a + p.b
        return Point(p.a, 1), p.a * 2

    check(fn, Point(X, 3))


def test_new_and_singleton():
    class One:
        _it = None

        def __new__(cls):
            if cls._it is None:
                cls._it = object.__new__(cls)
            return cls._it

    One()
    check(lambda x: (x + 1, One() is One()), X)


def test_multiple_inheritance_order():
    class A:
        def f(self, x):
            return x + 1

    class B(A):
        def f(self, x):
            return super().f(x) * 2

    class C(A):
        def f(self, x):
            return super().f(x) * 3

    class D(B, C):
        def f(self, x):
            return super().f(x) - 1

    check(lambda o, x: o.f(x), D(), X)


def test_abstract_base_class():
    class Op(abc.ABC):
        @abc.abstractmethod
        def run(self, x): ...

        def __call__(self, x):
            return self.run(x) + 1

    class Sin(Op):
        def run(self, x):
            return x.sin()

    check(lambda op, x: op(x), Sin(), X)


def test_class_defined_inside_the_function():
    def fn(x):
        class Local:
            k = 3

            def go(self):
                return x * self.k

        return Local().go()

    check(fn, X, graphs=range(1, 4), breaks=range(0, 4), calls=1)  # a new class for each call


def test_attribute_error_has_the_same_message():
    check(lambda o: (o.t + 1, o.missing), Base(X), raises=AttributeError, calls=1)


def test_optimized_bound_method():
    o = Derived(X)
    check(o.scale, 3)


@pytest.mark.parametrize("look", ["cls.__dict__", "vars(cls)"])
@pytest.mark.parametrize("is_late", [False, True])
def test_the_namespace_of_a_class_that_attributes_are_written_to(look, is_late):
    def world():
        class A:
            first = 1

        def fn(x, cls=A):
            if not is_late:
                cls.second = 2
            names = []
            namespace = eval_of(cls)
            for name, value in namespace.items():
                if not name.startswith("_"):
                    names.append(name)
                    x = x + value
                    if len(names) == 1:
                        x.sum().item()
            if is_late:
                cls.second = 2
            return x, names, "second" in namespace

        return fn, lambda: vars(A).get("second")

    eval_of = (lambda cls: cls.__dict__) if look == "cls.__dict__" else vars
    pair = Pair(world)
    for _ in range(3):
        pair.call(torch.ones(2))


class _Bound:
    """Binds itself, as functions do."""

    def __init__(self, function):
        self.function = function

    def __call__(self, cls):
        return self.function.__get__(cls, cls)()

    def __get__(self, instance, owner=None):
        return types.MethodType(self, owner or type(instance))


@pytest.mark.parametrize("inner", [classmethod, _Bound, property, staticmethod])
@pytest.mark.parametrize("outer", [classmethod, _Bound])
def test_class_methods_of_descriptors(outer, inner):
    """Until 3.12 a class method binds what it is of; from 3.13 on it calls it."""

    class Holder:
        @outer
        @inner
        def held(cls=None):
            return 3 if cls is Holder or cls is None else 4

    def fn(x):
        try:
            found = Holder.held
            return x * (found() if callable(found) else found)
        except TypeError as e:
            return x + 1, str(e)

    check(fn, X, graphs=None, breaks=None)


class Asked(type):
    """Keeps the names that its classes are asked for."""

    asked = []

    def __getattribute__(cls, name):
        Asked.asked.append(name)
        return super().__getattribute__(name)


class Missing(type):
    asked = []

    def __getattr__(cls, name):
        Missing.asked.append(name)
        if name == "made":
            return len(Missing.asked)
        raise AttributeError(f"nothing is called {name}")


@pytest.mark.parametrize("meta", [Asked, Missing])
@pytest.mark.parametrize(
    "read",
    [
        lambda c: c.part,
        lambda c: getattr(c, "part"),  # noqa: B009
        lambda c: getattr(c, "made", 3),
        lambda c: (hasattr(c, "made"), hasattr(c, "other")),
        lambda c: c.made if hasattr(c, "made") else 5,
        lambda c: c.other if not hasattr(c, "other") and hasattr(c, "made") else 5,
    ],
)
def test_a_metaclass_that_looks_attributes_up_is_asked_as_python_asks_it(meta, read):
    cls = meta("Cls", (), {"part": 2})

    def told(run):
        meta.asked.clear()
        ended = []
        for _ in range(3):
            try:
                ended.append(run(X))
            except AttributeError as e:
                ended.append(str(e))
        return repr(ended), [*meta.asked]

    def fn(x):
        return x + 1, read(cls)

    assert told(framejit.optimize(fn, backend="eager")) == told(fn)


@pytest.mark.parametrize("name", """
    __base__ __basicsize__ __dictoffset__ __flags__ __itemsize__ __weakrefoffset__ __mro__ __bases__ __slots__
""".split())
@pytest.mark.parametrize("cls", [Base, int, collections.OrderedDict, torch.nn.Linear, ValueError])
def test_what_every_class_has(cls, name):
    def fn(x):
        return x + 1, getattr(cls, name, -1), hasattr(cls, name)

    check(fn, X)


def test_a_class_whose_doc_is_made_when_it_is_read():
    class Telling:
        def __get__(self, instance, owner):
            asked.append(owner.__name__)
            return f"{owner.__name__} {len(asked)}"

    class Told:
        __doc__ = Telling()

    asked = []

    def fn(x):
        return x + 1, Told.__doc__, Told.__doc__

    compiled = framejit.optimize(fn, backend="eager")
    expected = [fn(X)[1:], fn(X)[1:], asked.copy()]
    asked.clear()
    assert [compiled(X)[1:], compiled(X)[1:], asked] == expected


NOT_MADE = [
    type(int | str), type(re.compile("")), types.GeneratorType, type({}.keys()), type(iter([])), types.FrameType,
    types.BuiltinFunctionType, types.GetSetDescriptorType, type(sys.flags), type(sys.float_info), types.CoroutineType,
    type(reversed([])), types.MethodWrapperType,
]


@pytest.mark.parametrize("cls", NOT_MADE, ids=lambda cls: cls.__name__)
def test_classes_that_cannot_be_called(cls):
    def fn(x):
        try:
            made = cls()
        except TypeError as e:
            return x + 1, str(e)
        return x + 1, type(made)

    check(fn, torch.ones(1), graphs=None, breaks=None, ops=None)


def test_attributes_of_what_does_not_show_them():
    """The module of a type variable is its own attribute, though from 3.12 on it has no `__dict__`."""

    def fn(x):
        made = typing.TypeVar("made")
        return x + 1, made.__module__, made.__name__

    check(fn, torch.ones(1), graphs=None, breaks=None, ops=None)
