"""`torch.autograd.Function`: inlined where no gradient is wanted, else one node that makes the call for real."""
import pytest
import torch

import framejit

from comparison import assert_same
from support import check, check_state

X = torch.arange(1.0, 5.0)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        scale = scale + 1000 * torch.is_grad_enabled()
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x**3 * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 100 * ctx.scale + x, None  # wrong on purpose: only the user's backward gives this


class WithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x, y=None):
        return x.exp(), x.argmax()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        result, where = output
        ctx.mark_non_differentiable(where)
        ctx.save_for_backward(result)

    @staticmethod
    def backward(ctx, grad, _):
        return grad * ctx.saved_tensors[0] * 7, None


class GivesBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x, y * 2, None, 3

    @staticmethod
    def backward(ctx, a, b, c, d):
        return a * 5, b * 2


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


def with_gradients(fn, *args):
    """The results and the gradients of the arguments."""

    def run(*args):
        results = fn(*args)
        results = results if isinstance(results, tuple) else (results,)
        leaves = [a for a in args if a.requires_grad]
        total = sum(r.sum() for r in results if isinstance(r, torch.Tensor) and r.requires_grad)
        return results, torch.autograd.grad(total, leaves)

    compiled = framejit.optimize(fn, backend="eager")
    return run(*args), run_compiled(compiled, run, args)


def run_compiled(compiled, run, args):
    results = compiled(*args)
    results = results if isinstance(results, tuple) else (results,)
    total = sum(r.sum() for r in results if isinstance(r, torch.Tensor) and r.requires_grad)
    return results, torch.autograd.grad(total, [a for a in args if a.requires_grad])


def cube(x):
    return Cube.apply(x * 2, 3.0) + 1


def setup(x):
    a, where = WithSetup.apply(x + 1, None)
    return a * 2, where


def gives_back(x, y):
    return GivesBack.apply(x, y)


@pytest.mark.parametrize("fn", [cube, setup, lambda x: gives_back(x, x * 2), lambda x: Reverse.apply(x + 1)])
def test_inlined_where_nothing_wants_gradients(fn):
    check(fn, X, fullgraph=True)
    with torch.no_grad():
        check(fn, X.clone().requires_grad_(), fullgraph=True)


def test_an_argument_given_back_is_another_tensor():
    def fn(x):
        a = GivesBack.apply(x, x)[0]
        return a is x, a._is_view(), a

    assert framejit.optimize(fn, backend="eager")(X)[:2] == fn(X)[:2] == (False, True)


@pytest.mark.parametrize("fn", [cube, setup])
def test_a_node_where_gradients_are_wanted(fn):
    x = X.clone().requires_grad_()
    check(lambda x: fn(x)[0] if fn is setup else fn(x), x, fullgraph=True)
    expected, got = with_gradients(fn, x)
    torch.testing.assert_close(got, expected)
    assert [r.requires_grad for r in got[0]] == [r.requires_grad for r in expected[0]]


def test_what_forward_reads_is_guarded():
    def make():
        state = {"power": 2}

        class Power(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x ** state["power"] if state["power"] < 4 else x[:2]

            @staticmethod
            def backward(ctx, grad):
                return grad

        def fn(x, power):
            state["power"] = power
            return Power.apply(x).sum()

        return fn, state

    x = X.clone().requires_grad_()
    check_state(make, (x, 2), (x, 3), (x, 5), (x, 2), breaks=None)


def test_effects_of_forward_happen_in_order():
    def make():
        seen = []

        class Noisy(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                seen.append(len(seen))
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad

        def fn(x):
            seen.append("before")
            y = Noisy.apply(x)
            seen.append("after")
            return y.sum()

        return fn, seen

    check_state(make, (X,), (X,))
    x = X.clone().requires_grad_()
    check_state(make, (x,), (x,), breaks=None)


def test_a_forward_that_raises():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if x.shape[0] > 2:
                raise ValueError("too long")
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad

    def fn(x):
        try:
            return Fails.apply(x * 2)
        except ValueError as e:
            return x + len(str(e)), torch.is_grad_enabled()

    check(fn, X)
    check(fn, X.clone().requires_grad_(), breaks=None, graphs=None)


def test_written_arguments():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    def fn(x):
        y = x + 1
        z = Double.apply(y)
        return z is y, z + y

    check(fn, X)
    check(fn, X.clone().requires_grad_(), graphs=None, breaks=None)


class BackWithMore(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, places):
        ctx.save_for_backward(x)
        return x, x * y, y, places, x

    @staticmethod
    def backward(ctx, a, b, c, d, e):
        (x,) = ctx.saved_tensors
        return a * 2 + b * x + e * 5, c * x, None


class BackBySetup(torch.autograd.Function):
    @staticmethod
    def forward(x, factor):
        return x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


class KeptBySetup(BackBySetup):
    """Which torch refuses where the same tensor is given back."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]
        ctx.save_for_backward(inputs[0])


class MarkedConstant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_non_differentiable(y)
        return x * 2, y

    @staticmethod
    def backward(ctx, a, b):
        return a * 3, None


def back_of_a_result(x, w):
    return (BackBySetup.apply(x * w, 3.0) * w).sin()


def back_of_an_argument(x, w):
    return BackBySetup.apply(w, 0.5), BackBySetup.apply(BackBySetup.apply(x, -1.0) * w, 2.0), w * 2


def back_with_more(x, w):
    a, b, c, places, e = BackWithMore.apply(x * w, w, torch.arange(4))
    return a * b + c * e, places


def back_of_what_has_no_gradients(x, w):
    a, b, c, _, e = BackWithMore.apply(x, w, None)
    return a * w, b + c, e


def marked_constant(x, w):
    y, z = MarkedConstant.apply(w, x)
    return y * z, z.requires_grad


def kept_by_setup(x, w):
    return KeptBySetup.apply(x * w, 2.0)


def written_afterwards(x, w):
    y = BackBySetup.apply(x * w, 2.0)
    y.add_(1)
    return y


def of_a_tensor_that_is_written_afterwards(x, w):
    y = x * w
    z = BackBySetup.apply(y, 2.0)
    y.mul_(2)
    return y, z


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize(
    "fn, is_captured",
    [
        (back_of_a_result, True), (back_of_an_argument, True), (back_with_more, True),
        (back_of_what_has_no_gradients, True), (marked_constant, False), (kept_by_setup, False),
        (written_afterwards, False), (of_a_tensor_that_is_written_afterwards, False),
    ],
)
def test_an_argument_that_is_given_back_with_gradients(fn, is_captured, backend):
    """What torch refuses of it, it refuses in the same words."""

    def run(fn, x):
        w = torch.linspace(-1, 2, 4).requires_grad_()
        try:
            results = fn(x, w)
            results = results if isinstance(results, tuple) else (results,)
            sum(r.sum() for r in results if isinstance(r, torch.Tensor) and r.requires_grad).backward()
        except RuntimeError as e:
            return str(e)
        return [(r, r.requires_grad, r._is_view()) if isinstance(r, torch.Tensor) else r for r in results], w.grad

    compiled = framejit.optimize(fn, backend=backend, fullgraph=is_captured)
    for x in (X, X * 2, X):
        assert_same(run(compiled, x), run(fn, x))
