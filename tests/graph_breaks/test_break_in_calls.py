"""Breaks inside inlined calls resume inside those calls, at any depth, with the callers' work kept."""
import contextlib
import inspect

import pytest
import torch
from torch import nn

import framejit

from support import Pair, captured_share, check, of_kind, recorded

X = torch.tensor([1.0, 2.0, 3.0])


def leaf(x):
    y = x * 2
    framejit.graph_break()
    return y + 1


def middle(x, k):
    before = x.sin()
    out = leaf(before)
    return out.cos() * k + before


def test_one_level():
    check(lambda x: leaf(x + 1) * 3, X, graphs=2, breaks=1, ops=4)


def test_two_levels():
    def fn(x):
        y = x + 1
        z = middle(y, 2)
        return y * z

    check(fn, X, graphs=2, breaks=1)


def test_break_reports_the_users_line():
    def fn(x):
        return middle(x, 2)

    pair = check(fn, X, graphs=2, breaks=1)
    assert pair.breaks[0][1] == leaf.__code__.co_firstlineno + 2


def test_six_levels_with_work_after_each():
    def level(x, n):
        if n == 0:
            return leaf(x)
        return level(x + n, n - 1) * 2

    check(level, X, 6, graphs=2, breaks=1)


def test_two_breaking_calls_in_a_row():
    check(lambda x: leaf(leaf(x) * 2) - 1, X, graphs=3, breaks=1)


def test_share_of_captured_work_is_complete():
    assert captured_share(lambda: lambda x: middle(x + 1, 3) * 2, X) == 1.0


def test_break_in_a_method():
    class Model:
        def __init__(self, w):
            self.w = w

        def inner(self, x):
            self.seen = x.sum().repeat(17).tolist()[0]
            return x * self.w

        def forward(self, x):
            return self.inner(x + 1) - self.seen

    check(lambda m, x: m.forward(x) * 2, Model(X), X, graphs=range(2, 4), breaks=1)


def test_break_in_a_submodule_of_a_sequential():
    class Peek(nn.Module):
        def forward(self, x):
            self.seen = x.sum().repeat(17).tolist()[0]
            return x * 2

    net = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), Peek(), nn.Linear(3, 3)), nn.Tanh())
    pair = check(net, X, graphs=range(2, 8), breaks=range(1, 3))
    assert pair.backend.ops >= 5


def test_break_in_a_closure_that_writes_a_cell():
    def fn(x):
        total = x

        def add(v):
            nonlocal total
            total = total + v
            framejit.graph_break()
            total = total * 2

        add(1)
        add(x)
        return total + 1

    check(fn, X, graphs=range(2, 6), breaks=1)


def test_break_in_a_default_and_in_a_decorator():
    def loud(f):
        def inner(*args, **kwargs):
            framejit.graph_break()
            return f(*args, **kwargs) + 1

        return inner

    @loud
    def body(x, k=2):
        return x * k

    check(lambda x: body(x + 1, k=3) - 1, X, graphs=2, breaks=1)


def test_break_in_a_callee_called_in_a_loop():
    def fn(x):
        for _ in range(4):
            x = leaf(x) - 1
        return x

    pair = check(fn, X, graphs=range(2, 12), breaks=range(1, 3))
    assert pair.backend.ops >= 3


def test_break_in_a_callee_inside_try_of_the_caller():
    def fails(x):
        y = x + 1
        framejit.graph_break()
        raise ValueError(y.shape[0])

    def fn(x):
        try:
            return fails(x * 2)
        except ValueError as e:
            return x - 1, e.args

    check(fn, X, graphs=range(1, 4), breaks=1)


def test_break_in_a_callee_inside_with_of_the_caller():
    def fn(w):
        with torch.no_grad():
            y = leaf(w * 3)
        return y, w * 2

    # the callee, inside the block, and the rest behind it may be two graphs
    check(fn, X.clone().requires_grad_(), graphs=range(2, 4), breaks=1)


def test_exception_after_a_break_has_the_same_traceback():
    def fails(x):
        y = x + 1
        framejit.graph_break()
        return y.reshape(7)

    def fn(x):
        return fails(x) * 2

    check(fn, X, raises=RuntimeError, calls=1)


def test_break_in_a_callback_of_a_c_function():
    def key(v):
        return -(v * 2).sum().repeat(17).tolist()[0]

    check(lambda x: (sorted([x, x + 1, x - 1], key=key), x * 2), X, graphs=range(1, 8), breaks=range(1, 5))


def test_callee_recompiles_alone_on_a_new_shape():
    def fn(x):
        return leaf(x + 1)

    pair = Pair(lambda: fn)
    pair.call(X)
    pair.call(torch.randn(5), captures=True)
    pair.call(X, captures=False)
    pair.call(torch.randn(5), captures=False)


class Swallow:
    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        return True


def _plainly():
    print(end="")


def _in_a_handler():
    try:
        raise KeyError
    except LookupError:
        print(end="")


def _in_finally_while_an_error_passes():
    with Swallow():
        try:
            raise KeyError
        finally:
            print(end="")


def _past_a_handler_of_something_else():
    with Swallow():
        try:
            raise KeyError
        except ValueError:
            pass
        finally:
            print(end="")


def _in_a_with_block():
    with Swallow():
        print(end="")
        raise KeyError


def _in_a_loop():
    for _ in range(2):
        print(end="")


@pytest.mark.parametrize(
    "breaks",
    [
        _plainly, _in_a_handler, _in_finally_while_an_error_passes, _past_a_handler_of_something_else,
        _in_a_with_block, _in_a_loop,
    ],
)
@pytest.mark.parametrize("inlined", [True, False])
def test_functions_met_behind_a_break_have_the_options_of_the_call(breaks, inlined):
    """The break is in a function that is called, or in the one that is compiled; `leaf` breaks again, so that its frame
    runs as such."""

    def calls(x):
        breaks()
        return leaf(x) + 1

    namespace = dict(breaks.__globals__, leaf=leaf)
    body = inspect.getsource(breaks).replace(f"def {breaks.__name__}():", "def fn(x):") + "    return leaf(x) + 1\n"
    exec(body, namespace)
    graphs = []
    fast = framejit.optimize(
        calls if inlined else namespace["fn"], backend=lambda graph, examples: graphs.append(graph) or graph.forward
    )
    with recorded() as log:
        for _ in range(2):
            assert torch.equal(fast(X), X * 2 + 2)
    assert graphs and len(graphs) == len(of_kind(log, "graph"))  # no other backend was given one


@framejit.disable
@contextlib.contextmanager
def _opaque():
    yield


def _run(code, out, run=exec):
    """Breaks where it enters a block, and then can't be inlined: what it calls by another name looks at its frame."""
    found = []
    for number in range(2):
        with _opaque():
            names = {}
            run(code, names)
            found.append((names["x"], number, out))
    return found


class _Runs:
    def run(self, code, out):
        return _run(code, out)

    def __add__(self, other):
        return _run("x = 2", other)


@pytest.mark.parametrize(
    "call",
    [
        lambda t, o: _run("x = 1", t),
        lambda t, o: _run("x = 1", out=t),
        lambda t, o: _run(*["x = 3"], **{"out": t}),
        lambda t, o: o.run("x = 4", t),
        lambda t, o: o + t,
        lambda t, o: [_run("x = 5", row) for row in t],
    ],
)
def test_a_call_that_is_gone_on_with_and_then_can_not_be_inlined(call):
    def fn(t, o):
        try:
            before = t + 1
            result = call(t * 2, o)
            return before, result, t - 1
        finally:
            t = None

    compiled = framejit.optimize(fn, backend="eager")
    for _ in range(3):
        assert str(compiled(torch.ones(2), _Runs())) == str(fn(torch.ones(2), _Runs()))
