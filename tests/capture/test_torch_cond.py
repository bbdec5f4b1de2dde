"""`torch.cond` is one node of the graph: the branch that the data asks for runs, and the other does not."""

import warnings

import numpy as np
import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

import framejit

import forked
from comparison import assert_same
from support import of_kind, recorded

X = torch.arange(1.0, 5.0)
WEIGHTS = torch.arange(16.0).reshape(4, 4) / 10


def two_results(x):
    def positive(y):
        hidden = torch.sin(y) @ WEIGHTS
        return hidden * 2, y.sum()

    def negative(y):
        return y - 1, y.mean()

    a, b = torch.cond(x.sum() > 0, positive, negative, (x,))
    return a * 2 + b


def in_plain_python(x):
    a, b = ((torch.sin(x) @ WEIGHTS) * 2, x.sum()) if x.sum() > 0 else (x - 1, x.mean())
    return a * 2 + b


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_the_branch_is_chosen_when_the_graph_runs(backend):
    fast = framejit.optimize(two_results, backend=backend, fullgraph=True)
    with recorded() as log:
        for x in (X, -X, X * 2, -X * 3):
            torch.testing.assert_close(fast(x), in_plain_python(x))
    assert len(of_kind(log, "graph")) == 1


@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_flow_through_the_branch_that_ran(sign):
    x, plain = (sign * X).requires_grad_(), (sign * X).requires_grad_()
    framejit.optimize(two_results, fullgraph=True)(x).sum().backward()
    in_plain_python(plain).sum().backward()
    torch.testing.assert_close(x.grad, plain.grad)


def test_the_other_branch_draws_no_random_numbers():
    def fn(x):
        return torch.cond(
            x.sum() > 0, lambda y: y * torch.rand(4), lambda y: y * torch.rand(4) * torch.rand(4), (x,)
        ) + torch.rand(4)

    def plain(x):
        return (x * torch.rand(4) if x.sum() > 0 else x * torch.rand(4) * torch.rand(4)) + torch.rand(4)

    fast = framejit.optimize(fn, fullgraph=True)
    for x in (X, -X, X):
        torch.manual_seed(0)
        expected = plain(x)
        torch.manual_seed(0)
        torch.testing.assert_close(fast(x), expected)


def test_a_predicate_that_is_known_takes_its_branch_as_python_does():
    def fn(x, n):
        return torch.cond(n > 2, lambda y: y, lambda y: y[:2], (x,))

    fast = framejit.optimize(fn, fullgraph=True)
    assert fast(X, 3) is X and fast(X, 1).shape == (2,)


def test_nested():
    def inner(y):
        return torch.cond(y.max() > 3, lambda z: z.exp(), lambda z: z * 10, (y,))

    def fn(x):
        return torch.cond(x.sum() > 0, inner, lambda y: y - 1, (x,))

    fast = framejit.optimize(fn, fullgraph=True)
    for x, expected in ((X, X.exp()), (X / 4, X / 4 * 10), (-X, -X - 1)):
        torch.testing.assert_close(fast(x), expected)


def test_a_closed_over_module_is_an_input_of_the_branch():
    layers = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def fn(x):
        return torch.cond(x.sum() > 0, lambda y: layers[0](y), lambda y: layers[1](y).relu(), (x,)) * 2

    with torch.no_grad():
        fast = framejit.optimize(fn, fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(fast(X), layers[0](X) * 2)
            torch.testing.assert_close(fast(-X), layers[1](-X).relu() * 2)
            layers[1].weight.mul_(3)


@pytest.mark.slow
def test_it_is_what_torch_itself_computes():
    """Against torch.cond in plain Python, which Dynamo compiles."""

    def fn(x):
        some = torch.cond(x.sum() > 0, lambda y: [y.sin(), y.sum()], lambda y: [y - 1, y.mean()], (x,))
        return some, torch.cond((x > 0).all(), two_results, lambda y: y * 3, (x,))

    fast = framejit.optimize(fn, fullgraph=True)
    for x in (X, -X):
        assert_same(fn(x), fast(x))


def test_operands_and_results_in_containers():
    """In plain Python Dynamo compiles it, which this does not wait for."""

    def more(given, pair):
        rows = given["rows"] * pair[0]
        return {"rows": rows, "parts": [(rows.sum(), given["inner"][0] + pair[1])]}

    def less(given, pair):
        return {"rows": given["rows"] - pair[1], "parts": [(pair[0].sum() * 2, pair[1] * given["inner"][0])]}

    def fn(x, w, cond=torch.cond):
        made = cond(x.sum() > 0, more, less, ({"rows": x, "inner": [w]}, (w, x + 1)))
        return made["rows"] + made["parts"][0][0], made

    def plain(pred, if_true, if_false, operands):
        return (if_true if pred else if_false)(*operands)

    fast = framejit.optimize(fn, fullgraph=True)
    for x in (X, -X, X * 2):
        inputs, others = [[each.clone().requires_grad_() for each in (x, X - 1)] for _ in range(2)]
        (total, made), (expected, others_made) = fast(*inputs), fn(*others, plain)
        assert_same((total, made), (expected, others_made))
        found = [
            torch.autograd.grad(a.sum() + b["parts"][0][1].sum(), c)
            for a, b, c in ((total, made, inputs), (expected, others_made, others))
        ]
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("operands", [lambda x: (x, 3), lambda x: ([x, 2],)], ids=["number", "list"])
def test_operands_that_are_no_tensors_are_left_to_torch(operands):
    def fn(x):
        return torch.cond(x.sum() > 0, lambda *y: x + 1, lambda *y: x - 1, operands(x))

    with recorded() as log:
        try:
            expected = fn(X)
        except Exception as e:
            with pytest.raises(type(e)):
                framejit.optimize(fn)(X)
        else:
            torch.testing.assert_close(framejit.optimize(fn)(X), expected)
    assert "FJ127" in [event.code for event in of_kind(log, "graph_break")]


seen = []


def _appends(y):
    seen.append(1)
    return y + 1


@pytest.mark.parametrize(
    "branch",
    [
        lambda y: y,
        lambda y: y[:],
        lambda y: y.double(),
        lambda y: torch.cat([y, y]),
        lambda y: y.add_(1),
        lambda y: (y + 1, y + 2),
        lambda y: 3,
        lambda y: y.reshape(3, 3),
        lambda y: y * y.max().tolist(),
        _appends,
    ],
    ids=["operand", "view", "dtype", "shape", "write", "two", "number", "raises", "breaks", "effect"],
)
def test_what_does_not_fit_is_left_to_torch(branch):
    """The graph ends before the call, which torch then makes, or refuses, itself."""
    calls = []

    def cond(*args):
        calls.append(args)
        return args[3][0] * 0

    def fn(x):
        return torch.cond(x.sum() > 0, lambda y: y + 1, branch, (x * 2,))

    x = X.clone()
    with recorded() as log, pytest.MonkeyPatch.context() as patch:
        from framejit.values import handlers

        handler = handlers.HANDLERS[torch.cond]
        patch.setitem(handlers.HANDLERS, cond, handler)
        patch.setattr(torch, "cond", cond)
        framejit.optimize(fn)(x)
    assert len(calls) == 1 and torch.equal(x, X) and seen == []
    assert {event.code for event in of_kind(log, "graph_break")} <= {"FJ127", "FJ101", "FJ104"}


def number_in_a_branch(x, number):
    n = number.item()
    return torch.cond(x.sum() > 0, lambda y: y * (n * 3), lambda y: y * 2, (x,)), n * 3


def number_in_a_body(x, number):
    n = number.item()
    _, made = while_loop(lambda left, y: left < 0, lambda left, y: (left + 1, y * (n * 3)), (x.sum().int(), x))
    return made, n * 3


@pytest.mark.parametrize("function", [number_in_a_branch, number_in_a_body])
def test_what_is_checked_where_it_need_not_run_is_checked_outside_too(function):
    fast = framejit.optimize(function)
    x, expected = (X, X) if function is number_in_a_body else (-X, -2 * X)
    for number in (2, 2**62, -(2**63), 5):
        assert_same((expected, number * 3), fast(x, torch.tensor(number)))


def root(x):
    root = np.sqrt(x.numpy())
    return torch.cond(x.sum() > 9, lambda y: torch.from_numpy(root * 2) + y, lambda y: y - 1, (x,))


def test_what_a_branch_checks_is_checked_outside_too():
    fast = framejit.optimize(root)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in (X, X - 3, X):
            fast(x)
    assert [str(warning.message) for warning in caught] == ["invalid value encountered in sqrt"]


def test_no_other_compiler_is_loaded():
    program = """
import sys, torch, framejit
f = framejit.optimize(lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)), fullgraph=True)
assert f(torch.ones(3)).tolist() == [2.0] * 3 and f(-torch.ones(3)).tolist() == [-2.0] * 3
assert "torch._dynamo.convert_frame" not in sys.modules
"""
    done = forked.run(["-c", program], timeout=120)
    assert done.returncode == 0, done.stderr
