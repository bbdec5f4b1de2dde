"""When objects end: what finalizers, weak references and proxies see."""

import sys
import typing
import weakref

import pytest
import torch

import framejit

from support import check_state

X = torch.ones(3)


def test_finalizers_run_when_eager_runs_them():
    def make():
        log = []

        class Noisy:
            def __init__(self, name):
                self.name = name

            def __del__(self):
                log.append(self.name)

        def f(x, how):
            a = Noisy("a")
            if how == 1:
                del a
            elif how == 2:
                a = Noisy("b")
            log.append("after")
            return x + len(log)

        return f, log

    check_state(make, (X, 0), (X, 1), (X, 2), graphs=None, breaks=None)


class Target:
    pass


def test_weak_references_end_with_the_last_reference():
    def raiser(o):
        raise ValueError(o)

    def f(x):
        o = Target()
        r = weakref.ref(o)
        alive = [r() is o]
        try:
            raiser(o)
        except ValueError:
            pass
        o = None
        alive.append(r() is None)
        return x + 1, alive

    check_state(lambda: f, (X,), (X,), graphs=None, breaks=None)


def test_weak_references_to_arguments():
    def f(x, o, r):
        y = x + (r() is o)
        o = None
        return y, r() is None

    compiled = framejit.optimize(f, backend="eager")
    for g in (f, compiled, compiled):
        o = Target()
        assert g(X, o, weakref.ref(o))[1] is False


def test_generators_left_in_a_try_block():
    def make():
        log = []

        def numbers():
            try:
                yield 1
                yield 2
            finally:
                log.append("closed")

        def f(x):
            for n in numbers():
                x = x + n
                break
            log.append("after")
            return x

        return f, log

    check_state(make, (X,), (X,), graphs=None, breaks=None)


class Referent(list):
    note = 1


@pytest.mark.parametrize("is_alive", [True, False])
def test_weak_proxies_are_asked_by_plain_python_only(is_alive):
    def make():
        target = Referent()
        proxy = weakref.proxy(target)
        kept = [target] if is_alive else []
        del target

        def fn(x):
            y = x + len(kept)
            try:
                return y * 2, proxy.note, bool(proxy), list(proxy)
            except ReferenceError as e:
                return y, str(e)

        return fn

    check_state(make, (X,), (X,), breaks=None)


@pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 14), reason="3.12.1 and 3.13.0 crash where a weak reference's callback comes"
)
def test_what_is_made_anew_at_each_read_ends_when_it_is_let_go_of():
    def fn(x, parameters, name):
        ended = []
        part = getattr(parameters, name)
        reference = weakref.ref(part, lambda gone: ended.append(True))
        alive = reference() is part
        del part
        return x + 1, alive, list(ended), reference() is None

    compiled = framejit.optimize(fn, backend="eager")
    for name in ("args", "kwargs", "args"):
        arguments = X, typing.ParamSpec("P"), name
        assert str(compiled(*arguments)) == str(fn(*arguments)) == str((X + 1, True, [True], True))
