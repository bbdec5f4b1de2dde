"""Numbers that change, and that are computed from several places, are compared by guards, not assumed: a loss and the
best one so far, a sum and a count."""

import math

import pytest
import torch

import framejit

from comparison import assert_same
from support import of_kind, recorded


class State:
    """What a program keeps between its steps."""

    def __init__(self):
        self.count, self.total, self.mean, self.best, self.bad, self.text = 0, 0.0, 0.0, math.inf, 0, None

    def average(self, number):
        self.count += 1
        self.total += number
        self.mean = self.total / self.count

    def keeps_best(self, number):
        if number < self.best * 0.99:
            self.best, self.bad = number, 0
        else:
            self.bad += 1

    def smooth(self, number):
        self.mean = number if self.text is None else 0.9 * self.mean + 0.1 * number
        self.text = True

    def distance(self, number):
        if self.mean is not None and abs(self.mean - number) > 0.5:
            self.bad += 1
        self.mean = number

    def is_other(self, number):
        if self.mean - number:
            self.bad += 1
        self.mean = number

    def above_average(self, number):
        self.count += 1
        if number > self.total / self.count and math.isfinite(self.total - number):
            self.bad += 1
        self.total = max(self.total + number, -3.0)

    def rounded(self, number):
        self.count += int(abs(self.total) * 0.1)
        self.total = round(number + self.mean, 3)
        self.mean = float(self.bad) - number
        self.bad += round(number) > -1

    def remainder(self, number):
        self.mean = number % 0.25 if number // 0.5 > self.total else -number
        self.total = number % (self.best if self.best < 10 else 3.0)


def check(method, numbers, entries, finish=lambda state: state.mean):
    def step(state, x):
        y = x.exp() * 2
        method(state, y.sum().item())
        return y + finish(state)

    outcomes = []
    with framejit.config.patch(debug=True), recorded() as log:
        for run in (step, framejit.optimize(step, backend="eager")):
            state = State()
            outcomes.append([(run(state, torch.tensor([number]).log()), {**vars(state)}) for number in numbers])
    assert_same(*outcomes)
    assert len(of_kind(log, "capture_started")) <= entries


NUMBERS = [3.0, 2.5, 2.75, 1.0, 1.5, 0.5, 0.25, 0.3, 4.0, 0.2, 0.21, 0.1, 0.6, 7.0, 3.0, 3.0, 2.0, 9.0, 1.0, 0.5]


@pytest.mark.parametrize(
    ("method", "entries"),
    [
        (State.average, 3), (State.keeps_best, 5), (State.smooth, 5), (State.distance, 5), (State.is_other, 5),
        (State.above_average, 6), (State.rounded, 6), (State.remainder, 7),
    ],
)
def test_a_number_that_was_read_and_what_the_program_keeps(method, entries):
    check(method, NUMBERS, entries)


def test_numbers_that_are_none():
    check(State.keeps_best, [1.0, math.nan, 0.5, math.inf, 0.25, math.nan, 0.1, 0.05], 6, lambda state: state.bad)
    check(State.above_average, [1.0, 2.0, math.inf, 1.0, math.nan, 3.0, 0.5], 8, lambda state: state.bad)


def test_arguments():
    def f(x, a, b):
        return x * 2 if a * 0.5 > b + 0.25 else x - b

    compiled, x = framejit.optimize(f, backend="eager"), torch.randn(3)
    pairs = [(1.0, 2.0), (2.0, 0.5), (3.0, 0.25), (3.5, 4.0), (1.5, 0.75), (5.0, 3.0), (7.0, 0.0), (0.5, 0.0)]
    for a, b in pairs:
        assert_same(f(x, a, b), compiled(x, a, b))
    assert len(compiled.entries) <= 5
    for a, b in ((3, 1.0), (3.0, 1), (True, 0.0), (math.nan, 1.0), (torch.tensor(2.0), 0.5)):  # of other types
        assert_same(f(x, a, b), compiled(x, a, b))


def test_what_raises_in_eager():
    def f(x, a, b):
        return x * (a / (a - b))

    compiled, x = framejit.optimize(f, backend="eager"), torch.randn(3)
    for a, b in ((1.0, 2.0), (2.0, 0.5), (3.0, 0.25), (3.0, 3.0), (1.5, 0.75), (1.0, 1.0)):
        if a == b:
            said = []
            for run in (f, compiled):
                with pytest.raises(ZeroDivisionError) as raised:
                    run(x, a, b)
                said.append(str(raised.value))
            assert said[0] == said[1]
        else:
            assert_same(f(x, a, b), compiled(x, a, b))


def test_sizes_beside_numbers():
    def f(x, rate, total):
        n = x.shape[0]
        if rate * 3 > n:
            return x * (total / n)
        return x - (n - rate)

    compiled = framejit.optimize(f, backend="eager", dynamic=True)
    calls = [(3, 0.5, 2.0), (4, 0.75, 3.0), (5, 2.5, 4.0), (7, 0.5, 5.0), (2, 2.5, 6.0), (9, 4.5, 1.0)]
    for size, rate, total in calls:
        x = torch.randn(size)
        assert_same(f(x, rate, total), compiled(x, rate, total))
    assert len(compiled.entries) <= 4


def test_powers_and_quotients_of_counts():
    def f(x, n):
        cycle = math.floor(1 + n / 6)
        place = n / 6 - cycle
        return x * (place / -0.5) / 2.0 ** (cycle - 1) + 1 / 1.5**n

    compiled, x = framejit.optimize(f, backend="eager"), torch.randn(3)
    for n in range(20):
        assert_same(f(x, n), compiled(x, n))
    assert len(compiled.entries) <= 2
    for n in (500, 569, 570, 2000, 6200, 3):  # the last but one is too large for a power
        try:
            expected = f(x, n)
        except OverflowError:
            with pytest.raises(OverflowError):
                compiled(x, n)
        else:
            assert_same(expected, compiled(x, n))


def test_functions_of_numbers_of_several_places():
    def f(x, a, b, n):
        number = math.exp(a - b) + math.sqrt(abs(a * n)) + math.cos(float(n) - b)
        return x * number if abs(number) // 1.5 else x - int(number), [0] * int(math.exp(a - b))

    compiled, x = framejit.optimize(f, backend="eager"), torch.randn(3)
    with framejit.config.patch(debug=True):
        for number in range(12):
            a, b, n = 0.25 * number, 0.5 * (number % 5), number + number % 3
            assert_same(f(x, a, b, n), compiled(x, a, b, n))


def test_counts_that_are_known_by_then():
    def f(x, rate, n):
        for _ in range(n):
            x = x + 1
        if n / 2 > math.sqrt(n) and rate * n > rate + 3:
            return x * (n / 4)
        return x - n * rate

    compiled, x = framejit.optimize(f, backend="eager"), torch.randn(3)
    with framejit.config.patch(debug=True):
        for number in range(12):
            rate, n = 0.25 * number, number % 7
            assert_same(f(x, rate, n), compiled(x, rate, n))
