"""heapq, bisect, length_hint, fsum, os.fspath and broadcast_shapes inside graphs, with the comparisons and errors of
the real ones."""

import bisect
import heapq
import math
import operator
import os
import random

import pytest
import torch

from support import check

X = torch.tensor([1.0, 2.0])


class Item:
    """Counts by whom it was compared."""

    def __init__(self, key, log):
        self.key, self.log = key, log

    def __lt__(self, other):
        self.log.append((self.key, other.key))
        return self.key // 2 < other.key // 2


@pytest.mark.parametrize("seed", range(4))
def test_heaps_compare_as_the_real_ones_do(seed):
    rand = random.Random(seed)
    numbers = [rand.randrange(20) for _ in range(12)]

    def fn(x):
        log, heap, out = [], [], []
        for n in numbers:
            heapq.heappush(heap, Item(n, log))
        for n in numbers[:4]:
            out.append(heapq.heappushpop(heap, Item(n, log)).key)
            out.append(heapq.heapreplace(heap, Item(n + 1, log)).key)
        while len(heap) > 2:
            out.append(heapq.heappop(heap).key)
        return x + sum(out), out, log, [item.key for item in heap]

    check(fn, X)


@pytest.mark.parametrize(
    "call",
    [
        lambda: heapq.heappop([]), lambda: heapq.heappush((), 1), lambda: heapq.heapreplace([], 1),
        lambda: heapq.heappop({}),
    ],
)
def test_errors_of_heaps(call):
    def fn(x):
        x = x + 1
        try:
            call()
        except (IndexError, TypeError) as e:
            return x, type(e), str(e)
        return x

    check(fn, X)


def test_tensors_in_sorted_lists():
    def fn(x, n):
        rows = [(2, x), (5, x + 1), (5, x * 2)]
        at = bisect.bisect_left(rows, n, key=lambda row: row[0]), bisect.bisect(rows, n, key=lambda row: row[0])
        bisect.insort(rows, (n, x * 3), key=lambda row: row[0])
        bisect.insort_left(rows, (n, x * 5), 1, 3, key=lambda row: row[0])
        return at, [row[0] for row in rows], sum(row[1] * i for i, row in enumerate(rows))

    for n in (0, 2, 3, 5, 9):
        check(fn, X, n)


def test_errors_of_bisect():
    def fn(x):
        x = x + 1
        try:
            bisect.bisect_left([1], 2, -1)
        except ValueError as e:
            return x, str(e)
        return x

    check(fn, X)


def test_shapes_that_are_broadcast():
    def fn(x, y):
        return x + torch.ones(torch.broadcast_shapes((2, 1), (1, 3), y.shape)), torch.broadcast_shapes(2, (3, 1))

    check(fn, torch.ones(2, 3), torch.ones(3))
    check(lambda x: (x + 1, torch.broadcast_shapes((2,), (3,))), X, raises=RuntimeError)


class Folder:
    def __init__(self, text):
        self.text = text

    def __fspath__(self):
        return self.text


@pytest.mark.parametrize("path", ["a", b"a", Folder("a"), Folder(3), 3, None])
def test_paths(path):
    def fn(x):
        x = x + 1
        try:
            return x, os.fspath(path), os.path.join(path, path)
        except TypeError as e:
            return x, str(e)

    check(fn, X)


class Hinted:
    def __init__(self, hint):
        self.hint = hint

    def __length_hint__(self):
        if isinstance(self.hint, type):
            raise self.hint("hint")
        return self.hint


@pytest.mark.parametrize(
    "args",
    [
        ([1, 2],), (5,), (5, 7), (Hinted(3),), (Hinted(NotImplemented), 4), (Hinted(TypeError), 2), ({1: 2}, 9),
        (Hinted(-1),), (Hinted("x"),), (Hinted(ValueError),), ([], None), ([1], "x"), (range(3),),
    ],
)
def test_length_hint(args):
    def fn(x):
        hints = operator.length_hint(iter([1, 2])), operator.length_hint(map(abs, [1]), 5)
        return x + operator.length_hint(*args), hints

    try:
        operator.length_hint(*args)
    except Exception as e:
        check(fn, torch.ones(2), raises=type(e))
    else:
        check(fn, torch.ones(2))


def test_heapify_and_fsum():
    def fn(x, numbers):
        log = []
        heap, compared = list(numbers), [Item(n, log) for n in numbers]
        heapq.heapify(heap), heapq.heapify(compared)
        return x + math.fsum(numbers) + math.fsum([n / 10 for n in numbers]), heap, [c.key for c in compared], log

    check(fn, torch.ones(2), [5, 3, 8, 1, 9, 2], changed=[(torch.ones(2), [2, 1]), (torch.ones(2), [])])
    check(lambda x: heapq.heapify((1, 2)), torch.ones(2), raises=TypeError)
    check(lambda x: (x + 1, math.fsum([1, "a"])), torch.ones(2), raises=TypeError)
