"""Capture has a budget of instructions, seconds and memory; past it the call, or the frame, is left to Python, and that
is said once."""
import time

import pytest
import torch

import framejit
from framejit.errors import GraphBreakError

from support import CountingBackend, Pair, check, of_kind

X = torch.tensor([1.0, 2.0])
LONG = 10**6


def total(n):
    s = 0
    for i in range(n):
        s += i % 7
    return s


def test_a_long_call_is_made_for_real_and_the_graphs_around_it_stay():
    def fn(x, n):
        y = x + 1
        k = total(n)
        return y * k

    pair = check(fn, X, LONG, graphs=2, breaks=1)
    assert "without a tensor operation" in pair.breaks[0][2]
    assert len(of_kind(pair.log, "graph_break")) == 1


def loop(x, n):
    s = 0
    while s < n:
        s += 1
    return x + s


def generator(x, n):
    return x + sum(i & 1 for i in range(n))


def nested(x, n):
    def inner(n):
        return total(n)

    return x * inner(n)


def recursion(x, n):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return x + fib(21)


@pytest.mark.parametrize("fn", [loop, generator, nested, recursion])
def test_a_long_loop_without_tensors_ends_soon(fn):
    began = time.perf_counter()
    check(fn, X, LONG, graphs=None, breaks=None, ops=None)
    assert time.perf_counter() - began < 60  # without a budget minutes, or no end


def test_a_large_range_takes_no_memory():
    with framejit.config.patch(capture_steps=1000):
        check(lambda x, n: x + len([i for i in range(n)]), X, 5000, graphs=None, breaks=None, ops=None)
        check(lambda x, n: x + len(list(range(n))), X, 5000, graphs=None, breaks=None, ops=None)


def test_operations_between_instructions_keep_a_capture_going():
    def fn(x):
        for _ in range(30):
            x = x + total(20)
        return x

    with framejit.config.patch(capture_steps=1000):
        check(fn, X, graphs=1, ops=30)


def test_a_capture_has_a_limit_with_operations_too():
    def fn(x):
        for _ in range(1000):
            x = x + total(3)
        return x

    with framejit.config.patch(capture_steps=100):
        pair = Pair(lambda: fn)
        pair.call(X)
        pair.call(X, captures=False)
    assert pair.graphs < 10  # of the loop's parts, not of a thousand turns


@pytest.mark.parametrize("setting", [{"capture_seconds": 0}, {"capture_memory": 0}])
def test_seconds_and_memory(setting):
    def fn(x):
        kept = [[i] for i in range(20_000)]
        return x + len(kept)

    with framejit.config.patch(**setting):
        check(fn, X, graphs=None, breaks=None, ops=None)


def test_under_fullgraph_it_raises():
    with pytest.raises(GraphBreakError, match="instructions were captured without a tensor operation"):
        framejit.optimize(loop, backend=CountingBackend(), fullgraph=True)(X, LONG)


def ackermann(x, n):
    def value(m, n):
        return n + 1 if m == 0 else value(m - 1, 1) if n == 0 else value(m - 1, value(m, n - 1))

    return x * value(2, n)


def test_deep_recursion_on_numbers_is_one_call_made_for_real():
    """Taken apart where no more calls can be inlined, it was 64 frames at each call that returned."""
    pair = check(ackermann, X, 60, graphs=1, breaks=1)
    assert "calls deep" in pair.breaks[0][2]


def test_deep_recursion_on_tensors_is_taken_apart():
    def down(x, n):
        return x if n == 0 else down(x, n - 1) + 1

    check(lambda x, n: down(x, n), X, 80, graphs=None, breaks=None)


def sieve(x, n):
    prime = [True] * n
    for i in range(2, 400):
        if prime[i]:
            for j in range(i * i, n, i):
                prime[j] = False
    return x * sum(prime)


def test_writes_into_long_lists_cost_as_much_as_into_short_ones():
    seconds = []
    for n in (2_000, 200_000):
        began = time.thread_time()
        with framejit.config.patch(capture_steps=10_000):
            check(sieve, X, n, graphs=None, breaks=None, ops=None)
        seconds.append(time.thread_time() - began)
    assert seconds[1] < 20 * seconds[0]  # once 200 times as much


def test_errors_of_changes_to_lists_change_nothing():
    def fn(x, items):
        said = []
        for change in (
            lambda: items.__setitem__(9, 1), lambda: items.pop(9), lambda: [].pop(), lambda: items.__delitem__(9),
            lambda: items.__setitem__(slice(0, 3, 2), [1]), lambda: items.insert("a", 1),
        ):
            try:
                change()
            except (IndexError, ValueError, TypeError) as e:
                said.append(f"{type(e).__name__}: {e}")
        items += items
        items[1:2] = items
        del items[-1], items[::3]
        return x * len(items), said, items

    check(fn, X, [1, 2, 3], graphs=None, breaks=None)
