"""match statements: literals, sequences, mappings, classes, guards, or-patterns, captures."""
import collections
import dataclasses
import typing

import pytest
import torch

from support import check, check_state

X = torch.tensor([1.0, 2.0])


@dataclasses.dataclass
class Point:
    x: int
    y: int


def by_pattern(t, value):
    match value:
        case 0 | 1:
            return t + 1
        case str() as name:
            return t * len(name)
        case [a, b]:
            return t + a * b
        case [first, *rest]:
            return t + first + len(rest)
        case {"scale": k, **others}:
            return t * k + len(others)
        case Point(x=0, y=y):
            return t - y
        case Point(x, y) if x == y:
            return t * 100
        case Point():
            return t / 2
        case None:
            return t
        case float(f):
            return t + f
        case _:
            return t.sum()


def test_literal_and_or_pattern():
    check(by_pattern, X, 1, changed=[(X, 0)])


def test_class_patterns_with_guard():
    check(by_pattern, X, Point(0, 3), changed=[(X, Point(2, 2)), (X, Point(1, 2)), (X, 2.5), (X, "abc")])


def test_sequence_patterns():
    check(by_pattern, X, [2, 3], changed=[(X, (4, 5)), (X, [1, 2, 3]), (X, [])])


def test_mapping_pattern_captures_the_rest():
    check(by_pattern, X, {"scale": 2, "more": 1}, changed=[(X, {"other": 1})])


def test_default_case():
    check(by_pattern, X, 3j)


def test_match_on_shape_and_dtype():
    def fn(x):
        match x.shape:
            case (n,):
                return x + n
            case (n, m):
                return x.sum(0) * n * m

    check(fn, X, changed=[(torch.randn(2, 3),)])


def test_no_case_matches():
    def fn(x, v):
        match v:
            case 1:
                x = x + 1
        return x * 2

    check(fn, X, 1, changed=[(X, 2)])


class Shape(typing.Protocol):
    sides: int


def test_a_class_pattern_that_raises():
    def fn(x):
        y = x + 1
        try:
            match Point(1, 2):
                case Shape():
                    return y
        except TypeError as e:
            return y * 2, str(e)

    check(fn, X, breaks=0)


class Twice:
    __match_args__ = ("v", "v")
    v = 1


class Letters:
    __match_args__ = "vw"
    v = 1


class Numbers:
    __match_args__ = (1,)


class Key:
    A = "a"


class MyInt(int):
    pass


class Both(collections.UserDict, collections.abc.Sequence):
    pass


def patterns(x, subject):
    try:
        match subject:
            case Twice(_, _):
                return x + 1
            case Letters(_):
                return x + 2
            case Numbers(_):
                return x + 3
            case {Key.A: _, "a": _}:
                return x + 4
            case MyInt(n):
                return x + 5, n
            case [first, *rest]:
                return x + 6, first, rest
            case {"k": v, **others}:
                return x + 7, v, others
    except (TypeError, ValueError) as e:
        return x, type(e), str(e)
    return x + 8


SUBJECTS = [
    Twice(), Letters(), Numbers(), {"a": 1}, MyInt(3), [1, 2], {"k": 1, "l": 2}, "text",
    collections.defaultdict(int, k=3), range(2), 5,
]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: type(s).__name__)
def test_patterns_are_checked(subject):
    def make():
        return lambda x: patterns(x, subject)

    check_state(make, (X,), (X,), graphs=None, breaks=None)
