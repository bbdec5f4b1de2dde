"""A finding says where, what, why, what it cost and what to do."""
import time

import pytest
import torch

import framejit

X = torch.arange(1.0, 5.0)


@pytest.fixture(autouse=True)
def no_branch_is_selected():
    """Each `if` on data breaks the graph, however short it is."""
    with framejit.config.patch(branch_operations=0):
        yield


def findings(fn, *args, **options):
    return framejit.explain(fn, **options)(*args).findings


def only(fn, *args):
    [finding] = findings(fn, *args)
    return finding


def number_used_later(x):
    n = x.max().repeat(17).tolist()[0]
    y = x * 2
    framejit.graph_break()
    for _ in range(2):
        y = y + n
    print(n)
    return y


def inner(z, k):
    w = z * 2
    return w / w.max().repeat(17).tolist()[0] + k


def outer(x):
    return inner(torch.tanh(x), 1)


def test_the_exact_expression_is_underlined():
    def fn(x):
        return x + (2 * x).max().repeat(17).tolist()[0] * 3

    finding = only(fn, X)
    line, carets = finding.excerpt.splitlines()
    assert line[carets.index("^") : carets.rindex("^") + 1] == "(2 * x).max().repeat(17).tolist()"


def test_an_expression_after_wide_characters_is_underlined():
    def fn(x, größe="é"):
        return x + len("äöü") * x.max().repeat(17).tolist()[0]

    line, carets = only(fn, X).excerpt.splitlines()
    assert line[carets.index("^") : carets.rindex("^") + 1] == "x.max().repeat(17).tolist()"


def test_provenance_of_a_number_that_crossed_two_breaks():
    printed = findings(number_used_later, X)
    [finding] = [f for f in printed if f.code == "FJ126"]
    line = number_used_later.__code__.co_firstlineno + 1
    assert finding.provenance == f"`n` is a Python number that came from `x.max().repeat(17).tolist()` on line {line}"


def test_provenance_of_tensors_and_arguments():
    def fn(x, scale):
        y = x.sin()
        if y.sum() > 0:
            y = y * 2
        return y[scale > 0]

    branch, selection = sorted(findings(fn, X, X), key=lambda f: f.line)
    assert branch.provenance == "`y.sum() > 0` is a tensor computed on this line"
    assert f"`y` is a tensor that came from `y * 2` on line {fn.__code__.co_firstlineno + 3}" in selection.provenance
    assert "`scale > 0` is a tensor computed on this line" in selection.provenance


def test_provenance_of_an_attribute_and_a_global():
    class Settings:
        def __init__(self):
            self.weight = X

    def fn(settings, x):
        print(settings.weight)
        return x + 1

    assert only(fn, Settings(), X).provenance == "`settings.weight` is a tensor, read from the argument `settings`"


def test_the_names_of_resume_functions_do_not_show():
    import numpy as np

    def fn(x):
        a = x.numpy()
        return torch.from_numpy(np.sign(a * 2 + a)) + 1

    for finding in findings(fn, X):
        assert (
            "__" not in finding.reason.replace("__mul__", "").replace("__add__", "")
            and "__stack" not in finding.provenance
        )


def test_a_break_in_an_inner_call_names_its_callers():
    finding = only(outer, X)
    assert finding.function == "inner"
    assert finding.callers == [(__file__, outer.__code__.co_firstlineno + 1, "outer")]


def test_how_often_it_ran_and_what_it_cost():
    def fn(x):
        for _ in range(3):
            x = x + 1
            time.sleep(0.01)
        return x

    finding = only(fn, X)
    assert finding.count == 3
    assert 30_000 < finding.cost_us < 60_000


def test_compiling_is_no_cost_of_a_break():
    def slow(gm, example_inputs):
        time.sleep(0.2)
        return gm.forward

    def fn(x):
        y = x + 1
        framejit.graph_break()
        return y * 2

    [finding] = findings(fn, X, backend=slow)
    assert finding.cost_us < 100_000


def test_the_costliest_comes_first():
    def fn(x):
        print(end="")
        y = x + 1
        time.sleep(0.02)
        return y * y.max().repeat(17).tolist()[0]

    costs = [f.cost_us for f in findings(fn, X)]
    assert costs == sorted(costs, reverse=True) and costs[0] > 20_000


def test_nothing_is_measured_once_explained():
    fast = framejit.optimize(outer)
    framejit.explain(outer)(X)
    fast(X)
    [entry] = fast.entries
    assert not any("meter" in repr(slot.target) or "Meter" in repr(slot.target) for slot in entry.slots)


@pytest.mark.parametrize("explained", [False, True])
def test_measured_code_computes_the_same(explained):
    def fn(x, n):
        while x.sum() < 100:
            x = x * 2
            n += 1
        try:
            x = x + int(x.max())
        finally:
            n += 10
        return x, n

    expected = fn(X, 0)
    got = framejit.explain(fn)(X, 0).result if explained else framejit.optimize(fn)(X, 0)
    assert torch.equal(expected[0], got[0]) and expected[1] == got[1]


def test_reasons_say_what_happens():
    def fn(x):
        y = x + 1
        print("hello")
        return y * 2

    finding = only(fn, X)
    assert finding.code == "FJ126"
    assert "writes a message" in finding.reason and "is_compiling" in finding.hint


def test_numpy_is_called_numpy():
    import numpy as np

    def fn(x):
        return x + torch.from_numpy(np.sign(np.ones(4, dtype=np.float32)))

    assert {"FJ105"} <= {f.code for f in findings(fn, X)}
