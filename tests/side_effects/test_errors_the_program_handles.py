"""Operations that pass as shapes and dtypes, and raise for the numbers in their tensors: the program handles the
exception as in plain Python."""
import contextlib
import sys
import traceback

import pytest

from tests.side_effects.raising_calls import BAD, Manager, X, either_way, follow


@either_way
def test_except_block_gets_message_and_type(calls):
    def fn(x, i):
        try:
            return x[i] * 2
        except IndexError as e:
            return x - 1, type(e), str(e), e.__context__, e.__cause__

    follow(fn, *calls)


@either_way
def test_finally_runs_after_the_effects_before(calls):
    def fn(x, i, log):
        log.append("begun")
        try:
            y = x * 2
            log.append("doubled")
            return y[i]
        finally:
            log.append("done")

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_finally_with_a_return_swallows_it(calls):
    def fn(x, i):
        y = x + 1
        try:
            y = y[i]
        finally:
            return y * 2  # noqa: B012

    follow(fn, *calls)


@either_way
def test_nested_try_blocks(calls):
    def fn(x, i, log):
        try:
            try:
                y = x[i]
            except KeyError:
                log.append("wrong handler")
            finally:
                log.append("inner finally")
        except (LookupError, ValueError) as e:
            log.append(type(e).__name__)
            y = x[:2]
        else:
            log.append("else")
        return y + 1

    follow(fn, *[(*args, []) for args in calls])


@either_way
@pytest.mark.parametrize("swallow", [True, False])
def test_with_block(calls, swallow):
    def fn(x, i, log, swallow):
        y = x * 3
        with Manager(log, swallow):
            y = y[i]
            log.append("not for all")
        return y + 1

    follow(fn, *[(*args, [], swallow) for args in calls])


@contextlib.contextmanager
def noting(log):
    log.append("enter")
    try:
        yield
    except IndexError as e:
        log.append(str(e))
        raise ValueError("worse") from e
    finally:
        log.append("leave")


@either_way
def test_generator_based_context_manager(calls):
    def fn(x, i, log):
        try:
            with noting(log):
                return x[i] + 1
        except ValueError as e:
            return x, repr(e.__cause__), e.__context__ is e.__cause__

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_suppressed(calls):
    def fn(x, i):
        y = x * 2
        with contextlib.suppress(IndexError):
            y = y[i]
        return y

    follow(fn, *calls)


@either_way
def test_reraised_and_chained(calls):
    def fn(x, i, how):
        try:
            return x[i]
        except IndexError as e:
            if how == "bare":
                raise
            if how == "from":
                raise RuntimeError("lookup") from e
            raise RuntimeError("lookup")  # noqa: B904  the context is what is looked at

    for how in ("bare", "from", "implicit"):
        follow(fn, *[(*args, how) for args in calls])


@either_way
def test_an_exception_handled_outside_is_the_context(calls):
    def fn(x, i):
        try:
            raise KeyError("first")
        except KeyError:
            try:
                return x[i]
            except IndexError as e:
                return x + 1, repr(e.__context__)

    follow(fn, *calls)


def test_no_context_and_no_frames_of_anybody_else():
    import framejit

    def fn(x, i):
        y = x * 2
        return y[i] + 1

    compiled = framejit.optimize(fn)
    for _ in range(4):
        with pytest.raises(IndexError) as caught:
            compiled(X, BAD)
        frames = [
            (f.name, f.lineno - fn.__code__.co_firstlineno)
            for f in traceback.extract_tb(caught.value.__traceback__)[1:]
        ]
        assert frames == [("fn", 2)], frames
        assert caught.value.__context__ is None and caught.value.__cause__ is None
        assert sys.exception() is None


def test_a_caller_that_handles_something_is_the_context():
    import framejit

    def fn(x, i):
        return x[i] + 1

    compiled = framejit.optimize(fn)
    for _ in range(3):
        try:
            raise KeyError("outside")
        except KeyError as outside:
            with pytest.raises(IndexError) as caught:
                compiled(X, BAD)
            assert caught.value.__context__ is outside
            assert sys.exception() is outside
