"""Functions and iterators in C whose behaviour stands in Python models: order of calls, laziness, exceptions, breaks
inside."""
import functools
import itertools
import math
import operator

import pytest
import torch

import framejit

from support import ANY, Pair, check

X = torch.ones(2)


def test_reductions():
    def fn(x):
        best = max([x, x + 1, x + 2], key=lambda t: len(t.shape))
        return (
            best, min(3, 1, 2, key=lambda v: -v), functools.reduce(operator.mul, [x, x + 1], x), sum([x, x], start=x),
            math.prod([2, 3]), sum([[1], [2]], []),
        )

    check(fn, X)


def test_reductions_consume_one_item_at_a_time():
    def fn(x):
        log = []

        def items():
            for i in (3, 1, 2):
                log.append(f"give {i}")
                yield i

        def key(v):
            log.append(f"key {v}")
            return v

        def add(a, b):
            log.append(f"add {a} {b}")
            return a + b

        return x + max(items(), key=key), min(items(), key=key), functools.reduce(add, items()), log

    check(fn, X)


REFUSED = {
    "max of nothing": lambda: max([]),
    "min of nothing": lambda: min(()),
    "sum of text": lambda: sum(["a"], "b"),
    "reduce of nothing": lambda: functools.reduce(max, []),
    "default with several": lambda: max(1, 2, default=3),
    "max of different things": lambda: max([1, "a"]),
    "sum of different things": lambda: sum([1, [2]]),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_reductions_refuse(call):
    def handled(x):
        try:
            call()
        except (TypeError, ValueError) as e:
            return x + 1, type(e), str(e), e.__context__

    check(handled, X)
    check(lambda x: (x + 1, call()), X, raises=Exception, calls=1)


def test_a_graph_break_inside_is_one_of_the_call():
    def fn(x):
        def items():
            yield x + 1
            framejit.graph_break()
            yield x + 2

        y = x * 2
        return functools.reduce(operator.add, items()) + y

    check(fn, X, graphs=ANY, breaks=ANY)


def test_an_exception_in_a_callback_has_the_lines_of_the_program_only():
    def key(v):
        return 1 / (v - 1)

    def fn(x):
        y = x + 1
        return y, max([3, 2, 1], key=key)

    check(fn, X, raises=ZeroDivisionError, calls=1)


def test_iterators_step_by_step():
    def fn(x):
        log = []

        def items(name, n):
            for i in range(n):
                log.append((name, i))
                yield i

        longest = itertools.zip_longest(items("a", 3), items("b", 1), fillvalue=x)
        log.append(next(longest))
        log.append(next(longest))
        sums = itertools.accumulate(items("c", 3), lambda a, b: a + b, initial=10)
        log.extend([next(sums), next(sums)])
        for key, group in itertools.groupby(items("d", 6), lambda v: v // 2):
            log.append((key, next(group)))
        picked = list(itertools.compress(items("e", 4), items("f", 3)))
        return (
            x + 1, log, picked, list(itertools.pairwise(items("g", 3))), list(itertools.product("ab", repeat=2)),
            list(itertools.combinations(range(3), 2)),
        )

    check(fn, X)


def test_a_group_ends_when_the_next_one_is_asked_for():
    def fn(x):
        groups = itertools.groupby([1, 1, 2, 2])
        _, first = next(groups)
        _, second = next(groups)
        return x + 1, list(first), list(second), list(groups)

    check(fn, X)


def test_iterators_leave_captured_code_where_they_stand():
    def made(x):
        sums = itertools.accumulate([x, x, x])
        next(sums)
        longest = itertools.zip_longest([1, 2, 3], [x])
        next(longest)
        choices = itertools.permutations([1, 2, 3], 2)
        next(choices)
        groups = itertools.groupby([1, 1, 2])
        next(groups)
        return x + 1, sums, longest, choices, itertools.pairwise([1, 2]), groups

    def listed(result):
        value, *iterators, groups = result
        return value, [type(i) for i in iterators], [list(i) for i in iterators], [(k, list(g)) for k, g in groups]

    eager, compiled = listed(made(X)), listed(framejit.optimize(made, backend="eager")(X))
    assert str(eager) == str(compiled)


def test_a_list_may_be_read_by_what_extends_it():
    def fn(x):
        a, b = [1], [1]
        a.extend(a[-1] + i for i in range(3))
        b += map(lambda i: len(b) + i, range(3))
        b.extend(b)

        def failing():
            yield 7
            raise KeyError("no more")

        try:
            a.extend(failing())
        except KeyError:
            pass
        return x + a[-1], a, b

    check(fn, X)


def test_second_call_with_other_items():
    pair = Pair(lambda: lambda x, items: x + max(items, key=lambda v: -v))
    for items in ([1, 2, 3], [3, 2], [5]):
        pair.call(X, items)
