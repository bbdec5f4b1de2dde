"""Iterators: their ends, what they see of changes, their types, and objects that are iterators themselves."""
import itertools

import torch

import framejit

from support import ANY, check, check_state

X = torch.ones(2)


class Numbers:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        self.n -= 1
        if self.n < 0:
            raise StopIteration("done")
        return self.n


class Indexed:
    def __len__(self):
        return 3

    def __getitem__(self, i):
        if i > 5:
            raise IndexError
        return i * 10


class NoIterator:
    def __iter__(self):
        return 3


def test_an_iterator_that_has_ended_stays_so():
    def fn(x):
        items, log = [3, 1, 2], []
        it, back = iter(items), reversed(items)
        log.append(list(it))
        items.append(5)
        log += [list(it), next(back), next(iter(it), "none")]
        items.clear()
        log.append(list(back))
        items += [1, 2]
        log.append(list(back))
        calls = []

        def count():
            calls.append(len(calls))
            return len(calls)

        until = iter(count, 3)
        log += [list(until), list(until), calls]
        return x + 1, log, items

    check(fn, X)


def test_a_list_may_change_while_it_is_iterated():
    def fn(x):
        items, seen = [1, 2, 3], []
        for v in items:
            seen.append(v)
            if v < 3 and len(items) < 8:
                items.append(v + 5)
            if v == 2:
                items.remove(1)
        for v in reversed(items):
            seen.append(v)
            items.pop(0)
        return x + 1, items, seen, [v for v in items if items.pop() or True]

    check(fn, X)


def test_types():
    def fn(x):
        made = [iter([]), iter(()), iter(""), iter("é"), iter(b""), iter(range(3)), iter(int, 1)]
        back = [reversed([]), reversed(()), reversed(range(3)), reversed("ab"), reversed(Indexed())]
        return x + 1, [type(i) for i in made + back]

    check(fn, X)


def test_objects():
    def fn(x):
        def generator():
            got = yield from Numbers(2)
            yield got

        numbers = Numbers(4)
        back = reversed(Indexed())
        return (
            x + next(numbers), iter(numbers) is numbers, list(zip(numbers, numbers)), list(generator()), next(back),
            list(back), list(Indexed()), list(back),
        )

    check(fn, X)


class Text(str):
    pass


def test_iterators_asked_for_by_method():
    text = Text("ab")

    def fn(x):
        made = [c.__iter__() for c in ("ab", b"ab", range(2), (1, 2), [1], {1: 2}, {1}, frozenset([3]))]
        rows = x.__iter__()
        first = next(rows)
        return (
            first, [*rows], [list(m) for m in made], [type(m) for m in made], str.__iter__("ab").__next__(),
            {"a", "b", "c"}.issuperset(text), {"a"}.union(text), [*text.__iter__()],
        )

    check(fn, torch.ones(3, 2))
    check(lambda x: x.sum().__iter__(), torch.ones(3), raises=TypeError)
    check(lambda x: (x + 1, "ab".__iter__(3)), torch.ones(3), raises=TypeError)


def test_what_is_no_iterator():
    def fn(x):
        log = []
        for wrong in (
            lambda: iter(NoIterator()), lambda: next([1]), lambda: iter(3, 4), lambda: next(iter([])),
            lambda: iter(5), lambda: reversed({1}),
        ):
            try:
                wrong()
            except (TypeError, StopIteration) as e:
                log.append((type(e), str(e)))
        return x + 1, log

    check(fn, X, graphs=ANY, breaks=None)


def test_iterators_leave_captured_code_where_they_stand():
    def made(x):
        it, back, text, ended, until, over = (
            iter([1, 2, 3]), reversed([1, 2, 3]), iter("abc"), iter([1]), iter(int, 0), iter(lambda: 1, 1),
        )
        next(back)
        next(text)
        list(ended)
        list(until)
        return x + 1, it, back, text, ended, until, over

    def listed(result):
        return [(type(i), list(i)) for i in result[1:]]

    assert listed(made(X)) == listed(framejit.optimize(made, backend="eager")(X))


def test_a_class_that_loses_its_next():
    def make():
        class Once:
            def __iter__(self):
                return self

            def __next__(self):
                del Once.__next__
                return 1

        def fn(x):
            try:
                for _ in Once():
                    pass
            except TypeError as e:
                return x + 1, str(e)
            return x + 2

        return fn

    expected = make()(X)
    got = framejit.optimize(make(), backend="eager")(X)
    assert str(expected) == str(got)


def test_a_list_that_grows_or_shrinks_under_its_iterator_before_a_break():
    def make():
        grown, going, held = [], [1], [1, 2, 3]
        given, running = iter(going), iter(held)

        def fn(x):
            grown.append(4)
            own, backwards, seen = iter(grown), reversed(grown), []
            for item in grown:
                if x.sum() > item:  # a graph break
                    x = x + 1
                seen.append(item)
            next(own)
            going.append(2)
            seen += [next(given, None), next(given, None), next(running, None), next(running, None)]
            held.clear()
            x = x * 2
            print(end="")
            held.extend([5, 6, 7, 8])
            return x, seen, list(own), list(backwards), list(given), list(running)

        return fn, (grown, going, held)

    check_state(make, (X,), (X,), graphs=None, breaks=None)


def test_tee():
    def fn(x):
        log = []

        def items():
            for n in range(4):
                log.append(("made", n))
                yield x * n

        a, b, c = itertools.tee(items(), 3)
        first = next(a) + next(a) + next(b)
        log.append("between")
        return (
            first, list(b), list(a), [t + 1 for t in c], next(a, None), log, itertools.tee([x], 0),
            type(a) is itertools._tee,
        )

    check(fn, X)


def test_iterators_of_a_tee_leave_captured_code_together():
    def fn(x, steps):
        log = []

        def items():
            for n in range(5):
                log.append(n)
                yield x * n

        made = itertools.tee(items(), 3)
        for it, n in zip(made, steps):
            for _ in range(n):
                next(it)
        return x + 1, made, log

    for steps in ((0, 0, 0), (2, 0, 1), (3, 3, 3), (5, 1, 0)):
        (_, plain, plain_log), (_, ours, log) = fn(X, steps), framejit.optimize(fn, backend="eager")(X, steps)
        for _ in range(7):
            for p, o in zip(plain, ours):
                expected, got = next(p, None), next(o, None)
                assert type(o) is type(p) and log == plain_log
                assert expected is got is None or torch.equal(expected, got)


def test_a_tee_before_a_graph_break():
    def fn(x):
        a, b = itertools.tee([x, x * 2, x * 3])
        y = next(a)
        print("break")
        return y + sum(b), list(a), list(b)

    check(fn, X, graphs=ANY, breaks=None)


@framejit.disable
def teed(text):
    return itertools.tee(text)


def test_a_tee_of_a_tee_of_outside():
    def fn(x, text):
        one, other = teed(text)
        third = type(one)(one)
        skipped = next(third)
        return x + 1, skipped, list(one), list(other), list(third)

    check(fn, X, "abc", breaks=None, graphs=None)


def test_a_tee_of_a_tee():
    def fn(x):
        a, b = itertools.tee(iter([x, x * 2, x * 3]))
        first = next(a)
        c, d = itertools.tee(a)
        return c is a, first, next(c) + next(d), list(d), list(a), list(c), list(b)

    check(fn, X)


def test_misused_tees():
    class Copied:
        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration

        def __copy__(self):
            return iter([7])

    def fn(x):
        log = []

        def fails():
            yield x
            raise ValueError("no more")

        def asks():
            yield 1
            yield next(mine)

        a, b = itertools.tee(fails())
        mine, _ = itertools.tee(asks())
        attempts = (
            lambda: itertools.tee(3), lambda: itertools.tee([], -1), lambda: itertools.tee([], "2"),
            lambda: itertools.tee([], 2, 3), lambda: itertools.tee(),
            lambda: list(a), lambda: list(a), lambda: list(b), lambda: list(mine), lambda: itertools.tee([], n=2)[0],
        )
        for attempt in attempts:
            try:
                log.append(len(attempt()))
            except (TypeError, ValueError, RuntimeError) as e:
                log.append((type(e), str(e)))
        return x + 1, log, [list(i) for i in itertools.tee(Copied())]

    check(fn, X, graphs=ANY, breaks=None)
