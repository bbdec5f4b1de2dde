"""An operation that raises does so in the frame it stands in: inlined calls, loops, generators, hooks, around graph
breaks."""
import traceback

import torch
from torch import nn

from tests.side_effects.raising_calls import GOOD, TABLE, Manager, either_way, follow, graph_break

from support import Pair


def pick(x, i):
    y = x + 1
    return y[i]


def pick_twice(x, i):
    y = pick(x, GOOD)
    z = pick(x * 2, i)
    return y + z


@either_way
def test_in_inlined_calls(calls):
    def fn(x, i):
        y = x * 2
        return pick_twice(
            y,
            i,
        )

    follow(fn, *calls)


@either_way
def test_handled_by_the_caller_of_an_inlined_function(calls):
    def fn(x, i):
        try:
            return pick_twice(x, i)
        except IndexError as e:
            return (
                x,
                [f.name for f in traceback.extract_tb(e.__traceback__)],
                [f.lineno for f in traceback.extract_tb(e.__traceback__)],
            )

    follow(fn, *calls)


@either_way
def test_in_a_loop(calls):
    def fn(x, i, log):
        total = x.sum()
        for n, one in enumerate([GOOD, GOOD, i, GOOD]):
            log.append(n)
            try:
                total = total + x[one].sum()
            except IndexError:
                log.append("missed")
                continue
            log.append("found")
        return total

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_uncaught_in_the_third_turn_of_a_loop(calls):
    def fn(x, i, log):
        total = x.sum()
        for n, one in enumerate([GOOD, GOOD, i, GOOD]):
            log.append(n)
            total = total + x[one].sum()
        return total

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_in_recursion(calls):
    def down(x, i, n):
        if n == 0:
            return x[i]
        try:
            return down(x + 1, i, n - 1)
        finally:
            x.add_(n)

    def fn(x, i):
        return down(x * 2, i, 3)

    follow(fn, *calls)


@either_way
def test_in_a_method_a_closure_and_a_comprehension(calls):
    class Table:
        def __init__(self, rows):
            self.rows = rows

        def at(self, i):
            return self.rows[i]

    def make():
        scale = torch.tensor(2.0)
        table = Table(TABLE.clone())

        def fn(x, i):
            def scaled(one):
                return table.at(one) * scale

            return [scaled(one) for one in (GOOD, i)]

        return fn

    follow(make, *calls)


@either_way
def test_in_a_generator(calls):
    def rows(x, indices, log):
        try:
            for one in indices:
                log.append("next")
                yield x[one]
        finally:
            log.append("closed")

    def fn(x, i, log):
        total = 0
        try:
            for row in rows(x, [GOOD, i, GOOD], log):
                total = total + row
        except IndexError as e:
            log.append([f.name for f in traceback.extract_tb(e.__traceback__)])
        return total

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_in_a_module_with_hooks(calls):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(3, 2)
            self.log = []

        def forward(self, x, i):
            self.log.append("forward")
            try:
                return self.embed(i) * x[:2]
            except IndexError:
                self.log.append("failed")
                return x

    def make():
        torch.manual_seed(0)
        net = Net()
        net.embed.register_forward_pre_hook(lambda module, args: net.log.append("before"))
        net.embed.register_forward_hook(lambda module, args, output: net.log.append("after"))
        return net, net

    follow(make, *calls)


@either_way
def test_after_a_graph_break(calls):
    def fn(x, i, log):
        y = x + 1
        log.append("one")
        graph_break()
        log.append("two")
        try:
            z = y[i]
        except IndexError:
            log.append("missed")
            graph_break()
            z = y[:2]
        return z * 2

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_before_a_graph_break(calls):
    def fn(x, i, log):
        with Manager(log, True):
            y = x[i]
            graph_break()
            return y * 2
        return x

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_uncaught_after_a_graph_break_inside_a_call(calls):
    def inner(x, i):
        y = x * 2
        graph_break()
        z = y + 1
        return z[i]

    def fn(x, i):
        y = x + 1
        return inner(y, i) * 2

    follow(fn, *calls)


@either_way
def test_keyword_arguments_defaults_and_rests(calls):
    def fn(x, *more, scale=2.0, **names):
        y = x * scale
        try:
            return y[more[0]], sorted(names), len(more)
        finally:
            names["seen"] = y

    pair = Pair(lambda: fn)
    for _ in range(2):
        for x, i in calls:
            pair.call(x, i, i, scale=3.0, a=1, b=2)


@either_way
def test_variables_that_are_cells(calls):
    def make():
        count = 0

        def fn(x, i):
            nonlocal count
            count += 1
            y = x + count
            z = y[i]
            count += 10
            return z, lambda: (x, count)

        def call(x, i):
            z, both = fn(x, i)
            return z, both()

        return call, lambda: count

    follow(make, *calls)
