"""Generators that are dropped before their end: only those whose handlers see GeneratorExit are left to plain
Python."""

import queue
from collections.abc import Sequence

import pytest
import torch

from support import check

X = torch.tensor([1.0, 2.0])
log = []


class Rows(Sequence):
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def named(x):
    try:
        yield x + 1
        yield x + 2
    except IndexError:
        log.append("never")


def several(x):
    for i in range(3):
        try:
            yield x * i
        except (KeyError, queue.Empty) as e:
            log.append(str(e))


def nested(x):
    wanted = OverflowError
    try:
        try:
            yield x
        except wanted:
            log.append("never")
        except ValueError:
            raise
    except ArithmeticError:
        return


def ended_by_name(x):
    try:
        yield x * 3
    except GeneratorExit:
        return


def handed_on(x):
    yield from named(x)


def handed_on_inside(x):
    try:
        yield from (x + i for i in range(3))
    except LookupError:
        log.append("never")


def nothing_at_last(x):
    try:
        yield x
    finally:
        pass


def first_of(iterable):
    for item in iterable:
        return item
    return None


@pytest.mark.parametrize("made", [named, several, nested, ended_by_name, handed_on, handed_on_inside, nothing_at_last])
def test_what_only_looks_at_classes_is_captured(made):
    def fn(x):
        log.clear()
        return first_of(made(x)) * 2, len(log)

    check(fn, X, graphs=1, breaks=0)


def test_iterating_a_sequence_in_part():
    def fn(x, rows):
        return next(iter(rows)) + x, any(row is x for row in rows), x in rows

    check(fn, X, Rows(X, X + 1), graphs=1, breaks=0)


def with_finally(x):
    try:
        yield x + 1
    finally:
        log.append("closed")


def with_bare(x):
    try:
        yield x + 1
    except:  # noqa: E722
        log.append("closed")


def with_base(x):
    try:
        yield x + 1
    except (KeyError, BaseException):
        log.append("closed")


def with_base_outside(x):
    try:
        try:
            yield x + 1
        except KeyError:
            pass
    except GeneratorExit as e:
        log.append(type(e).__name__)


class Manager:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        log.append(exc[0].__name__)


def with_manager(x):
    with Manager():
        yield x + 1


class Closable:
    def __init__(self, x):
        self.x = x

    def __iter__(self):
        return self

    def __next__(self):
        return self.x

    def close(self):
        log.append("closed")


def over_closable(x):
    yield from Closable(x)


def over_finally(x):
    try:
        yield from with_finally(x)
    except KeyError:
        pass


@pytest.mark.parametrize(
    "made", [with_finally, with_bare, with_base, with_base_outside, with_manager, over_closable, over_finally]
)
def test_what_sees_the_end_runs_in_its_own_time(made):
    def fn(x):
        log.clear()
        y = first_of(made(x)) * 2
        seen = len(log)
        log.append("after")
        return y, seen, list(log)

    check(fn, X, graphs=range(0, 4), breaks=range(0, 4), ops=None)
