"""functools.lru_cache with tensors as keys or tensors as results, which captured code puts into the cache: all is in
the graph."""

import functools
import gc
import weakref

import pytest
import torch

import framejit
from framejit.values.builtins.cached_function import put_result
from tests.side_effects.cached_twins import Twins, breaks_of

import forked

X = torch.tensor([1.0, 2.0, 3.0])


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
