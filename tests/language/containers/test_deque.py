"""collections.deque: bounds, rotation, iterators that notice changes, graph breaks while one is iterated."""
from collections import deque

import pytest
import torch

import framejit

from support import ANY, Pair, check

X = torch.ones(2)


def test_bounded():
    def fn(x):
        d = deque([1, 2, 3], 3)
        log = []
        changes = [
            lambda: d.append(4), lambda: d.appendleft(0), lambda: d.rotate(1), lambda: d.extend([7, 8]),
            lambda: d.extendleft([9]), lambda: d.rotate(-2),
        ]
        for change in changes:
            change()
            log.append(list(d))
        try:
            d.insert(0, 1)
        except IndexError as e:
            log.append(str(e))
        d *= 2
        d += [5]
        e = d.copy()
        log += [
            d.index(5), d.count(5), list(reversed(d)), e.maxlen, e == d, d[0], d[-1], deque([1, 2, 3], 0),
            list(deque("abc", maxlen=2)),
        ]
        d.reverse()
        d.remove(5)
        for wrong in (
            lambda: d[7], lambda: d.index("a"), lambda: [d.pop() for _ in range(9)], lambda: deque([], -1),
            lambda: deque([], "a"),
        ):
            try:
                wrong()
            except (IndexError, ValueError, TypeError) as error:
                log.append((type(error), str(error)))
        return x + 1, log, d, e

    check(fn, X)


def test_existing_deques_are_changed():
    def fn(x, d):
        d.append(1)
        d.appendleft(2)
        d.rotate()
        d[0] = 9
        del d[1]
        d.insert(1, "i")
        return x + len(d), d.maxlen

    check(fn, X, deque([5, 6, 7]))
    check(fn, X, deque([5, 6, 7], maxlen=9))


def test_the_bound_of_an_existing_deque_may_change():
    def tells(x, d):
        return x + len(d), d.maxlen

    def fills(x, d):
        d.extend([1, 2])
        return x + len(d)

    for fn in (tells, fills, lambda x, d: (x, d + d), lambda x, d: (x, d.copy())):
        pair = Pair(lambda fn=fn: fn)
        for bound in (3, None, 4, 3):
            pair.call(X, deque([5, 6, 7], maxlen=bound))


def test_iterators_notice_changes():
    def fn(x):
        d, log = deque([1, 2, 3]), []
        try:
            for v in d:
                log.append(v)
                d.append(v)
        except RuntimeError as e:
            log.append(str(e))
        it = iter(d)
        next(it)
        d[1] = 9
        return x + 1, log, list(it), list(it), type(it), type(reversed(d))

    check(fn, X)


def test_iterators_leave_captured_code_where_they_stand():
    def made(x):
        d = deque([1, 2, 3])
        it, back = iter(d), reversed(d)
        next(it)
        next(back)
        return x + 1, it, back

    for fn in (made, framejit.optimize(made, backend="eager")):
        _, it, back = fn(X)
        assert (list(it), list(back)) == ([2, 3], [2, 1])


def test_a_graph_break_while_one_is_iterated():
    def made_here(x):
        d = deque([1, 2, 3])
        for v in d:
            framejit.graph_break()
            x = x + v
        return x

    def given(x, d):
        for v in d:
            framejit.graph_break()
            x = x + v
        return x

    def changed_before(x, d):
        d.append(4)
        for v in d:
            framejit.graph_break()
            x = x + v
        return x

    check(made_here, X, graphs=ANY, breaks=ANY)
    check(given, X, deque([1, 2, 3]), graphs=ANY, breaks=ANY)
    check(changed_before, X, deque([1, 2, 3]), graphs=ANY, breaks=ANY)


@pytest.mark.parametrize("bound", [None, 4])
@pytest.mark.parametrize("grow", [lambda d: d.extend(d), lambda d: d.extendleft(d), lambda d: d.__iadd__(d) is d])
def test_a_deque_that_grows_by_itself(grow, bound):
    class Queue(deque):
        pass

    def made(x, cls):
        d = cls([1, x, 3], bound)
        return grow(d), list(d), x + 1

    for cls in (deque, Queue):
        check(lambda x, cls=cls: made(x, cls), X, graphs=ANY, breaks=None)


@pytest.mark.parametrize("join", [torch.stack, torch.cat, torch.block_diag, torch.zeros])
def test_a_deque_in_the_place_of_a_list(join):
    def f(x):
        queue = deque([x, x + 1], maxlen=3)
        joined = torch.stack([*queue]), torch.tensor(deque([1, 2]))
        try:
            return joined, join(queue)
        except TypeError as e:
            return joined, str(e)

    check(f, torch.ones(2), graphs=ANY, breaks=None)
