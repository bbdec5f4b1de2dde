"""What errors say, as the running version of Python says it."""
import operator

import pytest
import torch

from support import check

X = torch.arange(3.0)


class Wrong:
    """Its special methods give what they must not."""

    def __bool__(self):
        return 3

    def __len__(self):
        return "a"

    def __index__(self):
        return "a"

    def __str__(self):
        return 3

    def __repr__(self):
        return 3

    def __iter__(self):
        return 3

    def __hash__(self):
        return "a"

    def __format__(self, spec):
        return 3

    def __int__(self):
        return "a"

    def __float__(self):
        return "a"

    def __length_hint__(self):
        return "a"

    def __contains__(self, item):
        raise KeyError(item)


class Negative:
    def __len__(self):
        return -1


def none(*, key):
    return key


def two(items):
    a, b = items
    return a, b


def some(items):
    a, *b, c = items
    return a, b, c


def manager(m):
    with m:
        return 1


CASES = {
    "bool": lambda: bool(Wrong()),
    "not": lambda: not Wrong(),
    "len": lambda: len(Wrong()),
    "negative length": lambda: len(Negative()),
    "index": lambda: [1][Wrong()],
    "str": lambda: str(Wrong()),
    "repr": lambda: repr(Wrong()),
    "iter": lambda: iter(Wrong()),
    "for": lambda: [i for i in Wrong()],
    "hash": lambda: hash(Wrong()),
    "format": lambda: format(Wrong()),
    "f-string": lambda: f"{Wrong()}",
    "int": lambda: int(Wrong()),
    "float": lambda: float(Wrong()),
    "length_hint": lambda: operator.length_hint(Wrong()),
    "contains": lambda: 3 in Wrong(),
    "range": lambda: range(Wrong()),
    "unpack too many": lambda: two([1, 2, 3]),
    "unpack too many of a tuple": lambda: two((1, 2, 3)),
    "unpack too many of a dict": lambda: two({1: 1, 2: 2, 3: 3}),
    "unpack too many of a set": lambda: two({1, 2, 3}),
    "unpack too many of a generator": lambda: two(i for i in range(4)),
    "unpack too few": lambda: two([1]),
    "unpack what can't": lambda: two(3),
    "unpack too few for a star": lambda: some([1]),
    "modulo": lambda: 1 % 0,
    "divide": lambda: 1 / 0,
    "floor": lambda: 1 // 0,
    "float division": lambda: 1.0 / 0,
    "power": lambda: 0**-1,
    "divmod": lambda: divmod(1, 0),
    "index of": lambda: [1].index(3),
    "remove": lambda: [1].remove(3),
    "pop": lambda: [].pop(),
    "range of nothing": lambda: range(1, 2, 0),
    "strict zip": lambda: list(zip([1], [1, 2], strict=True)),
    "hash of a list": lambda: hash([]),
    "a list as a key": lambda: {[]: 1},
    "a list in a set": lambda: {1, ()[:]} | {[]},
    "a list to look up": lambda: {1: 2}[[]],
    "a list added to a set": lambda: set().add([]),
    "get with a list": lambda: {}.get([]),
    "dict of pairs": lambda: dict([([], 1)]),
    "a missing key": lambda: {}["a"],
    "no call": lambda: 3(),
    "no length": lambda: len(3),
    "no container": lambda: "a" in 3,
    "no string": lambda: 3 in "a",
    "no iterator": lambda: next(3),
    "no iterable": lambda: iter(3),
    "a generator over a number": lambda: list(i for i in 3),
    "a manager that is none": lambda: manager(3),
    "star of a number": lambda: none(*3),
    "two stars of a number": lambda: none(**3),
    "key twice": lambda: none(**{"key": 1}, key=2),
    "keys that are numbers": lambda: none(**{1: 2}),
    "isinstance": lambda: isinstance(3, 3),
    "issubclass": lambda: issubclass(3, int),
    "percent": lambda: "%d" % "a",  # noqa: UP031
    "format of a number": lambda: f"{3:z}",
    "abs": lambda: abs("a"),
    "negative": lambda: -"a",
    "less": lambda: "a" < 3,
    "add": lambda: 3 + "a",
    "concatenate": lambda: [1] + (1,),
    "attribute": lambda: None.x,
    "dict of numbers": lambda: dict([1]),
    "dict of triples": lambda: dict([(1, 2, 3)]),
    "sum": lambda: sum(["a"]),
    "max": lambda: max([]),
    "int of text": lambda: int("a"),
    "out of range": lambda: [1][5],
    "key of a tuple": lambda: (1, 2)["a"],
    "raise": lambda: (_ for _ in ()).throw(3),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    case = CASES[name]

    def fn(x):
        y = x + 1
        try:
            return y, case()
        except Exception as e:
            return y * 2, type(e), str(e)

    check(fn, X, breaks=None, graphs=None)


class Items(list):
    pass


def said(call):
    try:
        call()
    except TypeError as e:
        return str(e)


def test_a_method_of_an_object_is_called_as_the_method_of_the_class_that_has_it():
    def fn(x, items):
        bound = x.sqrt
        return [
            said(lambda: x.sqrt(2)), said(lambda: x.sqrt(print("argument"))), said(lambda: x.sqrt(a=1)),
            said(lambda: bound(2)),
            said(lambda: items.append(1, 2)), said(lambda: items.append(1, print("argument"))),
            said(lambda: x.add_(print("argument"))),
            x.add(len(items) + x.sum().item()),
        ]

    check(fn, X, Items([1]), breaks=None, graphs=None)


GROUPED, PLACE, ATTRIBUTE, ITEM = "{:,_}", "{0}", "{a.b}", "{a[1]}"


@pytest.mark.parametrize(
    "text",
    [
        lambda: GROUPED.format(3),
        lambda: f"{[1]:>3}",
        lambda: format([1], "x"),
        lambda: PLACE.format(),
        lambda: ATTRIBUTE.format(a=(1,)),
        lambda: ITEM.format(a=[]),
        lambda: f"{'a':%d}",
        lambda: f"{3:zz}",
    ],
)
def test_text_that_can_not_be_formatted(text):
    def fn(x):
        try:
            return text()
        except Exception as e:
            return x * 2, type(e), str(e)

    check(fn, X)
