"""Lists and deques whose length changes from call to call, of which only the ends are read and changed: the last losses
of a history, a queue, a stack, a window that a bound keeps short."""

from __future__ import annotations

import zlib
from collections import deque

import numpy as np
import pytest
import torch

from support import Pair

X = torch.arange(3.0)
SUMS_ROUND_ONCE = sum([1.0, 1e100, 1.0, -1e100]) == 2.0
"""From CPython 3.12 on, where the sum of a longer list and of a number that was just read has to be known."""


def last_ones(items):
    items.extend([1.0, 2.0, 3.5])

    def fn(x, n):
        items.append(x.sum().item())
        recent = items[-3:]
        return x + 1, items[-1] - items[-2], sum(recent) / len(recent), items[-4]

    return fn


def records(items):
    def fn(x, n):
        items.append({"step": n, "x": x * 2})
        return items[-1]["x"] + len(items), items[-1]["step"], items[-1] is items[-1]

    return fn


def queue(items):
    first = items.popleft if isinstance(items, deque) else lambda: items.pop(0)

    def fn(x, n):
        items.append(x * n)
        items.append(x + n)
        out = first()
        return out + len(items), items[0], items[-1]

    return fn


def stack(items):
    def fn(x, n):
        items.append(x)
        items.append(n)
        items.append(n + 1)
        return x * items.pop() + items.pop() + len(items), items[-1]

    return fn


def taken_and_put_back(items):
    items.extend([[0], [1]])

    def fn(x, n):
        size = len(items)
        last = items.pop()
        last.append(n)
        items.append(last)
        items.append(last)
        return x + size, items[-2] is last, items[0] is last

    return fn


def emptied_and_over(items):
    def fn(x, n):
        items.append(n)
        out = []
        while items:
            out.append(items.pop())
        try:
            items.pop()
        except IndexError as e:
            out.append(str(e))
        return x + len(out), out

    return fn


def extended(items):
    def fn(x, n):
        items.extend([n, n + 1])
        items.extend(k * 2 for k in range(2))
        return x + len(items), items[-1]

    return fn


def extended_by_itself(items):
    items.extend([1, 2])

    def fn(x, n):
        items.append(n)
        items.extend(items[-2:] if isinstance(items, list) else [items[-2], items[-1]])
        return x + len(items)

    return fn


def last_is_replaced(items):
    items.append(1)

    def fn(x, n):
        size = len(items)
        items.append(n)
        items[-1] += 5
        items[-1] = items[-1] * 2
        return x + size, items[-1]

    return fn


def emptied(items):
    def fn(x, n):
        items.append(n)
        if n % 4 == 3:
            size = len(items)
            items.clear()
            items.append(7)
            return x + size, len(items)
        return x, len(items)

    return fn


def of_ints_and_floats(items):
    def fn(x, n):
        items.append(n if n % 2 else n / 2)
        return x + sum(items), max(items), min(items), type(max(items))

    return fn


PROGRAMS = {
    last_ones: 4, records: 2, queue: 3, stack: 3, taken_and_put_back: 3, emptied_and_over: 3, extended: 3,
    extended_by_itself: 3, last_is_replaced: 3, emptied: 4, of_ints_and_floats: 6,
}
"""Each with how many entries it may take."""


@pytest.mark.parametrize("kind", [list, deque])
@pytest.mark.parametrize("make", PROGRAMS)
def test_ends(make, kind):
    if kind is deque and make is last_ones:
        pytest.skip("a deque has no slices")

    def world():
        items = kind()
        return make(items), items

    pair = Pair(world)
    for n in range(12):
        pair.call(X + n, n)
    assert pair.graphs <= PROGRAMS[make], pair.story()
    assert not pair.breaks


def copied(items):
    def fn(x, n):
        items.append(x.sum().item())
        copies = [list(items), items[:], [*items], items.copy(), items[-50:]]
        copies[0].append("more")
        copies[1].pop()
        copies[2][-1] = 5
        return x + len(copies[0]), copies, len(copies[4]), copies[4][-1], copies[0][-2], copies[3] == 1

    return fn


def copied_before_changes(items):
    items.append(1.0)

    def fn(x, n):
        before = list(items)
        items.append(x.mean().item())
        items.append(3.0)
        between = items[-40:]
        items.pop()
        return x, before, between, len(before) + len(between), before is items, sum(between), max(between)

    return fn


def kept_in_state(items):
    state = {"recent": []}

    def fn(x, n):
        items.append(n)
        state["recent"] = items[-40:]
        state["recent"].append(7)
        return x + len(state["recent"]), state["recent"]

    return fn


def holding_itself(items):
    def fn(x, n):
        items.append(n)
        made = list(items)
        made.append(made)
        return x + len(made), len(made[-1]), made[-1] is made

    return fn


def long_window(items):
    def fn(x, n):
        items.append(n / 2)
        recent, latest = items[-20:], items[-5:]
        return x + sum(recent) / len(recent), sum(latest), recent, recent[0], recent[-1], min(recent)

    return fn


@pytest.mark.parametrize(
    "make", [copied, copied_before_changes, kept_in_state, holding_itself, long_window]
)
def test_copies(make):
    def world():
        items = []
        return make(items), items

    pair = Pair(world)
    for n in range(28):
        pair.call(X + n, n)
    assert pair.graphs <= 7, pair.story()
    assert not pair.breaks or SUMS_ROUND_ONCE and make is copied_before_changes


def test_copies_of_a_deque():
    def world():
        items = deque(maxlen=9)

        def fn(x, n):
            items.append(n * 0.5)
            more = [*items]
            more.append(4)
            return x + len(more), list(items), more, sum(more), items.copy()

        return fn, items

    pair = Pair(world)
    for n in range(13):
        pair.call(X, n)


def test_calls_that_are_made_for_real_assume_no_length():
    """What a call does that breaks the graph is not known: that it looked at its arguments before is no reason to
    assume these."""

    def world():
        history = []

        def fn(x, n):
            history.append(x.sum().item())
            y = x * 2
            return y + 1, float(np.mean(history)), float(np.median(history[-3:])), zlib.crc32(bytes([n, len(history)]))

        return fn, history

    pair = Pair(world)
    for n in range(12):
        pair.call(X + n, n)
    pair.call(X, 12, captures=False)


def window(items):
    def fn(x, n):
        items.append((x * x).sum().item())
        return x + 1, sum(items) / len(items), max(items), items[-1]

    return fn


def window_of_tensors(items):
    def fn(x, n):
        items.append(x * n)
        return items[-1] + len(items), items[0]

    return fn


def past_its_bound(items):
    def fn(x, n):
        size = len(items)
        for k in range(6 if n > 7 else 1):
            items.append(n + k)
        return x + size, len(items), items[0], items[-1]

    return fn


def pushed_out_and_taken(items):
    def fn(x, n):
        items.append(n)
        items.append(n + 1)
        last = items.pop()
        items.append(n + 2)
        first = items.popleft() if len(items) > 2 else None
        return x + len(items), last, first, items[0], sum(items)

    return fn


@pytest.mark.parametrize("bound", [None, 4, 1])
@pytest.mark.parametrize("make", [window, window_of_tensors, past_its_bound, pushed_out_and_taken])
def test_windows(make, bound):
    def world():
        items = deque(maxlen=bound)
        return make(items), items

    pair = Pair(world)
    for n in range(12):
        pair.call(X + n, n)
    assert pair.graphs <= 6, pair.story()
    assert not pair.breaks or SUMS_ROUND_ONCE and make is window


def test_a_long_window_takes_no_entry_for_each_length():
    def world():
        items = deque(maxlen=30)
        return window(items), items

    pair = Pair(world)
    for n in range(40):
        pair.call(X + n, n)
    assert pair.graphs <= 4, pair.story()


def test_ends_that_come_to_be_one():
    """The first and the last are told apart, and are one object once nothing else is there."""

    def world():
        tensors, lists = [torch.zeros(2), torch.ones(2), torch.ones(2)], [[1], [2], [3]]

        def fn(x, n):
            sizes = len(tensors), len(lists)
            tensors[0].add_(1)
            lists[0].append(n)
            seen = tensors[-1] * 2, len(lists[-1]), lists[0] is lists[-1]
            if sizes[0] > 1 and n > 1:
                tensors.pop()
                lists.pop()
            return x + sizes[0], seen

        return fn, (tensors, lists)

    pair = Pair(world)
    for n in range(8):
        pair.call(X, n)


def test_a_graph_break_between_changes():
    def world():
        items = deque(maxlen=5)

        def fn(x, n):
            items.append(x * n)
            out = items.popleft() if len(items) > 2 else x
            print(end="")
            items.append(n)
            return out + len(items), items[-1]

        return fn, items

    pair = Pair(world)
    for n in range(9):
        pair.call(X + n, n)


def test_an_operation_that_raises_behind_changes():
    def world():
        items = deque([1.0, 2.0, 3.0])

        def fn(x, n):
            size = len(items)
            items.append(float(n))
            first = items.popleft()
            if n > 3:
                x = x @ torch.ones(n)
            return x + first, size

        return fn, items

    pair = Pair(world)
    for n in range(7):
        pair.call(X, n)


def copied_before_a_break(items):
    items.append(0.0)

    def fn(x, n):
        size = len(items)
        whole, recent = list(items), items[-20:]
        items.append(n)
        items.append(7)
        print(end="")
        return x + len(whole), whole, recent, size

    return fn


def taken_before_a_break(items):
    items.extend([[0], [1]])

    def fn(x, n):
        size, last, first = len(items), items[-1], items[0]
        items.append([n])
        taken = items.pop(0)
        items.pop()
        items.append([5])
        print(end="")
        return x + size, last, first, taken, first is taken

    return fn


def numbers_before_a_break(items):
    items.extend([0.5, 1.5])

    def fn(x, n):
        size, last, total, most = len(items), items[-1] + 1, sum(items), max(items)
        items.append(n * 1.5)
        taken = items.pop(0) if size > 4 else 0
        print(end="")
        return x + size, last, total, most, items[-2], taken

    return fn


@pytest.mark.parametrize("make", [copied_before_a_break, taken_before_a_break, numbers_before_a_break])
def test_what_was_read_before_changes_leaves_at_a_break(make):
    def world():
        items = []
        return make(items), items

    pair = Pair(world)
    for n in range(9):
        pair.call(X + n, n)
    pair.call(X, 9, captures=False)
