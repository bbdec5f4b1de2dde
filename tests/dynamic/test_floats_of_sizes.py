"""Floats computed from sizes and numbers that are left open: one graph for all sizes, Python's own number at each call,
and its errors where Python has them."""
import math

import pytest
import torch

from support import Pair


def ones(size):
    return (torch.ones(3, size),)


def scaled(x):
    return x * x.shape[-1] ** -0.5


def divided(x):
    return x / math.sqrt(x.shape[-1]), x / (x.shape[-1] / 2), -(x.shape[-1] * 0.5) * x


def mixed(x):
    n = x.size(1)
    return x * (1.0 / math.sqrt(n)) + (n - 2.5) * 2 / 3, n / 4, x.new_zeros(n**2)


def halves(x):
    x = x.half()
    return x * x.size(1) ** -0.5, x / (x.size(1) / 3)


def handed_out(x):
    n = x.shape[-1] ** -0.5
    return n, {"n": [n * 2]}, x * n


def turned(x):
    n = x.shape[-1] ** -0.5
    x.t_()
    return n, x * n, x.shape[-1] ** -0.5


@pytest.mark.parametrize("function", [scaled, divided, mixed, halves, handed_out])
def test_one_graph_for_all_sizes(function):
    pair = Pair(lambda: function, rtol=1e-6)
    for size in (5, 7, 8, 9, 12, 30):
        pair.call(*ones(size))
    pair.expect(graphs=2, breaks=0)


def conditional(x, n):
    found = []
    for compute in (lambda: 1 / (n - 4), lambda: (n - 5) ** -0.5, lambda: math.sqrt(n - 6), lambda: 2.5 / n**2):
        try:
            found.append(compute())
        except (ZeroDivisionError, ValueError) as e:
            found.append(str(e))
    return found, x * n**0.5 if n > 0 else x, type(n / 1), n**3


def test_errors_and_complex_numbers_are_pythons():
    pair = Pair(lambda: conditional, rtol=1e-6)
    for n in (8, 9, 10, 3, 4, 5, 6, 7, 0, -4, 2**40, 2**62, 2**70, True, 11):
        pair.call(torch.ones(2), n)


def test_gradients():
    pair = Pair(lambda: scaled, rtol=1e-6)
    for size in (5, 7, 8, 9):
        pair.call(torch.ones(3, size, requires_grad=True)).sum().backward()
    pair.expect(graphs=2, breaks=0)


def test_sizes_that_the_function_changes():
    pair = Pair(lambda: turned)
    for size in (5, 7, 8, 9):
        pair.call(*ones(size))


def beyond(x, n):
    return x * (n * 1e300), x * (n * 1e300 * 1e300 > 1), n**4


def test_numbers_that_overflow():
    pair = Pair(lambda: beyond)
    for n in (2, 3, 4, 5, 10**9):
        pair.call(torch.ones(2), n)


def broken(x):
    n = x.shape[0] ** -0.5
    print(n)
    torch._dynamo.graph_break()
    return x * n, n


def test_across_a_graph_break():
    pair = Pair(lambda: broken)
    for size in (3, 4, 5, 6):
        pair.call(torch.ones(size))
    pair.expect(graphs=range(1, 5))


def compared_with_a_number(x, of):
    scaled = of.scale * (x.shape[0] / 2)
    return x + 1 if scaled > 3.0 else x * scaled


def test_beside_a_number_that_is_left_open():
    class Of:
        scale = 0.5

    pair = Pair(lambda: compared_with_a_number, dynamic=True)
    of = Of()
    for size, scale in ((4, 0.5), (6, 0.25), (8, 0.75), (5, 3.0), (9, 0.1), (200, 0.1)):
        of.scale = scale
        pair.call(torch.ones(size), of)
