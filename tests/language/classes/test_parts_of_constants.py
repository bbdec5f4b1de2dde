"""What the program may change behind objects that never change: values of members of enums, arguments and classes of
generic aliases, defaults of named tuples."""
import collections
import copy
import enum
import sys
import types
import typing
from collections.abc import Callable, Iterator

import pytest
import torch

from support import ANY, Pair, check, check_state

X = torch.tensor([1.0, 2.0])
T = typing.TypeVar("T")
P = typing.ParamSpec("P")
OF_T = list[T]
CALLED = Callable[[int], str]
COMPUTED = int(sys.version_info >= (3, 14))
"""Breaks where annotations of a function that was made here are asked for: from 3.14 on they are computed then, and
what goes on with them is compiled for these."""


class Box:
    def __init__(self):
        self.count = 1


def _enum_of(value, part):
    class Held(enum.Enum):
        ONE = value
        PAIR = (value, 1)

    return (lambda: Held.PAIR.value[0]) if part == "pair" else lambda: getattr(Held.ONE, part)


HOLDERS = {
    "value": lambda kept: _enum_of(kept, "value"),
    "_value_": lambda kept: _enum_of(kept, "_value_"),
    "in a tuple": lambda kept: _enum_of(kept, "pair"),
    "default": lambda kept: (lambda made: lambda: made(1).b)(collections.namedtuple("Q", "a b", defaults=[kept])),
}
CHANGES = {
    "list": ([7], lambda kept: kept.append(len(kept)), lambda kept: list(kept)),
    "dict": ({"a": 1}, lambda kept: kept.update({len(kept): 1}), lambda kept: dict(kept)),
    "object": (Box(), lambda kept: setattr(kept, "count", kept.count + 1), lambda kept: kept.count),
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("through_holder", [True, False])
def test_what_they_hold_is_the_program_s_own(holder, kind, through_holder):
    def make():
        example, change, read = CHANGES[kind]
        kept = copy.deepcopy(example)
        get = HOLDERS[holder](kept)

        def fn(x):
            change(get() if through_holder else kept)
            return x + 1, read(get()), read(kept), get() is kept, kept is get()

        return fn, lambda: read(kept)

    check_state(make, (X,), (X,), (X,))


def test_what_they_hold_is_changed_between_calls():
    def make():
        kept = [1]
        get = HOLDERS["value"](kept)

        def fn(x, n):
            return x * len(get()), get()[-1]

        def call(x, n):
            kept.append(n)
            return fn(x, n)

        return call, kept

    check_state(make, (X, 2), (X, 3))


def test_the_class_behind_an_alias():
    def make():
        class Settings:
            __class_getitem__ = classmethod(types.GenericAlias)
            count = 1
            names = ["a"]

        alias = Settings[int]

        def fn(x):
            Settings.count += 1
            alias.names.append("b")
            return x + alias.count, alias.names is Settings.names, len(Settings.names), alias.__args__

        return fn, Settings

    check_state(make, (X,), (X,))


def test_type_variables_in_aliases():
    def fn(x):
        def inner(a: Callable[[T], int], b: list[T], c: Callable[P, T] = len, d: Callable[..., T] = len) -> Iterator[T]:
            return a + 1

        found = inner.__annotations__
        return (
            inner(x, []), OF_T.__args__[0] is T, T is OF_T.__parameters__[0], OF_T.__args__ == (T,),
            found["b"].__args__[0] is T, found["b"] == OF_T, found, T in OF_T.__args__,
        )

    check(fn, X, breaks=COMPUTED, calls=2 - COMPUTED)


def test_callables_in_annotations():
    def fn(x):
        def inner(a: Callable[[int], int], *b: Callable[..., str] | None) -> Callable[[Callable[[int], int]], int]:
            return a * 2

        return inner(x), inner.__annotations__, CALLED.__args__, CALLED, Callable[[int, list[str]], torch.Tensor]

    check(fn, X, breaks=COMPUTED)


@pytest.mark.parametrize("ill", [lambda: Callable[int, str], lambda: Callable[[int]]])
def test_ill_callables(ill):
    check(lambda x: (x + 1, ill()), X, raises=TypeError)


def test_defaults_that_were_replaced():
    def make():
        made = collections.namedtuple("made", "a b c", defaults=[[1], [2]])

        def fn(x):
            return x + len(made(1).b), made(1)

        def call(x, defaults):
            made.__new__.__defaults__ = defaults
            return fn(x)

        return call, None

    check_state(make, (X, ([1], [2])), (X, ([1, 2, 3], [2])), breaks=1)


def test_a_tensor_and_a_module_as_defaults():
    weight, linear = torch.ones(2), torch.nn.Linear(2, 2)

    class Parts(typing.NamedTuple):
        scale: torch.Tensor = weight
        layer: torch.nn.Module = linear
        name: str = "a"

    def fn(x):
        parts = Parts()
        return parts.layer(x * parts.scale), parts.scale is weight, parts.name

    check(fn, X)


ANNOTATIONS = {
    "generic": lambda held: types.GenericAlias(list, (held,)),
    "origin": lambda held: types.GenericAlias(held, (int,)),
    "nested": lambda held: list[types.GenericAlias(dict, (str, (1, held)))],
    "annotated": lambda held: list[typing.Annotated[int, held]],
}


@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_what_stands_in_an_annotation_is_changed_between_calls(annotation):
    def make():
        held = [2.0]
        one, other = ANNOTATIONS[annotation](held), ANNOTATIONS[annotation]([2.0])

        def fn(x):
            return x + 1, repr(one), one == other

        return fn, held

    pair = Pair(make)
    pair.call(X)
    for held in (pair.eager_state, pair.state):
        held[0] = 3.0
    pair.call(X)
    pair.expect(graphs=ANY)


@pytest.mark.parametrize("typed", [False, True])
def test_defaults_of_a_named_tuple_are_replaced_between_calls(typed):
    def make():
        class Typed(typing.NamedTuple):
            a: torch.Tensor
            b: int = 1

        made = Typed if typed else collections.namedtuple("made", "a b", defaults=(1,))
        return (lambda x: (x * made(x).b, made(x)._replace(b=3))), made

    pair = Pair(make)
    pair.call(X, captures=True)
    pair.call(X, captures=False)
    for defaults in ((5,), (2, 6), (5,)):
        for made in (pair.eager_state, pair.state):
            made.__new__.__defaults__ = defaults
        pair.call(X)
    pair.expect(graphs=3, breaks=0)
    for made in (pair.eager_state, pair.state):
        made.__new__.__defaults__ = None
    pair.call(X)
    assert pair.raised is TypeError
