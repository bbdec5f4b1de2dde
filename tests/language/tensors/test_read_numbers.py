"""`float(tensor)`: the number stays in the graph as long as it is only computed with or handed out."""
import warnings

import pytest
import torch

import framejit

from support import CountingBackend, Pair, check


def scaled(x):
    return x * float(x.mean()), 2 - float(x.sum())


def inverse(x, n):
    return x + 1.0 / float(n), -float(n) * 3


def in_place(x):
    before = float(x.max())
    x.add_(1)
    return before, x.sum(), x.mul_(before)


def as_arguments(x):
    number = float(x.abs().mean())
    return x.clamp(max=number), x.int() * number, x.abs() ** number, x.half() + number, torch.lerp(x, -x, number)


def of_one_element(x):
    return float(x.sum().reshape(1, 1)) + float(x.sum() > 0) + float(x.int().sum())


@pytest.mark.parametrize("program", [scaled, in_place, as_arguments, of_one_element])
def test_numbers_stay_in_the_graph(program):
    pair = check(program, torch.randn(3, 4), graphs=1, breaks=0)
    pair.call(torch.randn(3, 4), captures=False)


def test_division_by_a_number_from_a_tensor():
    pair = check(inverse, torch.randn(3), torch.tensor(4), graphs=1, breaks=0)
    pair.call(torch.randn(3), torch.tensor(0))  # the same exception, at the same line, on both sides
    pair.call(torch.randn(3), torch.tensor(7))
    assert pair.raised is None


def test_mean_of_all_batches():
    def make():
        torch.manual_seed(0)
        return torch.nn.BatchNorm2d(3, momentum=None)

    pair = Pair(make)
    for _ in range(3):
        pair.call(torch.randn(2, 3, 4, 4))
    pair.expect(graphs=1, breaks=0)


def branch(x):
    number = float(x.sum())
    if number > 3:
        return x * 2, number
    return x * number


def known_size(x):
    y = x * 2
    return torch.zeros(int(float(y.max())) + 3) + 1


def formatted(x):
    number = float(x.sum())
    return f"{number:.3f}", x + number, {number: 1}


@pytest.mark.parametrize("program", [branch, known_size, formatted])
def test_what_has_to_know_the_number_breaks_the_graph(program):
    pair = check(program, torch.tensor([1.0, 2.5]), graphs=range(1, 3), breaks=range(1, 3))
    pair.call(torch.tensor([-1.0, 0.5]))


def test_the_break_is_told_at_the_read():
    pair = check(branch, torch.tensor([1.0, 2.5]), graphs=2, breaks=1)
    assert "float() of a tensor needs its data" in str(pair.breaks)


def test_torch_warns_of_a_number_read_from_what_has_a_gradient():
    def program(x):
        return float((x * 2).sum())

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            framejit.optimize(program, backend=CountingBackend())(torch.ones(2, requires_grad=True))
        finally:
            torch.set_warn_always(False)
    assert any("requires_grad=True to a scalar" in str(warning.message) for warning in told)


def test_elements_too_many_are_refused():
    pair = Pair(lambda: lambda x: float(x * 2))
    pair.call(torch.ones(2))


def test_loop_that_adds_numbers_up():
    def program(x):
        total = 0.0
        for row in x:
            total += float(row.sum())
        return total / 2, x + total

    check(program, torch.randn(3, 4), graphs=1, breaks=0)
