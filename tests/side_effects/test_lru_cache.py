"""functools.lru_cache: results, effects, exceptions, counters and contents of the cache are those of plain Python, at
every call."""

import functools

import pytest
import torch

import framejit
from tests.side_effects.cached_twins import Twins, breaks_of

X = torch.tensor([1.0, 2.0, 3.0])


def test_a_pure_function_is_in_the_graph_at_once():
    def make(log):
        @functools.lru_cache
        def scale(n, by=2):
            return n * by

        return lambda x: x * scale(3) + scale(3) + scale(4, by=5), scale

    twins = Twins(make)
    assert breaks_of(twins, X) == 0
    for _ in range(3):
        twins.call(X)
    twins.each(lambda cached: cached.cache_clear())
    twins.call(X)
    assert len(twins.optimized.entries) == 1


def test_effects_happen_once():
    def make(log):
        @functools.lru_cache
        def noted(n):
            log.append(n)
            return n + 1

        return lambda x: x + noted(3) + noted(4) + noted(3), noted

    twins = Twins(make)
    for _ in range(3):
        twins.call(X)
    assert breaks_of(twins, X) == 0
    twins.each(lambda cached: cached.cache_clear())
    twins.call(X)
    assert twins.log == [3, 4, 3, 4]


@pytest.mark.parametrize("caught", [False, True])
def test_exceptions_are_not_cached(caught):
    def make(log):
        @functools.lru_cache
        def fails(n):
            log.append(n)
            raise ValueError(f"no {n}")

        def catching(x):
            y = x * 2
            try:
                return y + fails(3)
            except ValueError as e:
                return y - len(str(e))

        return (catching if caught else lambda x: x * 2 + fails(3)), fails

    twins = Twins(make)
    for n in range(1, 4):
        twins.call(X)
        assert twins.log == [3] * n


def test_a_function_that_raises_at_first():
    def make(log):
        @functools.lru_cache
        def ready(n):
            log.append(n)
            if len(log) < 3:
                raise RuntimeError("not yet")
            return n

        return lambda x: x + ready(5), ready

    twins = Twins(make)
    for _ in range(6):
        twins.call(X)
    assert twins.log == [5, 5, 5]
    assert breaks_of(twins, X) == 0


def test_the_object_in_the_cache_is_shared():
    def make(log):
        @functools.lru_cache
        def shared(n):
            return [n]

        def fn(x):
            items = shared(1)
            items.append(len(items))
            return x + sum(items)

        return fn, shared

    twins = Twins(make)
    for _ in range(4):
        twins.call(X)
    assert twins.cached(1) == twins.plain_cached(1) == [1, 1, 2, 3, 4]
    identity = framejit.optimize(lambda x: (x + 1, twins.cached(1)), backend="eager")
    assert identity(X)[1] is twins.cached(1) and identity(X)[1] is twins.cached(1)


def test_tensors_in_the_cache():
    def make(log):
        @functools.lru_cache
        def table(n):
            log.append(n)
            return torch.arange(n) + torch.rand(n)

        def fn(x):
            return (x - table(3)) + (table(3) - table(3))

        return fn, table

    torch.manual_seed(0)
    _, plain, _ = Twins._made(make)
    twins = Twins(make)
    torch.manual_seed(0)
    expected = plain(3)
    torch.manual_seed(0)
    for _ in range(3):
        torch.testing.assert_close(twins.optimized(X), X - expected)
    assert twins.log == [3] and twins.cached.cache_info()[:2] == (8, 1)
    twins.cached(3).add_(1)  # the one object, changed in place
    torch.testing.assert_close(twins.optimized(X), X - expected - 1)
    assert len(twins.optimized.entries) == 2


@pytest.mark.parametrize("maxsize", [0, 1, 2, 3, None])
def test_results_are_driven_out(maxsize):
    def make(log):
        @functools.lru_cache(maxsize)
        def noted(n):
            log.append(n)
            return n * 10

        def fn(x, n):
            return x + noted(1) + noted(n) + noted(1) + noted(2)

        return fn, noted

    twins = Twins(make)
    for n in (1, 3, 3, 2, 1, 4, 4, 1):
        twins.call(X, n)


@pytest.mark.parametrize("maxsize", [0, 1, 2, 3, None])
def test_pure_results_are_driven_out(maxsize):
    def make(log):
        @functools.lru_cache(maxsize)
        def ten(n):
            return n * 10

        return lambda x, n: x + ten(1) + ten(n) + ten(1) + ten(2), ten

    twins = Twins(make)
    for n in (1, 3, 3, 2, 1, 4, 4, 1, 2):
        twins.call(X, n)
        twins.each(lambda cached: cached(7))


STATE = 1


def test_a_stale_result_stays(monkeypatch):
    def make(log):
        @functools.lru_cache
        def state():
            return STATE

        return lambda x: x + state(), state

    twins = Twins(make)
    twins.call(X)
    monkeypatch.setitem(globals(), "STATE", 2)
    twins.call(X)  # the cache still says 1
    twins.each(lambda cached: cached.cache_clear())
    twins.call(X)
    monkeypatch.setitem(globals(), "STATE", 1)
    twins.call(X)  # and now 2, though the first entry's assumption about STATE holds again


def test_state_that_the_frame_has_changed_before():
    def make(log):
        @functools.lru_cache
        def seen(key):
            return len(log), torch.is_grad_enabled()

        def fn(x):
            log.append("call")
            a = seen(1)
            log.append("between")
            with torch.no_grad():
                b = seen(2)
            log.append("after")
            return x + a[0] + b[0] + a[1] * 10 + b[1] * 100

        return fn, seen

    twins = Twins(make)
    for _ in range(3):
        twins.call(X)
    assert twins.cached(1) == twins.plain_cached(1) and twins.cached(2) == twins.plain_cached(2)


def test_state_that_the_frame_changes_afterwards():
    def make(log):
        @functools.lru_cache
        def seen():
            return len(log)

        def fn(x):
            a = seen()
            log.append("call")
            return x + a

        return fn, seen

    twins = Twins(make)
    for _ in range(3):
        twins.call(X)
    assert twins.cached() == 0


def test_cached_functions_that_call_each_other():
    def make(log):
        @functools.lru_cache(None)
        def fibonacci(n):
            return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

        return lambda x, n: x + fibonacci(n) + fibonacci(3), fibonacci

    twins = Twins(make)
    for n in (6, 6, 8, 2):
        twins.call(X, n)
    fresh = Twins(make)
    assert breaks_of(fresh, X, 6) == 0


def test_a_result_that_changes_when_it_is_made_anew():
    def make(log):
        @functools.lru_cache
        def count():
            log.append(1)
            return len(log)

        return lambda x: x + count(), count

    twins = Twins(make)
    for _ in range(6):
        twins.call(X)
        twins.call(X)
        twins.each(lambda cached: cached.cache_clear())


def test_a_message_that_is_written_once(capsys):
    def make(log):
        @functools.lru_cache
        def say_once(text):
            print(text)

        def fn(x):
            y = x * 2
            say_once("careful")
            return y + 1

        return fn, say_once

    twins = Twins(make)
    assert breaks_of(twins, X) == 1
    assert capsys.readouterr().out == "careful\n" * 2  # one from each twin
    assert breaks_of(twins, X) == 0
    twins.call(X)
    assert capsys.readouterr().out == ""


def test_under_fullgraph_once_it_is_warm():
    calls = []

    @functools.lru_cache
    def noted(n):
        calls.append(n)
        return n

    noted(3)
    fn = framejit.optimize(lambda x: x + noted(3), backend="eager", fullgraph=True)
    assert fn(X).tolist() == fn(X).tolist() == [4.0, 5.0, 6.0]
    assert calls == [3] and noted.cache_info()[:2] == (2, 1)


def test_an_attribute_that_comes_and_goes():
    @functools.cache
    def double(n):
        return n * 2

    def fn(x):
        return x * double(2) * getattr(double, "factor", 1), hasattr(double, "factor")

    compiled = framejit.optimize(fn, backend="eager")
    for factor in (None, 3, 3, None, 4):
        vars(double).pop("factor", None)
        if factor is not None:
            double.factor = factor
        expected, got = fn(torch.ones(2)), compiled(torch.ones(2))
        assert torch.equal(expected[0], got[0]) and expected[1] == got[1]
