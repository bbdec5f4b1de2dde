"""`threading.local`: each thread has attributes of its own, which guards read and captured code writes."""
from __future__ import annotations

import threading

import pytest
import torch

import framejit

from support import Pair, check_state

X = torch.arange(3.0)


def depth_and_scale():
    local = threading.local()
    local.depth, local.scale = 0, 2.0

    def fn(x, n):
        local.depth += 1
        try:
            return x * local.scale + local.depth
        finally:
            local.depth -= 1

    return fn, lambda: vars(local)


def made_when_missing():
    local = threading.local()

    def fn(x, n):
        stack = getattr(local, "stack", None)
        if stack is None:
            stack = local.stack = []
        stack.append(n)
        local.last = x * n
        return x + len(stack), hasattr(local, "stack")

    return fn, lambda: vars(local)


def deleted():
    local = threading.local()

    def fn(x, n):
        local.a = x + n
        doubled = local.a * 2
        del local.a
        said = []
        for change in (lambda: local.a, lambda: delattr(local, "none")):
            try:
                change()
            except AttributeError as e:
                said.append(str(e))
        return doubled, said, getattr(local, "a", 3), local.__dict__ == {}

    return fn, lambda: vars(local)


class Nested(threading.local):
    depth = 0

    def enter(self):
        self.depth += 1
        return self.depth

    @property
    def is_deep(self):
        return self.depth > 1


def of_a_class_with_methods():
    local = Nested()

    def fn(x, n):
        x = x * local.enter() + local.is_deep
        local.depth -= n % 2
        return x, isinstance(local, threading.local), type(local).depth

    return fn, lambda: vars(local)


@pytest.mark.parametrize("make", [depth_and_scale, made_when_missing, deleted, of_a_class_with_methods])
def test_attributes(make):
    check_state(make, *((X, n) for n in range(5)))


class Made(threading.local):
    def __init__(self):
        self.count = 5


class Answering(threading.local):
    def __getattribute__(self, name):
        return 7 if name == "seven" else super().__getattribute__(name)


@pytest.mark.parametrize("cls", [Made, Answering])
def test_classes_that_say_more(cls):
    def make():
        local = cls()

        def fn(x):
            local.other = x
            return x * getattr(local, "count", 2) + getattr(local, "seven", 1)

        return fn, lambda: vars(local)

    check_state(make, (X,), (X,), breaks=None)


def test_each_thread_has_its_own():
    def make():
        local = threading.local()

        def fn(x):
            local.count = getattr(local, "count", 0) + 1
            return x * local.scale, local.count

        return local, fn

    def story(wrap):
        local, fn = make()
        fn, told = wrap(fn), []

        def work(scale, calls):
            try:
                fn(X)
            except AttributeError as e:
                told.append(str(e))
            local.scale = scale
            for _ in range(calls):
                told.append(fn(X))

        work(2.0, 40)  # often enough for guards to remember what proves them
        for scale in (3.0, 4.0):
            thread = threading.Thread(target=work, args=(scale, 40))
            thread.start()
            thread.join()
        work(5.0, 3)
        return repr(told)

    assert story(lambda fn: fn) == story(lambda fn: framejit.optimize(fn, backend="eager"))


def test_the_dict_is_one_object():
    def make():
        local = threading.local()
        local.items = []

        def fn(x, n):
            shown = local.__dict__
            shown["more"] = n
            local.items.append(n)
            return x + local.more, shown is local.__dict__, len(local.items)

        return fn, lambda: vars(local)

    pair = Pair(make)
    for n in range(4):
        pair.call(X, n)
    pair.expect(breaks=0)
