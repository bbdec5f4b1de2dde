"""What operators and functions say of operands they have nothing for."""
import itertools

import torch

from support import check

X = torch.ones(2)


class Plain:
    pass


def test_messages():
    def fn(x):
        log, c, items, t = [], Plain(), [x], (x,)
        wrong = [
            lambda: items + 1, lambda: items + t, lambda: t + items, lambda: items * 1.5, lambda: items * items,
            lambda: c + 1, lambda: 1 + c,
            lambda: items - items,
            lambda: -items, lambda: c < c, lambda: c[0], lambda: "a" + c, lambda: "a" * c, lambda: len(c),
            lambda: list(c), lambda: [*c],
            lambda: x in c, lambda: next(c),
            lambda: reversed(c), lambda: c(), lambda: items[c], lambda: items["a"], lambda: items | items,
            lambda: c @ c, lambda: divmod(c, 1),
            lambda: c**2, lambda: abs(c),
            lambda: int(c), lambda: float(c), lambda: complex(c), lambda: round(c), lambda: sum([c]),
            lambda: sorted([c, c]), lambda: min(c, c),
            lambda: hash(items),
            lambda: getattr(c, 1), lambda: setattr(c, 1, 2), lambda: items.extend(c), lambda: items.insert(c, 1),
            lambda: enumerate(c),
            lambda: zip(c), lambda: iter(c),
        ]
        for call in wrong:
            try:
                call()
                log.append("nothing")
            except TypeError as e:
                log.append(str(e))
        return x + 1, log

    check(fn, X, graphs=None, breaks=None)


def test_of_itertools():
    def fn(x):
        log = []
        wrong = [
            lambda: itertools.islice([1], -1), lambda: itertools.islice([1], "a"),
            lambda: itertools.islice([1], 0, 1, 0), lambda: itertools.count("a"),
            lambda: itertools.repeat(1, "a"), lambda: itertools.combinations([1], -1),
            lambda: itertools.chain.from_iterable(3),
            lambda: list(itertools.chain(3)),
            lambda: enumerate([1], "a"), lambda: itertools.product([1], repeat=-1),
        ]
        for call in wrong:
            try:
                call()
                log.append("nothing")
            except (TypeError, ValueError) as e:
                log.append((type(e), str(e)))
        it = iter(range(10))
        first = list(itertools.islice(it, 3, 3)), list(itertools.islice(it, 1, None, 3))
        return x + 1, log, first, list(itertools.islice(itertools.count(10, 2.5), 3)), list(it)

    check(fn, X, graphs=None, breaks=None)
