"""A traceback keeps alive what the frames in it hold at their end, also where a frame was resumed behind a graph break,
and no longer than that."""

import contextlib
import gc
import weakref

import pytest
import torch

import framejit

log = []


class Failed(Exception):
    pass


class Manager:
    def __init__(self, swallows=False):
        self.swallows = swallows

    def __enter__(self):
        log.append("enter")
        return self

    def __exit__(self, *exc):
        log.append("exit")
        return self.swallows


class Finalized:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        log.append(self.name)


@framejit.disable
def finalized(name):
    return Finalized(name)


@framejit.disable
def fail():
    log.append("fails")
    raise Failed


@framejit.disable
def tell(what):
    log.append(what)


def closing(x):
    try:
        for i in range(3):
            yield x * i
    finally:
        log.append("closed")


def closing_by_with(x):
    with Manager():
        yield x + 1
        yield x + 2


def delegating(x):
    try:
        yield from closing(x)
    finally:
        log.append("outer closed")


GENERATORS = [closing, closing_by_with, delegating]


def not_caught(x, made, saved):
    it = made(x)
    y = next(it)
    try:
        fail()
    except ValueError:
        y = y + 1
    return y


def with_finally(x, made, saved):
    it = made(x)
    y = next(it)
    try:
        fail()
    finally:
        tell(len(saved))
        y = y + 1
    return y


def with_manager(x, made, saved):
    it = made(x)
    y = next(it)
    with Manager():
        fail()
    return y


def caught(x, made, saved):
    it = made(x)
    y = next(it)
    try:
        fail()
    except Failed:
        y = y + 1
    tell("after")
    return y * 2


def swallowed(x, made, saved):
    it = made(x)
    y = next(it)
    with Manager(True):
        fail()
    tell("after")
    return y * 2


def suppressed(x, made, saved):
    it = made(x)
    y = next(it)
    with contextlib.suppress(Failed):
        fail()
    return y * 2


def saved_for_later(x, made, saved):
    it = made(x)
    y = next(it)
    try:
        fail()
    except Failed as e:
        saved.append(e)
    tell("after")
    return y * 2


def saved_in_a_variable(x, made, saved):
    it = made(x)
    y = next(it)
    try:
        fail()
    except Failed as e:
        error = e
    tell("after")
    saved.append(type(error))
    return y * 2


def saved_twice(x, made, saved):
    its = []
    for i in range(2):
        it = made(x)
        its.append(it)
        y = next(it)
        try:
            fail()
        except Failed as e:
            saved.append(e)
        tell(i)
    return y * 2


def replaced(x, made, saved):
    it = made(x)
    y = next(it)
    try:
        fail()
    except Failed as e:
        saved.append(e)
    it = None
    tell("replaced")
    return y * 2


def deleted(x, made, saved):
    it = made(x)
    y = next(it)
    try:
        fail()
    except ValueError:
        pass
    except Failed as e:
        saved.append(e)
        del it
        tell("deleted")
        raise
    return y * 2


def another(x, made, saved):
    it = made(x)
    y = next(it)
    try:
        fail()
    except Failed:
        it2 = made(x)
        next(it2)
        tell("handler")
        None + y  # noqa: B018


def wrong_operands(x, made, saved):
    it = made(x)
    y = next(it)
    try:
        None + y  # noqa: B018
    except ValueError:
        pass


def wrong_shapes(x, made, saved):
    it = made(x)
    y = next(it)
    try:
        return y @ torch.ones(17, 3)
    finally:
        y = None


def _inner(x, made):
    it = made(x)
    y = next(it)
    try:
        fail()
    except ValueError:
        pass
    return y


def below(x, made, saved):
    mine = made(x)
    next(mine)
    return _inner(x, made) + 1


def below_and_caught(x, made, saved):
    mine = made(x)
    next(mine)
    try:
        return _inner(x, made) + 1
    except Failed as e:
        saved.append(e)
    tell("after")
    return x


def recursive(x, made, saved, depth=2):
    it = made(x)
    y = next(it)
    try:
        if depth:
            return recursive(y, made, saved, depth - 1)
        fail()
    finally:
        tell(depth)


def finalizers(x, made, saved):
    one = finalized("one")
    try:
        fail()
    except Failed as e:
        two = finalized("two")
        saved.append(e)
    one = x + 1
    tell("after")
    three = finalized("three")
    return one * 2, two is three


FUNCTIONS = [
    not_caught, with_finally, with_manager, caught, swallowed, suppressed, saved_for_later, saved_in_a_variable,
    saved_twice, replaced, deleted, another,
    wrong_operands, wrong_shapes, below, below_and_caught, recursive, finalizers,
]


def observed(fn, made, calls):
    """What happens in which order, and when the argument ends, without the collector's help until the end."""
    seen = []
    for _ in range(calls):
        gc.collect()
        gc.disable()
        try:
            log.clear()
            saved = []
            x = torch.ones(3)
            ref = weakref.ref(x)
            result = error = None
            try:
                result = fn(x, made, saved)
            except (Failed, TypeError, RuntimeError) as e:
                error = e
            log.append("left")
            del x
            log.append((str(result), type(error).__name__, ref() is None))
            if isinstance(error, BaseException) and error.__context__ is not None:
                log.append("context")
            error = None
            log.append(("without exception", ref() is None))
            saved.clear()
            log.append(("without saved ones", ref() is None))
            result = None
            gc.collect()
            log.append(("collected", ref() is None))
            seen.append(list(log))
        finally:
            gc.enable()
    return seen


@pytest.mark.parametrize("made", GENERATORS)
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_what_frames_hold_at_their_end(fn, made):
    assert observed(framejit.optimize(fn, backend="eager"), made, 3) == observed(fn, made, 3)


def test_frames_that_went_on_long_ago_are_not_kept():
    """However often a frame breaks behind an exception that somebody keeps: one frame goes on."""
    class Marked:
        pass

    refs = []

    @framejit.disable
    def marked():
        refs.append(weakref.ref(made := Marked()))
        return made

    def fn(x, saved):
        try:
            fail()
        except Failed as e:
            saved.append(e)
        for _ in range(5):
            one = marked()  # noqa: F841
            x = x + 1
        tell(sum(ref() is not None for ref in refs))
        return x

    for run in (fn, framejit.optimize(fn, backend="eager")):
        for _ in range(2):
            log.clear()
            refs.clear()
            saved = []
            run(torch.ones(3), saved)
            assert log[-1] == 1
            saved.clear()
            assert not any(ref() is not None for ref in refs)
