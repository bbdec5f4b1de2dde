"""Capture looks at classes, modules and values without running what the program put there; what C code asks for is
asked for."""
import enum
import functools
import re
import types
import unittest.mock
from collections.abc import Mapping

import pytest
import torch

import framejit

from support import ANY, Pair, check, check_state


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
@pytest.mark.parametrize(
    "make",
    [
        lambda: Counting([3, 4]), lambda: Hinting([3, 4]), lambda: Counting([3, 4], TypeError),
        lambda: Counting([3, 4], KeyError),
    ],
)
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
            return (
                x + len(A.__name__), A.__doc__, A.__qualname__, A.__module__, type(A()).__name__, A.__mro__,
                A.__bases__,
            )

        return program, A

    pair = Pair(world)
    pair.call(torch.ones(2))
    for side in (pair.state, pair.eager_state):
        side.__name__ = "Longer"
    pair.call(torch.ones(2))
    for name, text in (
        ("__doc__", "After."), ("__qualname__", "Elsewhere"), ("__module__", "there"), ("__doc__", None),
    ):
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


POSING = {
    "staticmethod": staticmethod(len),
    "classmethod": classmethod(len),
    "property": property(len),
    "function": lambda a: a,
    "cached property": functools.cached_property(len),
    "partial": functools.partial(len),
    "int": 3,
    "list": [1],
}
USES = {
    "call": lambda o: o(3),
    "text": lambda o: str(o)[:4],
    "product": lambda o: o * 2,
    "index": lambda o: [1, 2, 3][o],
    "key": lambda o: {o: 1}[o],
    "next": lambda o: next(o),
    "in": lambda o: 1 in o,
    "with": lambda o: o.__enter__(),
    "attribute": lambda o: o.__name__,
}


@pytest.mark.parametrize("pose", POSING)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("place", ["class", "instance", "closure"])
def test_what_says_that_it_is_of_another_class_is_what_it_is(pose, use, place):
    def called(run):
        mock = unittest.mock.MagicMock(spec=POSING[pose])
        holder = type("Holder", (), {"attribute": mock})

        def fn(x):
            found = holder.attribute if place == "class" else holder().attribute if place == "instance" else mock
            return x + 1, use_(found)

        use_, runs, ended = USES[use], run(fn), []
        for _ in range(2):
            try:
                ended.append(type(runs(torch.ones(2))[1]).__name__)
            except Exception as e:
                ended.append((type(e), re.sub("[0-9]", "", str(e))))
        return ended, [call[0] for call in mock.mock_calls]

    assert called(lambda fn: framejit.optimize(fn, backend="eager")) == called(lambda fn: fn)


@pytest.mark.parametrize(
    "name",
    [
        "time.monotonic", "time.perf_counter", "time.perf_counter_ns", "builtins.open", "builtins.__import__",
        "builtins.print",
    ],
)
def test_what_the_program_put_in_the_place_of_a_function_is_not_called(name):
    def fn(x):
        total = x * 2
        for i in range(3):
            total = total + i
        return total

    compiled = framejit.optimize(fn, backend="eager")
    with unittest.mock.patch(name) as mock:
        assert compiled(torch.ones(2)).tolist() == [5, 5]
    assert mock.mock_calls == []


def test_what_a_proxy_keeps_is_read_past_its_getattribute():
    def world():
        asked = []

        class Proxy:
            def __init__(self, target):
                object.__setattr__(self, "kept", target)

            def __getattribute__(self, name):
                asked.append(name)
                if name in ("kept", "hidden"):
                    return object.__getattribute__(self, name)
                return getattr(object.__getattribute__(self, "kept"), name)

            def __add__(self, other):
                object.__setattr__(self, "hidden", other)
                return object.__getattribute__(self, "kept") + other

        proxies = [Proxy(torch.full((2,), n)) for n in (1.0, 2.0)]

        def program(x, at):
            proxy = proxies[at]
            return proxy + x, proxy.shape, proxy.hidden, list(asked)

        return program

    pair = Pair(world)
    for at in (0, 1, 0):
        pair.call(torch.ones(2), at)
    pair.expect(graphs=ANY, breaks=0)


@pytest.mark.parametrize("kinds", [list, (int, dict), Mapping])
def test_what_a_proxy_stands_for_is_an_instance(kinds):
    def world():
        class Proxy:
            def __init__(self, target):
                self.kept = target

            def __getattribute__(self, name):
                return getattr(object.__getattribute__(self, "kept"), name)

        proxies = [Proxy(target) for target in (3, [4], {}, "text")]

        def program(x, at):
            matched = "none"
            match proxies[at]:
                case list():
                    matched = "list"
                case dict():
                    matched = "dict"
            return x + isinstance(proxies[at], kinds), matched, isinstance(proxies[at], Proxy)

        return program

    pair = Pair(world)
    for at in (0, 1, 2, 3, 1):
        pair.call(torch.ones(2), at)


def test_a_counter_behind_a_getattribute():
    def world():
        asked = []

        class Counter:
            def __init__(self):
                self.steps = 2

            def __getattribute__(self, name):
                asked.append(name)
                return super().__getattribute__(name)

        counter = Counter()

        def program(x):
            counter.steps = counter.steps + 1
            return x * counter.steps

        return program, lambda: list(asked)

    check_state(world, *[(torch.ones(2),)] * 4, breaks=0)


def test_an_argument_is_not_asked_for_its_class():
    asked = []

    class Watched:
        value = None

        def __getattribute__(self, name):
            asked.append(name)
            return super().__getattribute__(name)

    @framejit.optimize(backend="eager")
    def program(x, held):
        held.value = x + 1
        return x * 2

    watched = Watched()
    for _ in range(2):
        program(torch.ones(2), watched)
    assert asked == []


def test_a_class_that_says_itself_what_the_dict_is():
    def program(x):
        class Plain:
            __dict__ = property(lambda self: {"value": "made inside"})

        return x + 1, Plain().__dict__

    def world():
        class Other:
            def __init__(self, value):
                self.value = value

            @property
            def __dict__(self):
                return {"value": "another"}

            def __getattr__(self, name):
                return name

        others = [Other(torch.full((2,), n)) for n in (1.0, 2.0)]

        def program(x, at):
            other = others[at]
            other.added = x
            return other.value + x, other.missing, vars(other), other.added

        return program

    pair, inside = Pair(world), Pair(lambda: program)
    for at in (0, 1, 0):
        pair.call(torch.ones(2), at)
        inside.call(torch.ones(2))


class OwnSet(set):
    asked: list[str] = []

    def __iter__(self):
        OwnSet.asked.append("iter")
        return iter(["none of its own"])

    def __len__(self):
        OwnSet.asked.append("len")
        return 9


class OwnList(list):
    def __iter__(self):
        OwnSet.asked.append("iter")
        return iter(["none of its own"])


class OwnTuple(tuple):
    def __len__(self):
        OwnSet.asked.append("len")
        return 9


class OwnDict(dict):
    def __len__(self):
        OwnSet.asked.append("len")
        return 9


KEY = object()


@pytest.mark.parametrize(
    "make",
    [
        lambda n: OwnSet(range(n)), lambda n: OwnSet([KEY, n]), lambda n: OwnList(range(n)),
        lambda n: OwnTuple(range(n)), lambda n: OwnDict.fromkeys(range(n)), lambda n: OwnDict({KEY: n}),
    ],
)
def test_what_containers_hold_is_not_what_their_methods_say(make):
    def program(x, items):
        return x + 1, type(items).__base__.__contains__(items, 1), type(items).__base__.__len__(items), bool(items)

    OwnSet.asked.clear()
    pair = Pair(lambda: program)
    for n, captures in ((2, True), (2, False), (3, None), (2, None)):
        pair.call(torch.ones(2), make(n), **({} if captures is None else {"captures": captures}))
    assert pair.backend.graphs
