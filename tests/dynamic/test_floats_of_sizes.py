"""Floats computed from sizes and numbers that are left open: one graph for all sizes, Python's own number at each call,
and its errors where Python has them."""
import math
import operator

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


IN_PLACE = [getattr(operator, f"i{name}") for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")]


def of_a_number(operate, x, n):
    number = n / 2
    before = number
    number = operate(number, x.sum())
    return number, before, x * before


def of_a_size(operate, x, n):
    held = [x.shape[-1] * 0.5] * 2
    held[0] = operate(held[0], x.mean() + 1)
    return held, operate(held[1], x)


def of_what_it_became(operate, x, n):
    number = n * 0.5
    x = operate(x, number)
    number = operate(number, x)
    kept = number
    number = operate(number, 2)
    return x, number, kept is number


@pytest.mark.parametrize("program", [of_a_number, of_a_size, of_what_it_became])
@pytest.mark.parametrize("operate", IN_PLACE, ids=lambda operate: operate.__name__)
def test_a_number_is_not_written_into(program, operate):
    """`number += tensor` is another tensor: what stands for the number in a graph stays what it is."""
    def fn(x, n):
        return program(operate, x, n)

    pair = Pair(lambda: fn, rtol=1e-6)
    for size, n in ((3, 3), (4, 2), (5, 5), (6, 7)):
        pair.call(torch.arange(1.0, size + 1), n)
    if operate in IN_PLACE[:4]:
        pair.expect(graphs=range(1, 4), breaks=0)


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


PREFIXES = {
    "int of a root": lambda n: int(n**0.5), "isqrt": math.isqrt, "floor": lambda n: math.floor(n * 0.7),
    "ceil": lambda n: math.ceil(n * 0.7), "trunc": lambda n: math.trunc(n * 0.3), "round": lambda n: round(n / 3),
    "int of a half": lambda n: int(n / 2), "ceil of a third": lambda n: math.ceil(n / 3),
    "floor of a logarithm": lambda n: math.floor(math.log2(n)), "//": lambda n: int(n * 0.5 // 2),
    "of another": lambda n: int(int(n * 0.8) * 0.7), "by method": lambda n: (n * 0.7).__int__(),
    "of a size": lambda n: round(n) - math.floor(n) + math.ceil(n) - math.trunc(n // 2) + int(n) - abs(1 - n),
    "greatest": lambda n: max(2, int(0.3 * n)), "float": lambda n: int(float(n) - 1),
    "more than there are": lambda n: int(n * 1.5), "rate": lambda n: int(100 * 0.9**n),
}


@pytest.mark.parametrize("name", PREFIXES)
def test_whole_numbers_of_floats_of_sizes(name):
    """A few entries, since sizes of 0 and 1 mean other things, and not one a size."""
    whole = PREFIXES[name]

    def f(x):
        k = whole(x.shape[0])
        return x[:k] * 2, x.new_zeros(k), x * k, k, [k + 1], k % 3

    pair = Pair(lambda: f)
    for size in (12, 13, 14, 15, 16, 30, 31, 47, 48, 49, 50, 99, 100, 12):
        pair.call(torch.arange(float(size)))
    pair.expect(graphs=range(1, 8 if name in ("//", "rate", "greatest") else 6), breaks=0)


QUESTIONS = {
    "root": lambda n: math.sqrt(n) > 4.5, "half": lambda n: n / 2 >= 15, "product": lambda n: 10.0 > n * 0.7,
    "fall": lambda n: n**-0.5 < 0.2, "logarithm": lambda n: math.log(n) <= 3, "equal": lambda n: n / 2 == 15.0,
    "other": lambda n: n * 0.5 != 8, "truth": lambda n: bool(n / 2 - 8), "between": lambda n: 7.5 < n / 2 < 20.5,
    "whole": lambda n: (n / 3).is_integer(), "least": lambda n: min(n / 2, 9.5), "most": lambda n: max(n / 3, 7.0),
    "size": abs, "absolute": lambda n: abs(n / 2 - 9), "float": lambda n: n > 15.5,
    "equal to a float": lambda n: n == 16.0, "no whole number": lambda n: n == 16.5, "infinite": lambda n: n < math.inf,
    "nan": lambda n: n != math.nan, "mirrored": lambda n: 15.5 >= n, "with 1": lambda n: 1 - n / 20 > 0,
}


@pytest.mark.parametrize("dynamic", (True, None))
@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_about_floats_of_sizes_are_conditions(name, dynamic):
    question = QUESTIONS[name]

    def f(x):
        answer = question(x.shape[0])
        return (x + 1 if answer else x - 1) * answer

    pair = Pair(lambda: f, dynamic=dynamic, rtol=1e-6)
    for size in (12, 13, 14, 15, 16, 17, 18, 20, 21, 30, 31, 47, 48, 49, 50, 99, 100, 12):
        pair.call(torch.arange(float(size)))
    pair.expect(graphs=range(1, 6), breaks=0)


@pytest.mark.parametrize("name", [*PREFIXES, *QUESTIONS])
@pytest.mark.parametrize("numbers", [(9, 0, -4, 2**40, 2**53 + 1, 2**62, True, 8.5, 3), (2**53 - 1, 2**53, 2**52 + 1)])
def test_ints_of_all_sizes(name, numbers):
    """Numbers of arguments need not be small."""
    function = {**PREFIXES, **QUESTIONS}[name]

    def f(x, n):
        try:
            return x + 1, function(n)
        except (ArithmeticError, ValueError, TypeError) as e:
            return str(e)

    pair = Pair(lambda: f, dynamic=True)
    for number in numbers:
        pair.call(torch.ones(2), number)


def test_other_arguments_than_tensors():
    """Guards compute the number anew, of whatever is handed over."""
    def f(x):
        if not isinstance(x, torch.Tensor):
            return x
        return x[: int(x.shape[0] * 0.7)] if 1 / x.shape[0] < 0.3 else x + 1

    pair = Pair(lambda: f)
    for argument in (*map(torch.ones, (12, 13, 14, 3, 0, 1)), None, 3.5, [1], torch.ones(2, 2), torch.ones(20)):
        try:
            pair.call(argument)
        except ZeroDivisionError:
            assert argument.shape[0] == 0


@pytest.mark.parametrize("default", (torch.float32, torch.float64))
def test_beside_tensors_of_ints(default):
    def f(x):
        n = x.shape[0] * 0.7
        places = torch.arange(x.shape[0])
        return places < n, places * n, n - places, places / n, (places > 3) * n, places == n, places.to(torch.uint8) + n

    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        pair = Pair(lambda: f)
        for size in (10, 12, 13, 14, 20, 30, 40):
            pair.call(torch.arange(float(size)))
        pair.expect(graphs=range(1, 4), breaks=0)
    finally:
        torch.set_default_dtype(before)


def test_a_float_written_into_a_tensor_of_ints_is_an_error():
    def f(x):
        places = torch.arange(x.shape[0])
        try:
            places += x.shape[0] * 0.7
        except RuntimeError as e:
            return str(e)

    pair = Pair(lambda: f)
    for size in (10, 12, 13, 14):
        pair.call(torch.arange(float(size)))
