"""functools.lru_cache: results, effects, exceptions, counters and contents of the cache are those of plain Python, at
every call."""

import functools
import gc
import weakref

import pytest
import torch

import framejit
from framejit.events import subscribe
from framejit.values.builtins.cached_function import put_result

import forked
from support import Pair

X = torch.tensor([1.0, 2.0, 3.0])


def outcome(fn, *args):
    try:
        result = fn(*args)
    except Exception as e:
        return type(e), str(e)
    return result.tolist() if isinstance(result, torch.Tensor) else result


class Twins:
    """A program as plain Python and optimized, each with a cache and a log of its own."""

    def __init__(self, make):
        self.plain, self.plain_cached, self.plain_log = self._made(make)
        fn, self.cached, self.log = self._made(make)
        self.optimized = framejit.optimize(fn, backend="eager")

    @staticmethod
    def _made(make):
        log = []
        fn, cached = make(log)
        return fn, cached, log

    def call(self, *args):
        assert outcome(self.optimized, *args) == outcome(self.plain, *args)
        assert self.optimized.entries and not self.optimized.skip  # it was captured, not left to plain Python
        self.check()

    def each(self, action):
        action(self.plain_cached)
        action(self.cached)

    def check(self):
        assert self.log == self.plain_log
        assert self.cached.cache_info() == self.plain_cached.cache_info()


def breaks_of(twins, *args):
    """How many graph breaks capturing this call has."""
    seen = []
    unsubscribe = subscribe(lambda event: seen.append(event) if event.kind == "graph_break" else None)
    try:
        twins.call(*args)
    finally:
        unsubscribe()
    return len(seen)


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


@pytest.mark.parametrize("typed", [False, True])
def test_keys_that_are_equal(typed):
    def make(log):
        @functools.lru_cache(typed=typed)
        def name(v, **kwargs):
            return f"{v!r}{kwargs}"

        return lambda x: (
            x + 1, name(1), name(1.0), name(True), name(1, a=1, b=2), name(1, b=2, a=1), name(1, a=1.0, b=2),
            name("1"), name(-0.0),
        ), name

    def compared(fn):
        return outcome(fn, X)[1:]

    twins = Twins(make)
    for _ in range(3):
        assert compared(twins.optimized) == compared(twins.plain)
        twins.check()


def test_methods_and_their_objects_die():
    class Model:
        def __init__(self, k):
            self.k = k

        @functools.lru_cache(maxsize=4)  # noqa: B019
        def scaled(self, n):
            return self.k * n

    fn = framejit.optimize(lambda m, x: x * m.scaled(3), backend="eager")
    first, second = Model(1), Model(2)
    for _ in range(3):
        assert fn(first, X).tolist() == [3.0, 6.0, 9.0]
        assert fn(second, X).tolist() == [6.0, 12.0, 18.0]
    assert Model.scaled.cache_info()[:2] == (4, 2)
    first.k = 5
    assert fn(first, X).tolist() == [3.0, 6.0, 9.0]
    gone = weakref.ref(first)
    Model.scaled.cache_clear()
    del first
    gc.collect()
    assert gone() is None
    assert fn(second, X).tolist() == [6.0, 12.0, 18.0]


def test_tensors_as_arguments():
    def make(log):
        @functools.lru_cache
        def total(t):
            log.append(tuple(t.shape))
            return t.sum().item()

        return lambda x: x + total(x) + total(x), total

    twins = Twins(make)
    a, b = torch.ones(3), torch.ones(3)
    for x in (a, a, b):
        twins.call(x)
    a.add_(1)
    twins.call(a)  # the cache knows the tensor, not its contents
    assert twins.log == [(3,), (3,)]


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


def test_numbers_that_change():
    def make(log):
        @functools.lru_cache
        def double(n):
            log.append(n)
            return n * 2

        return lambda x, n: x + double(n), double

    twins = Twins(make)
    for n in (1, 2, 3, 4, 3, 5, 6, 7, 8, 9, 10, 11, 2):
        twins.call(X, n)


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


@pytest.mark.parametrize("argument", [[1], {"a": 1}])
def test_arguments_without_a_hash(argument):
    def make(log):
        @functools.lru_cache
        def size(items):
            log.append("never")
            return len(items)

        return lambda x: x + size(argument), size

    twins = Twins(make)
    for _ in range(2):
        twins.call(X)


def test_comparison_of_their_own_runs_no_more_often():
    def make(log):
        class Key:
            def __hash__(self):
                log.append("hash")
                return 1

            def __eq__(self, other):
                log.append("eq")
                return True

        keys = Key(), Key()

        @functools.lru_cache
        def value(key):
            return 3

        return lambda x: x + value(keys[0]) + value(keys[1]), value

    twins = Twins(make)
    for _ in range(3):
        twins.call(X)


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


# ---- tensors as keys, tensors as results: in the graph -------------------------------------------


@pytest.mark.parametrize("maxsize", [None, 1, 2, 128])
def test_each_call_brings_another_tensor(maxsize):
    def make(log):
        @functools.lru_cache(maxsize)
        def doubled(t):
            log.append(tuple(t.shape))
            return t * 2

        return lambda x: doubled(x) + doubled(x).sum(), doubled

    twins = Twins(make)
    tensors = [torch.ones(3) * n for n in range(5)]
    assert breaks_of(twins, tensors[0]) == 0
    for x in tensors[1:]:
        twins.call(x)
    assert len(twins.optimized.entries) == 1
    for x in (tensors[4], tensors[4], tensors[3], tensors[0], tensors[4]):
        twins.call(x)
    tensors[4].add_(1)
    twins.call(tensors[4])  # the cache knows the tensor, not its contents
    twins.each(lambda cached: cached.cache_clear())
    twins.call(tensors[4])


@pytest.mark.parametrize("maxsize", [None, 1, 2, 3])
@pytest.mark.parametrize("typed", [False, True])
def test_several_tensors_that_may_be_one(maxsize, typed):
    def make(log):
        @functools.lru_cache(maxsize, typed=typed)
        def doubled(t, by=2):
            log.append(by)
            return t * by

        return lambda x, y: doubled(x) + doubled(y, by=3) * doubled(x) + doubled(y) - doubled(by=2, t=x), doubled

    twins = Twins(make)
    a, b, c = torch.ones(3), torch.ones(3) * 2, torch.ones(3) * 3
    for pair in ((a, b), (b, a), (c, c), (a, a), (b, c), (torch.ones(3), torch.zeros(3)), (a, b), (c, c)):
        twins.call(*pair)


def test_several_tensors_in_one_key():
    def make(log):
        @functools.lru_cache
        def scaled(t, weight, by=1):
            log.append(by)
            return t * weight * by

        return lambda x, y: scaled(x, y) + scaled(x, x) + scaled(y, x, by=2), scaled

    twins = Twins(make)
    a, b, c = torch.ones(3), torch.ones(3) * 2, torch.ones(3) * 3
    for pair in ((a, b), (b, b), (c, b), (a, b), (torch.ones(3), b), (torch.zeros(3), torch.zeros(3)), (a, a)):
        twins.call(*pair)


def test_the_cache_and_the_program_have_one_result():
    @functools.lru_cache
    def doubled(t):
        return [t * 2]

    def fn(x):
        kept = doubled(x)
        kept.append(len(kept))
        return kept

    optimized = framejit.optimize(fn, backend="eager", fullgraph=True)
    x, y = torch.ones(3), torch.ones(3)
    for t in (x, y, x):
        assert optimized(t) is doubled(t)
    assert len(doubled(x)) == 3 and len(doubled(y)) == 2 and doubled(y)[0].tolist() == [2.0, 2.0, 2.0]


def test_a_tensor_and_an_object_that_are_made_inside():
    class Config:
        pass

    @functools.lru_cache
    def made(t, config):
        return t + config.by

    def fn(x):
        config = Config()
        config.by = 3
        y = x * 2
        return made(y, config) + made(y, config), y, config

    optimized = framejit.optimize(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        result, y, config = optimized(X)
        assert result.tolist() == fn(X)[0].tolist()
        hits = made.cache_info().hits
        assert made(y, config).tolist() == (X * 2 + 3).tolist() and made.cache_info().hits == hits + 1
    assert len(optimized.entries) == 1


def test_tables_that_are_made_at_the_first_call():
    class Rotary:
        def __init__(self):
            self.base = torch.arange(4.0)

        @functools.lru_cache(maxsize=2)  # noqa: B019
        def table(self, n):
            angles = torch.arange(float(n))[:, None] * self.base
            return angles.cos(), angles.sin()

    def fn(rotary, x, n):
        cos, sin = rotary.table(n)
        return x * cos + sin

    rotary, x = Rotary(), torch.ones(4)
    optimized = framejit.optimize(fn, backend="eager")
    for n in (2, 2, 3, 2, 5, 3, 2):
        before = Rotary.table.cache_info()
        torch.testing.assert_close(
            optimized(rotary, x, n), x * (torch.arange(float(n))[:, None] * rotary.base).cos() + rotary.table(n)[1]
        )
        assert Rotary.table.cache_info().hits > before.hits and Rotary.table.cache_info().currsize <= 2
        assert rotary.table(n)[0] is rotary.table(n)[0]


def test_what_the_function_changed_is_changed_once():
    def make(log):
        @functools.lru_cache
        def noted(t):
            log.append(len(log))
            return t + len(log)

        def fn(x):
            log.append("before")
            y = noted(x)
            log.append("after")
            return y + noted(x)

        return fn, noted

    twins = Twins(make)
    a, b = torch.ones(3), torch.zeros(3)
    for x in (a, b, a, a, b, torch.ones(3)):
        twins.call(x)


def test_a_function_of_tensors_that_raises():
    def make(log):
        @functools.lru_cache
        def checked(t, i):
            log.append("run")
            if t.dim() != 1:
                raise ValueError("no vector")
            return t[i] * 2

        def fn(x, i):
            try:
                return checked(x, 0) + checked(x, i)
            except ValueError as e:
                return x - len(str(e))

        return fn, checked

    twins = Twins(make)
    for _ in range(2):
        twins.call(torch.ones(2, 2), 1)
        twins.call(torch.ones(3), 1)
        twins.call(torch.ones(3), 5)  # out of range


def test_a_graph_that_raises_has_put_nothing_into_the_cache():
    def make(log):
        @functools.lru_cache
        def taken(t, i):
            return t[i]

        return lambda x, i: taken(x, i) + x.sum(), taken

    twins = Twins(make)
    x, good, bad = torch.ones(3), torch.tensor([1]), torch.tensor([7])
    for index in (good, bad, torch.tensor([2]), bad, good):
        twins.call(x, index)


def test_nothing_but_the_cache_keeps_tensors_alive():
    @functools.lru_cache
    def doubled(t):
        return t * 2

    optimized = framejit.optimize(lambda x: doubled(x) + 1, backend="eager", fullgraph=True)
    x = torch.ones(3)
    gone = weakref.ref(x), weakref.ref(doubled(x))
    for t in (x, torch.zeros(3), x):
        optimized(t)
    del x, t
    assert gone[0]() is not None and gone[1]() is not None
    doubled.cache_clear()
    gc.collect()
    assert gone[0]() is None and gone[1]() is None
    assert optimized(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]


def test_calls_made_while_a_result_is_put_in():
    calls = []

    class Key:
        def __hash__(self):
            calls.append(function(5))
            return 1

    @functools.lru_cache
    def function(key):
        return f"of {key!r}"[:4] if isinstance(key, int) else "never"

    key = Key()
    put_result(function, "known", key)
    assert calls == ["of 5"] and function(5) == "of 5" and function(key) == "known" and function(6) == "of 6"
    assert function.cache_info()[1:] == (3, 128, 3)


WITH_AN_AUDIT_HOOK = """
import functools, sys, torch, framejit
told = set()

def hook(event, args):
    told.add(event)

@functools.lru_cache
def doubled(t):
    return [t * 2]

def fn(x):
    kept = doubled(x)
    kept.append(len(kept))
    return kept

optimized = framejit.optimize(fn, backend="eager", fullgraph=True)
sys.addaudithook(hook)
x, y = torch.ones(3), torch.ones(3)
for t in (x, y, x):
    assert optimized(t) is doubled(t)
assert "builtins.id" in told  # of a tensor's hash, which the cache asks for while the compiled function runs
"""


def test_under_fullgraph_real_calls_may_meet_audit_hooks(tmp_path):
    """Functions that have nothing to do with tensors, called by the interpreter wherever it is. One can't be taken away
    again."""
    program = tmp_path / "program.py"
    program.write_text(WITH_AN_AUDIT_HOOK)
    done = forked.run([program], timeout=300)
    assert done.returncode == 0, done.stderr


def test_sizes_and_tuples_as_arguments():
    def make():
        calls = []

        @functools.cache
        def weight(shape, kind=(str, int)):
            calls.append(shape)
            return torch.ones(shape) * len(kind)

        @functools.lru_cache
        def triple(n):
            calls.append(n)
            return n * 3

        def fn(x):
            return x * weight(tuple(x.shape)) + weight(x.shape, kind=(str, "q")) + triple(x.shape[0])

        return fn, lambda: (list(calls), weight.cache_info(), triple.cache_info())

    pair = Pair(make, fullgraph=True)
    for n in (2, 3, 4, 5, 3, 2):
        pair.call(torch.ones(n))
