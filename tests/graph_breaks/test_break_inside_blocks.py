"""Breaks inside with, for, while, try, except, finally, comprehensions, generators: the open blocks are rebuilt."""
import contextlib

import pytest
import torch

import framejit

from support import check

X = torch.tensor([1.0, 2.0, 3.0])
SOME = range(2, 8)


class Log(list):
    def __enter__(self):
        self.append("enter")
        return self

    def __exit__(self, kind, value, tb):
        self.append(kind.__name__ if kind else "exit")


def test_inside_with():
    def fn(x, log):
        with log as same:
            y = x + 1
            same.append(y.sum().repeat(17).tolist()[0])
            y = y * 2
        return y - 1

    check(fn, X, Log(), graphs=range(2, 4), breaks=1)


def test_inside_nested_with():
    def fn(x, a, b):
        with a:
            x = x + 1
            with b:
                x = x * 2
                framejit.graph_break()
                x = x - 3
            x = x / 4
        return x

    check(fn, X, Log(), Log(), graphs=range(2, 4), breaks=1)


def test_exception_after_a_break_inside_with_reaches_the_manager():
    def fn(x, log):
        with log:
            y = x + 1
            framejit.graph_break()
            y = y * 2
            raise KeyError("inside")
        return y

    check(fn, X, Log(), raises=KeyError)


def test_inside_no_grad():
    def fn(w):
        with torch.no_grad():
            y = w * 2
            framejit.graph_break()
            z = y * w
            inner = torch.is_grad_enabled()
        return y, z, w * 3, inner, torch.is_grad_enabled()

    check(fn, X.clone().requires_grad_(), graphs=2, breaks=1)


def test_inside_autocast():
    def fn(a, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            c = a @ b
            framejit.graph_break()
            d = c @ b
        return d, a @ b

    check(fn, torch.randn(3, 3), torch.randn(3, 3), graphs=2, breaks=1)


def test_inside_generator_based_manager():
    @contextlib.contextmanager
    def manager(log):
        log.append("in")
        try:
            yield 2
        finally:
            log.append("out")

    def fn(x, log):
        with manager(log) as k:
            y = x * k
            framejit.graph_break()
            y = y + 1
        return y * 2

    check(fn, X, [], graphs=SOME, breaks=range(1, 4))


def test_inside_for_over_range():
    def fn(x):
        for i in range(4):
            x = x + i
            framejit.graph_break()
            x = x * 2
        return x - 1

    check(fn, X, graphs=range(2, 11), breaks=1)


def test_inside_for_over_list_and_enumerate():
    def fn(x, items):
        for i, k in enumerate(items):
            x = x * k
            items[i] = x.sum().repeat(17).tolist()[0]
        return x + 1

    check(fn, X, [1, 2, 3], graphs=SOME, breaks=range(1, 3))


def test_inside_for_with_else_break_and_continue():
    def fn(x, stop):
        for i in range(6):
            x = x + 1
            if (x.sum() > stop).repeat(17).tolist()[0]:
                break
            if i % 2:
                continue
            x = x * 2
        else:
            x = x - 100
        return x

    check(fn, X, 40.0, graphs=SOME, breaks=range(1, 3), changed=[(X, 1e9)])


def test_inside_while():
    def fn(x, n):
        while n:
            x = x + 1
            framejit.graph_break()
            x = x * 2
            n -= 1
        return x

    check(fn, X, 3, graphs=SOME, breaks=1)


def test_inside_try_with_else_and_finally():
    def fn(x, log):
        try:
            y = x + 1
            framejit.graph_break()
            y = y * 2
        except ValueError:
            log.append("except")
        else:
            log.append("else")
            y = y - 3
        finally:
            log.append("finally")
        return y + 1

    check(fn, X, [], graphs=2, breaks=1)


def test_exception_raised_after_a_break_inside_try():
    def fn(x, d):
        try:
            y = x + 1
            framejit.graph_break()
            y = y * d["k"]
        except KeyError as e:
            y = x - 1
            return y, str(e)
        return y * 2

    check(fn, X, {"k": 2}, graphs=2, breaks=1, changed=[(X, {})])


def test_breaking_instruction_itself_raises_inside_try():
    def fn(x, text):
        try:
            y = x + 1
            n = float(text + str(y.sum().repeat(17).tolist()[0])[:0])
        except ValueError:
            return x * 3
        return y * n

    check(fn, X, "2", graphs=SOME, breaks=range(1, 3), changed=[(X, "two")])


def test_inside_except_handler():
    def fn(x, d):
        try:
            x = x + d["k"]
        except KeyError as e:
            y = x * 2
            framejit.graph_break()
            return y + 1, e.args
        return x

    check(fn, X, {}, graphs=2, breaks=1)


def test_bare_raise_after_a_break_in_a_handler():
    def fn(x):
        try:
            y = x + 1
            raise ValueError("first")
        except ValueError:
            framejit.graph_break()
            y = y * 2
            raise

    check(fn, X, raises=ValueError, calls=1)


def test_context_of_an_exception_raised_after_a_break_in_a_handler():
    def fn(x):
        try:
            raise ValueError("first")
        except ValueError:
            y = x + 1
            framejit.graph_break()
            raise KeyError(y.shape[0])  # noqa: B904

    check(fn, X, raises=KeyError, calls=1)


def test_inside_finally():
    def fn(x, log):
        try:
            x = x + 1
        finally:
            x = x * 2
            framejit.graph_break()
            x = x - 1
            log.append("done")
        return x

    check(fn, X, [], graphs=2, breaks=1)


def test_inside_finally_while_an_exception_is_in_flight():
    def fn(x, log):
        try:
            y = x + 1
            raise KeyError("k")
        finally:
            framejit.graph_break()
            log.append(y * 2)

    check(fn, X, [], raises=KeyError, calls=1)


def test_return_inside_try_with_breaking_finally():
    def fn(x, log):
        try:
            return x + 1
        finally:
            log.append((x * 2).sum().repeat(17).tolist()[0])

    check(fn, X, [], graphs=range(1, 4), breaks=range(1, 3))


def test_inside_a_list_comprehension():
    check(
        lambda x: [(x * i).sum().repeat(17).tolist()[0] for i in range(3)] + [x + 1], X, graphs=SOME,
        breaks=range(1, 3)
    )


def test_inside_a_generator_expression():
    check(
        lambda x: (sum((x * i).sum().repeat(17).tolist()[0] for i in range(3)), x + 1), X, graphs=range(1, 8),
        breaks=range(1, 4)
    )


def test_inside_a_generator():
    def values(x):
        for i in range(3):
            y = x * i
            yield y.sum().repeat(17).tolist()[0]

    def fn(x):
        out = [v for v in values(x)]
        return x + out[-1], out

    check(fn, X, graphs=range(1, 8), breaks=range(1, 4))


def test_inside_a_lambda_in_a_dict_display():
    check(lambda x: {"a": x + 1, "b": (lambda t: t.repeat(17).tolist()[0])(x.sum()), "c": x * 2}, X, graphs=2, breaks=1)


def test_in_the_middle_of_an_expression_keeps_the_stack():
    check(
        lambda x: (x + 1, x * 2, [x - 1, (x * 3).sum().repeat(17).tolist()[0], x / 2], {"k": x.sin()}), X, graphs=2,
        breaks=1
    )


def test_in_the_middle_of_a_call_with_keywords():
    check(lambda x: torch.add(x + 1, (x * 2).sum().repeat(17).tolist()[0], alpha=x.shape[0]), X, graphs=2, breaks=1)


def test_in_an_f_string():
    check(lambda x: (f"a{x.shape[0]}b{(x + 1).sum().repeat(17).tolist()[0]:.1f}c", x * 2), X, graphs=2, breaks=1)


def test_in_the_middle_of_an_unpacking():
    def fn(x):
        a, b, c = x + 1, (x * 2).sum().repeat(17).tolist()[0], x * 3
        return a * b + c

    check(fn, X, graphs=2, breaks=1)


def test_inside_a_class_body_made_in_the_function():
    def fn(x):
        y = x + 1

        class Made:
            n = y.sum().repeat(17).tolist()[0]

        return y * Made.n

    check(fn, X, graphs=range(1, 4), breaks=range(1, 4), calls=1)  # a new class for each call


def within_finally(n, reached):
    framejit.graph_break()
    reached[0] = max(reached[0], n)
    try:
        within_finally(n + 1, reached)
    finally:
        pass


def within_except(n, reached):
    framejit.graph_break()
    reached[0] = max(reached[0], n)
    try:
        raise KeyError
    except KeyError:
        within_except(n + 1, reached)


@pytest.mark.parametrize("fn", [within_finally, within_except])
def test_calls_in_blocks_may_go_as_deep_as_in_plain_python(fn):
    deepest = []
    for function in (fn, framejit.optimize(fn, backend="eager")):
        for _ in range(2):  # the first call captures, which takes some levels more
            reached = [0]
            with pytest.raises(RecursionError):
                function(0, reached)
        deepest.append(reached[0])
    assert deepest[1] > 0.95 * deepest[0], deepest
