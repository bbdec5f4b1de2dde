"""for, while, else, break, continue over ranges, containers, zip, enumerate and tensors."""
# ruff: noqa: B905, B007
import itertools

import torch

from support import check

X = torch.tensor([1.0, 2.0, 3.0])


def test_for_range_unrolls():
    def fn(x):
        for i in range(5):
            x = x + i
        return x

    check(fn, X, ops=5)


def test_for_else_and_break():
    def fn(x, limit):
        for i in range(5):
            if i == limit:
                break
            x = x + i
        else:
            x = x * 100
        return x

    check(fn, X, 3, changed=[(X, 50)])


def test_while_with_python_condition():
    def fn(x, n):
        while n > 0:
            x = x * 2
            n -= 1
        else:
            x = x + 1
        return x

    check(fn, X, 3, changed=[(X, 0)])


def test_nested_loops_and_continue():
    def fn(x):
        for i in range(3):
            for j in range(3):
                if j == i:
                    continue
                if j > 1:
                    break
                x = x + i * 10 + j
        return x

    check(fn, X)


def test_iterating_a_tensor():
    def fn(x):
        out = []
        for v in x:
            out.append(v * 2)
        return out

    check(fn, X)


def test_iterating_a_tensor_that_has_nothing():
    def fn(x):
        total = x.sum()
        for row in x:
            total = total + row.sum()
        parts = x.unbind()
        mine = list(x)
        mine.append(1)
        return total, len(parts), type(parts), [*x], mine, list(itertools.islice(x, 1))

    check(fn, torch.zeros(0, 3), changed=[(torch.ones(2, 3),)])


def test_zip_enumerate_reversed_items():
    def fn(x, d):
        for (i, (k, v)), w in zip(enumerate(d.items()), reversed([1, 2])):
            x = x + i * v * w + len(k)
        return x

    check(fn, X, {"a": 1, "bb": 2})


def test_list_grows_while_iterating():
    def fn(x):
        items = [1]
        for i in items:
            if len(items) < 4:
                items.append(i + 1)
            x = x + i
        return x, items

    check(fn, X)


def test_dict_changed_size_during_iteration():
    def fn(x, d):
        y = x + 1
        for k in d:
            d[k + "x"] = 1
        return y

    check(fn, X, {"a": 1}, raises=RuntimeError, calls=1)


def test_loop_variable_survives():
    def fn(x):
        for i, row in enumerate(x):
            pass
        return i, row + 1

    check(fn, X)


def test_while_true_with_break():
    def fn(x):
        n = 0
        while True:
            n += 1
            x = x + n
            if n >= 3:
                break
        return x

    check(fn, X)


def test_loop_over_shape():
    def fn(x):
        total = 0
        for n in x.shape:
            total += n
        for _ in range(x.size(0)):
            x = x + total
        return x

    check(fn, X, changed=[(torch.randn(2),)])


def test_iter_with_sentinel_and_explicit_next():
    def fn(x):
        it = iter([1, 2, 0, 9])
        for v in iter(lambda: next(it), 0):
            x = x + v
        return x, next(it)

    check(fn, X)


def test_early_return_from_nested_loop():
    def fn(x):
        for i in range(3):
            for j in range(3):
                if i * j == 2:
                    return x * i + j
        return x

    check(fn, X)
