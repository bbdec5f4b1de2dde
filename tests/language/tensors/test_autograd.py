"""Gradients through compiled functions: backward outside and inside, leaf handling, custom Functions, grad()."""
# ruff: noqa: B905
import torch
from torch import nn

from support import check

X = torch.tensor([1.0, 2.0, 3.0])


def backward_of(fn):
    """Calls fn, then backward on its sum: the comparison sees the .grad of the arguments."""

    def run(*args):
        out = fn(*args)
        out.sum().backward()
        return out

    return run


def test_backward_outside_the_compiled_function():
    import framejit

    from support import CountingBackend

    backend, w = CountingBackend(), X.clone().requires_grad_()
    fn = framejit.optimize(lambda w: (w * w).sin(), backend=backend)
    fn(w).sum().backward()
    torch.testing.assert_close(w.grad, 2 * X * (X * X).cos())
    assert len(backend.graphs) == 1


def test_module_training_step_accumulates_like_eager():
    import copy

    import framejit

    from support import CountingBackend

    eager = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    twin, backend = copy.deepcopy(eager), CountingBackend()
    fast = framejit.optimize(twin, backend=backend)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (eager, twin)]
    for _ in range(3):
        for model, optimizer in zip((eager, fast), optimizers):
            optimizer.zero_grad()
            model(X).square().mean().backward()
            optimizer.step()
    for p, q in zip(eager.parameters(), twin.parameters()):
        torch.testing.assert_close(p, q)
    assert len(backend.graphs) == 1


def test_backward_inside():
    check(backward_of(lambda w: w * 3), X.clone().requires_grad_(), graphs=range(1, 4), breaks=range(0, 4))


def test_autograd_grad_inside():
    def fn(w):
        (g,) = torch.autograd.grad((w**2).sum(), w)
        return g * 2

    check(fn, X.clone().requires_grad_(), graphs=range(1, 4), breaks=range(0, 4))


def test_detach_stops_the_gradient():
    check(
        backward_of(lambda w: w * 2 + w.detach() * 5), X.clone().requires_grad_(), graphs=range(1, 4),
        breaks=range(0, 4),
    )


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 100 * x  # not the true gradient: shows that this code runs


def test_custom_function_forward_and_its_own_backward():
    import framejit

    from support import CountingBackend

    check(lambda w: Cube.apply(w + 1) * 2, X, graphs=range(1, 4), breaks=range(0, 3))
    w = X.clone().requires_grad_()
    framejit.optimize(lambda w: Cube.apply(w * 1) * 2, backend=CountingBackend())(w).sum().backward()
    torch.testing.assert_close(w.grad, 200 * X)


def test_requires_grad_of_results():
    check(
        lambda a, b: (a * b, b * b, (a * b).detach(), a.requires_grad, (a + 1).requires_grad),
        X.clone().requires_grad_(),
        X,
    )


def test_tensor_hook_registered_inside():
    def fn(w):
        y = w * 2
        y.register_hook(lambda g: g * 10)
        return y * 3

    check(fn, X.clone().requires_grad_(), graphs=range(1, 4), breaks=range(0, 4))


def test_optimizer_step_inside():
    def fn(p, x):
        opt = torch.optim.SGD([p], lr=0.1)
        loss = (p * x).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.detach()

    check(fn, X.clone().requires_grad_(), X, graphs=range(0, 20), breaks=range(0, 20), ops=None, calls=1)


def test_vmap_and_func_grad():
    check(lambda x: torch.vmap(lambda v: v * 2)(x) + 1, X, graphs=range(1, 4), breaks=range(0, 4), calls=1)
    check(lambda x: torch.func.grad(lambda v: (v**2).sum())(x) + 1, X, graphs=range(1, 4), breaks=range(0, 4), calls=1)


def test_no_grad_region_yields_constants_for_autograd():
    def fn(w):
        with torch.no_grad():
            scale = w.abs().max()
        return w / scale

    check(fn, X.clone().requires_grad_())


def test_higher_order_gradient():
    import framejit

    from support import CountingBackend

    w = X.clone().requires_grad_()
    y = framejit.optimize(lambda w: (w**3).sum(), backend=CountingBackend())(w)
    (g,) = torch.autograd.grad(y, w, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), w)
    torch.testing.assert_close(h, 6 * X)
