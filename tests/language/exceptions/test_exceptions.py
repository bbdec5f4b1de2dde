"""try/except/else/finally, raise from, chaining, custom exceptions, groups."""
import torch

from support import check

X = torch.tensor([1.0, 2.0])


class Custom(Exception):
    def __init__(self, code, note):
        super().__init__(f"{code}: {note}")
        self.code = code


def test_caught_inside():
    def fn(x, d):
        try:
            return x + d["a"]
        except KeyError as e:
            return x - 1, str(e)

    check(fn, X, {"a": 1}, changed=[(X, {})])


def test_else_and_finally_order():
    def fn(x, log, bad):
        try:
            log.append("try")
            if bad:
                raise ValueError("bad")
        except ValueError:
            log.append("except")
        else:
            log.append("else")
        finally:
            log.append("finally")
        return x + len(log)

    check(fn, X, [], False, changed=[(X, [], True)])


def test_finally_overrides_return():
    def fn(x):
        try:
            return x + 1
        finally:
            return x * 2  # noqa: B012

    check(fn, X)


def test_first_matching_handler_and_tuple_of_types():
    def fn(x, kind):
        try:
            raise kind("e")
        except (IndexError, KeyError):
            return x + 1
        except LookupError:
            return x + 2
        except Exception:
            return x + 3

    check(fn, X, KeyError, changed=[(X, LookupError), (X, TypeError)])


def test_uncaught_custom_exception_from_an_inlined_call():
    def inner(x):
        if x.shape[0] == 2:
            raise Custom(7, "two")
        return x

    def fn(x):
        y = x + 1
        return inner(y) * 2

    check(fn, X, raises=Custom)


def test_raise_from_and_suppression():
    def fn(x, how):
        try:
            try:
                raise KeyError("first")
            except KeyError as e:
                if how == "from":
                    raise ValueError("second") from e
                if how == "none":
                    raise ValueError("second") from None
                raise ValueError("second")  # noqa: B904 the implicit context is the point
        except ValueError as e:
            return x + 1, e.__cause__, e.__suppress_context__, type(e.__context__).__name__

    check(fn, X, "from", changed=[(X, "none"), (X, "implicit")])


def test_uncaught_chain_reaches_the_caller():
    def fn(x):
        y = x * 2
        try:
            {}["k"]
        except KeyError as e:
            raise Custom(1, "wrapped") from e
        return y

    check(fn, X, raises=Custom)


def test_bare_raise_reraises():
    def fn(x, log):
        try:
            try:
                raise Custom(3, "again")
            except Custom:
                log.append("seen")
                raise
        except Custom as e:
            return x + e.code

    check(fn, X, [])


def test_exception_variable_is_deleted_after_the_handler():
    def fn(x):
        e = "outer"
        try:
            raise ValueError
        except ValueError:
            y = x + 1
        try:
            return e
        except UnboundLocalError:
            return y

    check(fn, X)


def test_shape_error_of_torch_is_the_users_error():
    def fn(x):
        return x.reshape(5)

    check(fn, X, raises=RuntimeError)


def test_shape_error_of_torch_caught_by_the_user():
    def fn(x, y):
        try:
            return x @ y
        except RuntimeError:
            return x + 1

    check(fn, torch.randn(2, 3), torch.randn(2, 3), graphs=range(1, 3), breaks=range(0, 2))


def test_tensor_work_before_an_error_keeps_its_side_effects():
    def fn(x, log):
        x.add_(1)
        log.append(x * 2)
        raise Custom(1, "after the work")

    check(fn, X, [], raises=Custom)


def test_assertion_error_with_message():
    def fn(x, n):
        if n < 0:
            raise AssertionError(f"negative: {n}")
        return x + n

    check(fn, X, 1, changed=[(X, -1)])


def test_errors_of_builtins_in_python_code():
    def fn(x, f):
        y = x + 1
        f()
        return y

    for bad in (
        lambda: int("x"), lambda: [].pop(), lambda: {}.popitem(), lambda: None.a, lambda: 1 + "a",
        lambda: next(iter(())),
    ):
        check(fn, X, bad, raises=Exception, calls=1)


def test_exception_in_a_loop_continues():
    def fn(x, values):
        for v in values:
            try:
                x = x + 10 // v
            except ZeroDivisionError:
                continue
        return x

    check(fn, X, [1, 0, 5])


def test_exception_group_and_except_star():
    def fn(x):
        hit = []
        try:
            raise ExceptionGroup("g", [ValueError("v"), KeyError("k")])
        except* ValueError as e:
            hit.append(len(e.exceptions))
        except* KeyError:
            hit.append("key")
        return x + 1, hit

    check(fn, X, graphs=range(0, 3), breaks=range(0, 4), ops=None)


def test_add_note_and_args():
    def fn(x):
        try:
            e = Custom(4, "noted")
            e.add_note("hint")
            raise e
        except Custom as c:
            return x + c.code, c.args, c.__notes__

    check(fn, X)


def test_stopiteration_and_generator_exit_are_not_swallowed():
    def fn(x):
        it = iter([x])
        next(it)
        try:
            next(it)
        except StopIteration as e:
            return x + 1, e.value

    check(fn, X)


def test_a_new_exception_without_traceback():
    def fn(x):
        try:
            raise ValueError("q").with_traceback(None)
        except ValueError as e:
            return x + 1, e.__traceback__ is None, str(e)

    check(fn, X, fullgraph=True)


def test_classes_that_are_caught_come_with_the_call():
    def fn(x, n, caught=(KeyError, ValueError), also=()):
        out = []
        for i in range(3):
            try:
                try:
                    if i < n:
                        raise (ValueError, IndexError)[i % 2](i)
                except caught as e:
                    out.append((type(e).__name__, i))
                else:
                    return x + i, out
            except also:
                out.append("also")
        return x, out

    changed = [(X, 1), (X, 2), (X, 2, (ValueError, IndexError)), (X, 1, ValueError, (KeyError,))]
    pair = check(fn, X, 0, changed=changed)
    for caught in ((), (KeyError,), [ValueError], (ValueError, 3), ((ValueError,),), "no", LookupError):
        pair.call(X, 2, caught)
        pair.call(X, 2, caught, (LookupError, ArithmeticError))
    pair.expect(breaks=None)
