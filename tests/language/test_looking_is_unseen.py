"""Capture looks at classes, modules and values without running what the program put there; what C code asks for is asked for."""
import enum
import functools
import types

import pytest
import torch

from support import Pair, check, check_state


class Counting:
    def __init__(self, items, hint=None):
        self.items, self.asked, self.hint = items, 0, hint

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        self.asked += 1
        if self.hint is not None:
            raise self.hint("no length")
        return len(self.items)


class Hinting:
    def __init__(self, items):
        self.items, self.asked = items, 0

    def __iter__(self):
        return iter(self.items)

    def __length_hint__(self):
        self.asked += 1
        return NotImplemented


def spread(*args):
    return list(args)


GATHERERS = {
    "list": list,
    "tuple": tuple,
    "sorted": sorted,
    "display": lambda items: [*items, 1],
    "extend": lambda items: [2].extend(items),
    "arguments": lambda items: spread(*items),
    "set": set,
    "unpacked": lambda items: (lambda a, b: (a, b))(*items),
}


@pytest.mark.parametrize("name", GATHERERS)
@pytest.mark.parametrize("make", [lambda: Counting([3, 4]), lambda: Hinting([3, 4]), lambda: Counting([3, 4], TypeError), lambda: Counting([3, 4], KeyError)])
def test_lengths_are_asked_for_where_python_asks(name, make):
    gather = GATHERERS[name]

    def world():
        items = make()

        def program(x):
            y = x + 1
            return y * 2, gather(items), items.asked

        return program, lambda: items.asked

    Pair(world).call(torch.ones(2))


def test_names_of_classes_change():
    def world():
        class A:
            """Before."""

        def program(x):
            return x + len(A.__name__), A.__doc__, A.__qualname__, A.__module__, type(A()).__name__, A.__mro__, A.__bases__

        return program, A

    pair = Pair(world)
    pair.call(torch.ones(2))
    for side in (pair.state, pair.eager_state):
        side.__name__ = "Longer"
    pair.call(torch.ones(2))
    for name, text in (("__doc__", "After."), ("__qualname__", "Elsewhere"), ("__module__", "there"), ("__doc__", None)):
        for side in (pair.state, pair.eager_state):
            setattr(side, name, text)
        pair.call(torch.ones(2))


class Asking(type):
    asked: list[str] = []

    @property
    def __module__(cls):
        Asking.asked.append("module")
        return "elsewhere"


class OfAsking(metaclass=Asking):
    def __init__(self, n):
        self.n = n


def test_a_metaclass_is_not_asked_for_the_module():
    def program(x):
        return x + OfAsking(3).n

    Asking.asked.clear()
    check(program, torch.ones(2))
    assert not Asking.asked


def test_a_module_with_its_own_getattribute_is_left_alone():
    def world():
        log = []

        class Watched(types.ModuleType):
            def __getattribute__(self, name):
                log.append(name)
                return super().__getattribute__(name)

        module = Watched("watched")
        module.factor = 3

        def program(x):
            return x * module.factor

        return program, lambda: list(log)

    check_state(world, (torch.ones(2),), (torch.ones(2),), breaks=1)


class Colour(enum.Enum):
    def __init__(self, depth):
        self.depth = depth + Shade.steps(self)


class Shade:
    seen: list[int] = []

    @staticmethod
    def steps(member):
        Shade.seen.append(1)
        return 2


def test_members_that_have_no_name_yet():
    def program(x):
        class Local(Colour):
            RED = 1
            BLUE = 2

        return x + Local.RED.depth, Local.BLUE.name

    pair = Pair(lambda: program)
    pair.call(torch.ones(2))
    pair.call(torch.ones(2))


def test_functions_behind_a_cache():
    def world():
        @functools.lru_cache
        def cached(n):
            return n + 1

        cached.extra = 5

        def program(x):
            return x + cached.extra, cached.__name__

        return program, cached

    pair = check_state(world, (torch.ones(2),))
    for side in (pair.state, pair.eager_state):
        side.extra = 7
    pair.call(torch.ones(2))


def test_a_cache_made_inside():
    def program(x):
        @functools.lru_cache
        def cached(n):
            return n + 1

        return x + cached(2), cached(2)

    pair = Pair(lambda: program)
    pair.call(torch.ones(2))
    pair.call(torch.ones(2))


WIDE, PRECISE = "%*d", "%.*f"


@pytest.mark.parametrize(
    "make",
    [
        lambda: str(object=b"abc", errors="strict"),
        lambda: str(b"abc", "utf-8"),
        lambda: str(encoding="utf-8"),
        lambda: str(object=5),
        lambda: WIDE % (10**30, 1),
        lambda: PRECISE % (2, 3.14159),
        lambda: f"{int | str}",
    ],
)
def test_text(make):
    Pair(lambda: lambda x: (x + 1, make())).call(torch.ones(2))
