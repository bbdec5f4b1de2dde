"""isinstance() and issubclass() ask the metaclass, as plain Python does."""

import collections.abc
import types
import typing

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import framejit

from support import Pair, check, check_state


class Even(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, int) and instance % 2 == 0 or getattr(instance, "even", False)

    def __subclasscheck__(cls, other):
        return "even" in other.__name__.lower()


class EvenThing(metaclass=Even):
    pass


class Strict(type):
    def __instancecheck__(cls, instance):
        return super().__instancecheck__(instance) and instance.ready


class Ready(metaclass=Strict):
    def __init__(self, ready):
        self.ready = ready


class Sub(Ready):
    pass


class Holder:
    def __init__(self, even):
        self.even = even


class Hooked(collections.abc.Sized):
    log: list = []

    @classmethod
    def __subclasshook__(cls, other):
        cls.log.append(other)
        return hasattr(other, "even_hook") or NotImplemented


@typing.runtime_checkable
class HasEven(typing.Protocol):
    even: bool


@pytest.mark.parametrize("value", [2, 3, "x", Holder(True), Holder(False)])
def test_own_instance_check(value):
    check(
        lambda x, v: x + (1 if isinstance(v, EvenThing) else 2), torch.ones(1), value, graphs=range(1, 3), breaks=None
    )
    check(
        lambda x, v: x + (1 if isinstance(v, (str, EvenThing)) else 2), torch.ones(1), value, graphs=range(1, 3),
        breaks=None,
    )


def test_own_subclass_check():
    check(
        lambda x: (x + 1, issubclass(int, EvenThing), issubclass(Even, EvenThing), issubclass(int, (str, EvenThing))),
        torch.ones(1),
    )


@pytest.mark.parametrize("cls", [Ready, Sub])
@pytest.mark.parametrize("ready", [True, False])
def test_check_that_asks_type_in_turn(cls, ready):
    check(
        lambda x, v: x + (1 if isinstance(v, Ready) else 2), torch.ones(1), cls(ready), graphs=range(1, 3), breaks=None
    )
    check(lambda x, v: x + (1 if isinstance(v, Ready) else 2), torch.ones(1), Holder(ready))


def test_parameters_buffers_and_those_that_hold_subclasses():
    def f(x, w):
        return (
            x + 1, isinstance(w, nn.Parameter), isinstance(w, nn.Buffer), isinstance(w, torch.Tensor),
            isinstance(x, nn.Parameter),
        )

    x = torch.ones(1)
    for w in (nn.Parameter(torch.ones(2)), nn.Buffer(torch.ones(2)), torch.ones(2), torch.ones(2, requires_grad=True)):
        check(f, x, w)
    held = nn.Parameter(TwoTensor(torch.zeros(1), torch.zeros(1)))
    check(lambda x: (x + 1, isinstance(held, nn.Parameter)), x, graphs=range(1, 3), breaks=None)
    made = [nn.Parameter, nn.Buffer]
    check(lambda x: (x + 1, [isinstance(x * 2, c) for c in made]), x)


def test_a_mark_that_comes_later_is_seen():
    def make():
        return (lambda x: x + (1 if isinstance(x, nn.Buffer) else 2)), None

    marked = torch.ones(1)
    marked._is_buffer = True
    check_state(make, (torch.ones(1),), (marked,), (torch.ones(1),))


@pytest.mark.parametrize("cls", [torch.FloatTensor, torch.IntTensor, torch.DoubleTensor, torch.cuda.FloatTensor])
def test_classes_of_tensors_by_dtype(cls):
    check(lambda x: (x + 1, isinstance(x, cls), isinstance(x.double(), cls), isinstance([x], cls)), torch.ones(2))


def test_storages():
    made = torch.ones(2).untyped_storage()
    check(
        lambda x: (x + 1, isinstance(made, torch.FloatStorage), isinstance(made, torch.UntypedStorage)),
        torch.ones(1), graphs=None, breaks=None,
    )


def test_hooks_of_the_program_are_not_called_while_capturing():
    def make():
        Hooked.log.clear()
        return (lambda x, v: x + (1 if isinstance(v, Hooked) else 2)), None

    # the abc module keeps answers, so that eager and compiled ask once together
    Holder(True)
    check_state(make, (torch.ones(1), Holder(True)), graphs=None, breaks=None)
    assert len(Hooked.log) <= 1


def test_abstract_classes_of_the_library():
    def f(x, v):
        names = ("Iterable", "Sized", "Mapping", "Hashable", "Callable", "Sequence")
        return (
            x + 1,
            [isinstance(v, getattr(collections.abc, n)) for n in names],
            [issubclass(type(v), collections.abc.Sized)],
        )

    for v in ([1], {}, 3, "a", Holder(1), (1,)):
        check(f, torch.ones(1), v)


def test_protocols():
    for v in (Holder(True), 3):
        check(lambda x, v: x + (1 if isinstance(v, HasEven) else 2), torch.ones(1), v, graphs=None, breaks=None)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_registered_with_a_protocol_after_compiling(compiled):
    @typing.runtime_checkable
    class HasName(typing.Protocol):
        name: str

    class Nameless:
        pass

    def program(x, value):
        return x + isinstance(value, HasName)

    function = framejit.optimize(program) if compiled else program
    answers = [function(torch.zeros(1), Nameless()).item() for _ in range(2)]
    HasName.register(Nameless)
    assert [*answers, *(function(torch.zeros(1), Nameless()).item() for _ in range(2))] == [0, 0, 1, 1]


def test_match_asks_the_metaclass():
    def f(x, v):
        match v:
            case EvenThing():
                return x + 1
            case _:
                return x + 2

    for v in (2, 3):
        check(f, torch.ones(1), v)


def test_what_is_no_class():
    check(lambda x, v: isinstance(x + 1, v), torch.ones(1), 3, raises=TypeError)
    check(lambda x: issubclass(x + 1, int), torch.ones(1), raises=TypeError)


class Point(typing.TypedDict):
    x: int


class Unchecked(typing.Protocol):
    even: bool


OLD_TYPING = [typing.List, typing.List[int], typing.Union[int, str]]  # noqa: UP006, UP007
TYPING = [Point, Unchecked, HasEven, *OLD_TYPING, typing.Any, typing.NamedTuple]


@pytest.mark.parametrize(
    "make", [lambda: {}, lambda: Point(x=1), lambda: 3, lambda: Holder(True), lambda: torch.ones(1)]
)
@pytest.mark.parametrize("target", TYPING)
@pytest.mark.parametrize("check_of", [isinstance, lambda value, target: issubclass(type(value), target)])
def test_classes_of_typing(make, target, check_of):
    """Some of them refuse, each in words of its own."""

    def fn(x):
        try:
            return x + 1, check_of(make(), target)
        except TypeError as e:
            return x + 2, str(e)

    check(fn, torch.ones(1), graphs=None, breaks=None)


@pytest.mark.parametrize(
    "target",
    [
        typing.List, typing.Sequence, typing.List | typing.Tuple, typing.Union[typing.List, int],  # noqa: UP006, UP007
        typing.Callable, typing.List[int], typing.Optional[int],  # noqa: UP006, UP045
    ],
    ids=str,
)
def test_aliases_of_typing(target):
    def fn(x, value):
        try:
            return x + 1, isinstance(value, target), isinstance([x], target), isinstance(3, target)
        except TypeError as e:
            return str(e)

    for value in ([1], (1,), print, None):
        check(fn, torch.ones(1), value, breaks=None, graphs=None)


def test_aliases_of_typing_are_captured():
    names = types.SimpleNamespace(kind=typing.Sequence)

    def fn(x, value):
        kinds = typing.Mapping, names.kind, typing.Optional[set]  # noqa: UP045
        found = [isinstance(value, kind) for kind in (*kinds, kinds)]
        return x + sum(found), found, issubclass(type(value), (names.kind, typing.Callable))

    pair = Pair(lambda: fn, fullgraph=True)
    for names.kind in (typing.Sequence, typing.Callable, typing.Sequence):
        for value in ([1], {}, None, print, 2.5, torch.ones(1), range(2)):
            pair.call(torch.ones(1), value)


def test_a_class_that_is_registered_for_an_alias_later():
    class Late:
        pass

    def fn(x, value):
        return x + isinstance(value, typing.Sequence)

    pair = Pair(lambda: fn, fullgraph=True)
    pair.call(torch.ones(1), Late())
    collections.abc.Sequence.register(Late)
    pair.call(torch.ones(1), Late())
