"""`tensor.data = other`: the tensor object gets the memory of another, in its place among the operations."""

import pytest
import torch
from torch import nn

import framejit

from support import ANY, check, check_state

X = torch.tensor([1.0, 2.0, 3.0])


def test_of_an_argument_and_of_a_tensor_made_here():
    def fn(x, p):
        before = p * 10
        view = p.view(-1)
        p.data = x + 1
        y = x.clone()
        y.data = p * 2
        return before, view + 0, p * 3, y, y + p, p.shape

    check(fn, X, torch.ones(3))


def test_of_another_size():
    def fn(x, p):
        p.data = torch.cat([x, x])
        y = x * 1
        y.data = x[:2]
        return p + 1, y.sum(), y.shape, p.shape, len(p)

    check(fn, X, torch.ones(2), changed=[(X, torch.ones(2)), (X * 2, torch.ones(2, 2))])


def test_the_tensors_share_memory_afterwards():
    def fn(x, p):
        made = x * 2
        p.data = made
        p.add_(1)
        made.mul_(3)
        q = x.clone()
        q.data = p[1:]
        q.zero_()
        return made, p * 1, q

    check(fn, X, torch.ones(3))

    def given(x, p):
        p.data = x
        p.add_(1)
        return p + x

    check(given, X.clone(), torch.ones(3))
    p, x = torch.ones(3), X.clone()
    framejit.optimize(given, backend="eager", fullgraph=True)(x, p)
    assert p.data_ptr() == x.data_ptr() and p._version == 1


def test_parameters_that_are_averaged():
    def make():
        torch.manual_seed(0)
        model, average = nn.Linear(3, 2), nn.Linear(3, 2)

        def fn(x):
            for ours, theirs in zip(average.parameters(), model.parameters()):
                ours.data = ours.data * 0.9 + theirs.data * 0.1
                theirs.data -= 0.5
                theirs.data *= 2
            return average(x) + model(x)

        return fn, lambda: [(p, p.requires_grad, p.is_leaf, type(p)) for m in (model, average) for p in m.parameters()]

    check_state(make, (X,), (X,), (X,), graphs=1)


def test_gradients_go_to_the_parameter():
    def make():
        p = nn.Parameter(torch.ones(3))

        def fn(x):
            first = (p * x).sum()
            p.data = x * 5
            return first + (p * p * x).sum()

        return fn, p

    def with_gradients(optimize):
        fn, p = make()
        fn = optimize(fn)
        for _ in range(2):
            fn(X).backward()
        return p.grad, p.detach()

    def outcome(optimize):
        try:
            return with_gradients(optimize)
        except RuntimeError as e:
            return str(e)

    torch.testing.assert_close(
        outcome(lambda fn: framejit.optimize(fn, backend="eager", fullgraph=True)), outcome(lambda fn: fn)
    )


def test_an_operation_that_raises_afterwards():
    def make():
        p, q = torch.ones(3), torch.ones(3)

        def fn(x, i):
            p.data = x + 1
            try:
                y = p[i]
            except IndexError as e:
                return p * 2, str(e)[:20]
            q.data = p.data + 5
            return y + q

        return fn, lambda: (p, q)

    good, bad = torch.tensor([0, 1]), torch.tensor([7])
    check_state(make, (X, good), (X, bad), (X, good), (X, bad), graphs=ANY, breaks=None)


def moved_behind_a_write(p, q, x, i):
    p.add_(1)
    p.data = q
    y = x[i]
    p.mul_(2)
    return y.sum() + p.sum()


def moved_behind_a_write_by_a_view(p, q, x, i):
    view = p.data
    total = view.sum()
    view.mul_(3)
    y = x[i]
    p.data = x + total
    p.add_(1)
    return y + p[0]


def moved_twice(p, q, x, i):
    q.data = p.data
    q.add_(1)
    q.data = x * 2
    y = x[i]
    p.data = q + 1
    q.mul_(2)
    return y + x[i] + p[1]


def moved_away_and_back(p, q, x, i):
    total = p.sum()
    p.zero_()
    y = x[i]
    p.data = q * total
    q.fill_(5.0)
    view = q.data
    view.data = x + x[i][0]
    view.add_(1)
    return y + total, view


MOVING = (moved_behind_a_write, moved_behind_a_write_by_a_view, moved_twice, moved_away_and_back)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("fn", MOVING)
@pytest.mark.parametrize("last", [(2, 2, 7, 1, 1, 7, 0, 7, 2), (7, 1, 1, 7, 7, 2)])
def test_what_an_index_that_raises_leaves(fn, backend, last):
    """Numbers, memory and counts of writes are as Python leaves them, wherever the graph raised."""

    def outcome(fn):
        p, q, seen = nn.Parameter(torch.ones(3)), torch.full((3,), 2.0), []
        with torch.no_grad():
            for place in last:
                before = p.data, q.data
                try:
                    result = fn(p, q, X, torch.tensor([0, 1, place]))
                except IndexError:
                    result = None
                places = [[one.data_ptr() == other.data_ptr() for one in (p, q)] for other in (*before, p)]
                seen.append((result, p.tolist(), q.tolist(), *map(torch.clone, before), places))
                seen.append((p._version, q._version))
        return seen

    torch.testing.assert_close(outcome(framejit.optimize(fn, backend=backend)), outcome(fn))


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_with_other_backends(backend):
    p, x = nn.Parameter(torch.ones(64)), torch.arange(64.0)

    def fn(x):
        p.data = (x.sin() * 2 + p).detach()
        return (p * 2).relu() + 1

    optimized = framejit.optimize(fn, backend=backend)
    for _ in range(3):
        p.data = torch.ones(64)
        expected, after = fn(x), p.detach().clone()
        p.data = torch.ones(64)
        torch.testing.assert_close(optimized(x), expected)
        torch.testing.assert_close(p.detach(), after)


def test_what_torch_refuses_or_python_does():
    def fn(x, p, what):
        y = x + 1
        try:
            if what == "none":
                p.data = None
            elif what == "number":
                p.data = 3
            elif what == "deleted":
                del p.data
            elif what == "dtype":
                p.data = x.long()
            elif what == "parameter":
                nn.Parameter(x).data = x.long()
            elif what == "written":
                p.add_(1)
                p.data = y
                p.add_(1)
            elif what == "twice":
                p.data = y
                p.data = y * 2
            elif what == "itself":
                p.data = p
            elif what == "meta":
                p.data = torch.empty(3, device="meta")
        except (RuntimeError, TypeError, AttributeError) as e:
            return y, type(e), str(e)
        return y + 1, p.dtype, p.device

    for what in ("none", "number", "deleted", "dtype", "parameter", "written", "twice", "itself", "meta"):
        check(fn, X, torch.ones(3), what, graphs=ANY, breaks=None)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_a_backward_sees_the_memory_of_what_it_was_kept_of(backend, dynamic):
    """Autograd keeps the object, written before or not, so that its gradient is computed from what it is given."""

    def written(x):
        y = (x * 2).reshape(-1)
        y.sub_(x.sum())
        spread = y.var()
        y.data = y.data * 2
        return spread, y

    def view(x):
        y = x.sin()
        last = y.view(-1)[-4:]
        last.mul_(2)
        z = last * last
        last.data = torch.ones(4)
        return z, y, last

    for program in (written, view):
        framejit.reset()
        fast = framejit.optimize(program, backend=backend, dynamic=dynamic)
        for rows in (3, 3, 5):
            x = torch.randn(rows, 4, requires_grad=True)
            mine = x.detach().clone().requires_grad_()
            expected, got = program(x), fast(mine)
            torch.testing.assert_close(got, expected)
            assert [t._version for t in got] == [t._version for t in expected]
            for results in (expected, got):
                sum(t.sum() for t in results if t.requires_grad).backward()
            torch.testing.assert_close(mine.grad, x.grad)


@pytest.mark.filterwarnings("error::framejit.FramejitWarning")  # as of a defect
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "make", [lambda x: x, lambda x: x * 1, lambda x: x.detach(), lambda x: x.view_as(x), lambda x: x[1:]]
)
def test_a_normal_tensor_whose_data_are_those_of_an_inference_tensor(make, grad):
    def sets(y):
        y.data = y * 2
        return y * 0.5

    def reads(y):
        return y.sum() * 2

    for program in (sets, reads):
        for inside in (True, False):
            seen = []
            for function in (program, framejit.optimize(program)):
                y = make(torch.arange(4.0).requires_grad_(grad))
                for _ in range(3):
                    with torch.inference_mode(inside or program is reads):
                        if program is reads:
                            y.data = y * 3
                    with torch.inference_mode(inside):
                        result = function(y)
                    told = result.requires_grad, result.is_inference(), y.is_inference()
                    seen.append((result.tolist(), y.tolist(), *told))
            assert seen[:3] == seen[3:]
