"""Questions about data whose other answer makes the program raise are assertions of the graph; where one fails, plain
Python raises.

(PYTEST_DONT_REWRITE: the asserts here belong to the code under test.)
"""
import pytest
import torch

import framejit

from support import ANY, Pair, check

X = torch.tensor([1.0, 2.0, 3.0])


def asserts(x):
    assert (x > 0).all(), f"not positive: {x.tolist()}"
    return x + 1


def raises(x):
    total = x.sum()
    if total < 0:
        text = f"the sum is {float(total)}"
        raise ValueError(text)
    return x * 2


def raises_unless(x):
    y = x * 2
    if (x > 0).any():
        y = y + 1
    else:
        raise KeyError("nothing is positive")
    return y


def number(x):
    assert x.sum()
    return x + 1


def integer(x):
    if not x.to(torch.int64).min():
        raise ZeroDivisionError
    return x / x.min()


def in_a_call(x):
    def checked(y):
        assert y.min() > 0
        return y.sqrt()

    return checked(x) + checked(x + 1)


def by_torch(x):
    torch._assert((x > 0).all(), "not positive")
    return x + 1


def by_check(x):
    torch._check_tensor_all(x > 0, lambda: f"not all positive, but {x.min()}")
    return x + 1


def by_a_function_that_tells(x):
    def are_positive(y) -> bool:
        return bool((y > 0).all())

    if not are_positive(x):
        raise ValueError("not positive")
    return x.log()


def by_one_that_denies(x):
    def is_zero(y):
        return not y.any()

    if is_zero(x):
        raise ValueError("nothing but zeros")
    return x / x.sum()


def by_a_truth_in_a_variable(x):
    fine = bool(x.min() > 0)
    assert fine, "not positive"
    return x + 1


def under_a_mode(x):
    with torch.no_grad():
        assert x.min() > 0, "low"
        return x + 1


EACH = [
    asserts, raises, raises_unless, number, integer, in_a_call, by_torch, by_check, by_a_function_that_tells,
    by_one_that_denies, by_a_truth_in_a_variable, under_a_mode,
]


@pytest.mark.parametrize("fn", EACH)
def test_one_graph(fn):
    check(fn, X, fullgraph=True)


@pytest.mark.parametrize("fn", EACH)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_other_answers_raise_as_in_plain_python(fn, fullgraph):
    pair = Pair(lambda: fn, fullgraph=fullgraph, traceback=fn is not by_torch)
    raised = []
    for x in (X, torch.zeros(3), -X, X + 1, -X, -X, X):
        pair.call(x)
        raised.append(pair.raised)
    assert any(raised) and raised[0] is raised[3] is raised[-1] is None


def test_effects_before_it():
    def make():
        log, kept = [], torch.zeros(3)

        def fn(x):
            log.append("begun")
            kept.add_(1)
            x.mul_(2)
            assert x.sum() > 0
            log.append("done")
            return x + kept

        return fn, lambda: (list(log), kept)

    pair = Pair(make)
    for x in (X, -X, X, -X, -X, X):
        pair.call(x)


def test_handled_by_the_program():
    def fn(x):
        try:
            if x.sum() < 0:
                raise ValueError("negative")
            return x + 1
        except ValueError as e:
            return x - 1, str(e)

    pair = Pair(lambda: fn)
    for x in (X, -X, X, -X, -X, X):
        pair.call(x)


def test_other_sizes_and_kinds():
    def fn(x):
        assert x, "false"
        return x + 1

    for x in (torch.tensor(1), torch.tensor([1.5]), torch.tensor([[True]])):
        check(fn, x, fullgraph=True)
    for x in (torch.ones(2), torch.ones(0)):
        check(fn, x, raises=RuntimeError)


def test_branches_that_go_on_break():
    def fn(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    with pytest.raises(framejit.errors.GraphBreakError):
        framejit.optimize(fn, fullgraph=True, backend="eager")(X)
    check(fn, X, graphs=ANY, breaks=None)
