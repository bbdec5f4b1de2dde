"""Sequence, starred, nested and mapping unpacking."""
import torch

from support import check

X = torch.arange(6.0).reshape(3, 2)


def test_swap_and_rotate():
    def fn(a, b, c):
        a, b = b, a
        a, b, c = c, a, b
        return a - b, b * c

    check(fn, *X)


def test_tensor_unpacks_along_its_first_dimension():
    def fn(x):
        a, b, c = x
        return a + b * c

    check(fn, X)


def test_starred_positions():
    def fn(x, items):
        first, *rest = items
        *most, last = items
        a, *mid, z = items
        return x + first + last, rest, most, mid

    check(fn, X, [1, 2, 3, 4])


def test_nested_targets():
    def fn(pairs):
        (a, (b, *c)), d = pairs
        return a + b, c, d

    check(fn, ((X, (X * 2, 1, 2)), "end"))


def test_unpack_shape():
    def fn(x):
        rows, cols = x.shape
        return x.reshape(cols, rows), rows * cols

    check(fn, X)


def test_unpack_into_literals_and_calls():
    def add(a, b, *, c=0):
        return a + b + c

    def fn(x, more, kw):
        return add(*[x, 1], **kw), [*more, *(3, 4)], {**kw, "d": 1}, (*more,)

    check(fn, X, [1, 2], {"c": 5})


def test_unpack_user_iterator():
    class Two:
        def __init__(self, t):
            self.t = t

        def __iter__(self):
            yield self.t
            yield self.t * 2

    def fn(two):
        a, b = two
        return a + b

    check(fn, Two(X))


def test_too_many_and_too_few_values_raise_the_same_error():
    def fn(x, items):
        y = x + 1
        a, b = items
        return y + a + b

    check(fn, X, [1, 2], changed=[(X, [1, 2, 3]), (X, [1])])


def test_unpack_dict_iterates_keys():
    def fn(x, d):
        a, b = d
        return x * 2, a, b

    check(fn, X, {"k": 1, "j": 2})


def test_unpack_topk_result():
    def fn(x):
        values, indices = x.topk(1, dim=1)
        return values + 1, indices

    check(fn, X)
