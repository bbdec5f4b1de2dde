"""Exceptions that exist before they are raised, what is being handled around a call, and chains of contexts."""

import contextlib
import sys
import traceback
import weakref

import pytest
import torch

import framejit

from support import check, check_state

X = torch.ones(2)


@contextlib.contextmanager
def passing():
    yield


class Suppressing:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, tb):
        traceback.clear_frames(tb)
        return True


def lines(exc):
    return [
        entry.lineno - exc.__traceback__.tb_frame.f_code.co_firstlineno
        for entry in traceback.extract_tb(exc.__traceback__)
    ]


def held_and_raised_in_with(x):
    e = KeyError("a")
    try:
        with passing():
            raise e
    except KeyError:
        framejit.graph_break()
        return x + (1 if e.args else 2)


def frames_cleared_by_exit(x):
    e = TypeError()

    class Bad:
        def __iter__(self):
            raise e

    with Suppressing():
        list(Bad())
    return x + 1, type(e)


def raised_twice(x):
    e = ValueError(1)
    framejit.graph_break()
    for _ in range(2):
        with contextlib.suppress(ValueError):
            raise e
    return x + 1, len(traceback.extract_tb(e.__traceback__))


def leaves_a_function(x):
    def thrower(e):
        raise e

    e = ValueError(1)
    framejit.graph_break()
    try:
        thrower(e)
    except ValueError as caught:
        y = x + 1
        return y, lines(caught)


@pytest.mark.parametrize("f", [held_and_raised_in_with, frames_cleared_by_exit, raised_twice, leaves_a_function])
def test_existing_exception_is_raised_for_real(f):
    check_state(lambda: f, (X,), (X,), (X,), graphs=None, breaks=None)


def own_context(x):
    try:
        try:
            raise ValueError(1)
        except ValueError as e:
            e.__context__ = e
            raise TypeError(2)  # noqa: B904  the context is what is tested
    except Exception as e:
        return type(e.__context__).__name__, x + 1


def long_cycle(x):
    try:
        try:
            raise ValueError(1)
        except ValueError as e:
            a, b = KeyError(1), KeyError(2)
            e.__context__, a.__context__, b.__context__ = a, b, a
            raise TypeError(2)  # noqa: B904  the context is what is tested
    except Exception as e:
        return [type(c).__name__ for c in (e.__context__, e.__context__.__context__)], x + 1


@pytest.mark.parametrize("f", [own_context, long_cycle])
def test_cyclic_contexts_end(f):
    check(f, X, breaks=None, graphs=None)


def reads_exc_info(x):
    return x + 1, sys.exc_info()[0], type(sys.exception())


def context_of_raised(x):
    try:
        raise KeyError(1)
    except KeyError as e:
        found = e
    return x + 1, type(found.__context__), found


def reraises(x):
    y = x + 1
    raise
    return y


@pytest.mark.parametrize("f", [reads_exc_info, context_of_raised, reraises])
def test_what_the_caller_handles_is_seen(f):
    compiled = framejit.optimize(f, backend="eager")

    def call(g, raised):
        try:
            if raised is not None:
                raise raised
        except Exception:
            return outcome(g)
        return outcome(g)

    def outcome(g):
        try:
            x, *rest = g(X)
        except Exception as e:
            return type(e), str(e), type(e.__context__)
        return [repr(getattr(r, "__context__", None)) if isinstance(r, BaseException) else r for r in rest]

    for raised in (None, ZeroDivisionError(1), None, KeyError(2), ZeroDivisionError(3)):
        assert call(compiled, raised) == call(f, raised)


def catches_no_exception_class(x):
    try:
        try:
            raise ValueError
        except object:
            return x + 1
    except TypeError as e:
        return x + 2, str(e)


def catches_a_tuple_with_others(x):
    try:
        try:
            raise ValueError
        except (KeyError, 3):  # noqa: B030
            return x + 1
    except TypeError as e:
        return x + 2, str(e)


@pytest.mark.parametrize("f", [catches_no_exception_class, catches_a_tuple_with_others])
def test_what_can_be_caught_is_checked(f):
    check(f, X, breaks=None)


def test_module_level_exception_gets_its_traceback():
    def make():
        error = KeyError("shared")

        def f(x):
            try:
                raise error
            except KeyError:
                return x + 1

        return f, lambda: len(traceback.extract_tb(error.__traceback__))

    check_state(make, (X,), (X,), breaks=None)


def test_traceback_of_an_exception_that_only_the_capture_raised():
    def frames(error):
        entry, found = error.__traceback__, []
        while entry is not None:
            code = entry.tb_frame.f_code
            found.append((code.co_name, entry.tb_lineno, entry.tb_frame.f_lineno, code.co_firstlineno))
            entry = entry.tb_next
        return found

    def f(x):
        def thrower():
            try:
                raise ValueError(1)
            except KeyError as unused:
                raise unused
            finally:
                len("end")

        error = None
        try:
            thrower()
        except ValueError as e:
            error = e
        return x + 1, error

    compiled = framejit.optimize(f, backend="eager")
    expected = [entry[:2] + entry[3:] for entry in frames(f(X)[1])]
    for _ in range(2):
        assert [entry[:2] + entry[3:] for entry in frames(compiled(X)[1])] == expected


class Asked(type):
    def __subclasscheck__(cls, other):
        raise RuntimeError("asked")


class AskedError(Exception, metaclass=Asked):
    pass


def test_metaclasses_are_not_asked_what_is_caught():
    def f(x):
        try:
            raise ValueError("kept")
        except AskedError:
            return x
        except ValueError as e:
            return x + 1, str(e), [].append.__qualname__

    check_state(lambda: f, (X,), (X,), breaks=None)


class Held:
    pass


class HoldingError(Exception):
    pass


def fails(x):
    held = Held()
    raise HoldingError(held, weakref.ref(held))


def raised_in_handler(x):
    try:
        try:
            fails(x)
        except HoldingError as e:
            seen = e.args[1]
            framejit.graph_break()
            raise KeyError  # noqa: B904  the context is what is tested
    except KeyError as e:
        e.__context__ = None
        return x + 1, seen() is None, sys.exc_info()[0]


def raised_in_finally(x):
    seen = []
    try:
        try:
            fails(x)
        except HoldingError as e:
            seen.append(e.args[1])
            raise
        finally:
            framejit.graph_break()
            raise KeyError
    except KeyError as e:
        e.__context__ = None
        return x + 1, seen[0]() is None, sys.exc_info()[0]


def raised_by_a_call_in_handler(x):
    def again():
        framejit.graph_break()
        raise KeyError

    try:
        try:
            fails(x)
        except HoldingError as e:
            seen = e.args[1]
            again()
    except KeyError as e:
        e.__context__ = None
        return x + 1, seen() is None, sys.exc_info()[0]


def raised_in_handler_of_a_handler(x):
    try:
        try:
            fails(x)
        except HoldingError as e:
            seen = e.args[1]
            try:
                int("no")
            except ValueError:
                framejit.graph_break()
                raise KeyError  # noqa: B904  the context is what is tested
    except KeyError as e:
        e.__context__.__context__ = None
        e.__context__ = None
        return x + 1, seen() is None, sys.exc_info()[0]


def raised_again_and_caught(x):
    try:
        fails(x)
    except HoldingError as e:
        seen = e.args[1]
        try:
            try:
                framejit.graph_break()
                raise
            finally:
                framejit.graph_break()
                raise
        except HoldingError:
            pass
    return x + 1, seen() is None, sys.exc_info()[0]


def raised_in_a_caller_of_the_handler(x):
    seen = []

    def handles():
        try:
            fails(x)
        except HoldingError as e:
            seen.append(e.args[1])
            framejit.graph_break()
            raise KeyError  # noqa: B904  the context is what is tested

    try:
        handles()
    except KeyError as e:
        e.__context__ = None
        return x + 1, seen[0]() is None, sys.exc_info()[0]


HANDLED = [
    raised_in_handler, raised_in_finally, raised_by_a_call_in_handler, raised_in_handler_of_a_handler,
    raised_again_and_caught, raised_in_a_caller_of_the_handler,
]


@pytest.mark.parametrize("f", HANDLED)
def test_what_was_handled_goes_with_its_handler(f):
    """An exception raised by a step inside of a handler goes on in that step, which no longer holds what the handler
    was for."""
    assert f(X)[1]
    check(f, X, graphs=None, breaks=None, ops=None)


def test_the_traceback_of_an_exception_that_was_raised_and_caught_inside_has_columns():
    def raising(t):
        return [t][0].missing + (
            1
        )

    def fn(x):
        y = x + 1
        try:
            try:
                raising(3)
            except AttributeError:
                raise ExceptionGroup("several", [ValueError(1), KeyError(2)]) from None
        except ExceptionGroup as e:
            group = e
        try:
            raising(4)
        except AttributeError as e:
            return y * 2, group, e
        return y, group, group

    def told(error):
        text = traceback.format_exception(error)
        places, entry = [], error.__traceback__
        while entry is not None:
            positions = list(entry.tb_frame.f_code.co_positions())[entry.tb_lasti // 2]
            places.append(
                (positions, entry.tb_lineno, entry.tb_frame.f_code.co_name, entry.tb_frame.f_code.co_qualname)
            )
            entry = entry.tb_next
        return text, places

    compiled = framejit.optimize(fn, backend="eager")
    for _ in range(2):
        assert [told(e) for e in compiled(torch.ones(2))[1:]] == [told(e) for e in fn(torch.ones(2))[1:]]
