"""`torch.autograd.Function` in graphs that need gradients: its forward and backward are recorded where both can be
captured; else it runs as it is, between what is compiled before it and behind it."""

import re

import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import framejit
from tests.training.autograd.functions import Reversed

from support import seed
from twins import Twins, leaf

FACTOR = 2.0
SCALE = torch.full((3,), 1.5, dtype=torch.float64)
seen = []


class Straight(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Swish(Function):
    @staticmethod
    def forward(ctx, x, beta):
        ctx.save_for_backward(x)
        ctx.beta = beta
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.beta * x)
        return gradient * (s + ctx.beta * x * s * (1 - s)), None


class Linear(Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight, bias)
        return x.mm(weight.t()) if bias is None else x.mm(weight.t()) + bias

    @staticmethod
    def backward(ctx, gradient):
        x, weight, bias = ctx.saved_tensors
        of_x = gradient.mm(weight) * 3 if ctx.needs_input_grad[0] else None
        of_weight = gradient.t().mm(x) if ctx.needs_input_grad[1] else None
        return of_x, of_weight, gradient.sum(0) if bias is not None else None


class Several(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        where = x.argmax()
        ctx.mark_non_differentiable(where)
        return x * y, where, (x + y).relu()

    @staticmethod
    def backward(ctx, a, _, c):
        x, y = ctx.saved_tensors
        return a * y + c * ((x + y) > 0), a * x


class WithResult(Function):
    @staticmethod
    def forward(x, y=None):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.shape, ctx.pair = inputs[0].shape, (output.sin(), 3)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return (gradient * ctx.saved_tensors[0] * ctx.pair[0] * ctx.pair[1]).reshape(ctx.shape), None


class Mixed(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient @ w.t(), x.t() @ gradient


class Part(Function):
    @staticmethod
    def forward(ctx, x):
        return x[1:]

    @staticmethod
    def backward(ctx, gradient):
        return torch.cat([torch.zeros_like(gradient[:1]), gradient * 3])


class Listening(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        seen.append(len(seen))
        return gradient * 2


class OfGlobals(Function):
    @staticmethod
    def forward(ctx, x):
        return x * FACTOR

    @staticmethod
    def backward(ctx, gradient):
        return gradient * FACTOR


class OfTensors(Function):
    @staticmethod
    def forward(ctx, x):
        return x * SCALE

    @staticmethod
    def backward(ctx, gradient):
        return gradient * SCALE * 2


class Dropping(Function):
    @staticmethod
    def forward(ctx, x):
        mask = (torch.rand_like(x) > 0.5).to(x.dtype)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0] * 5


class Counted(Function):
    @staticmethod
    def forward(ctx, x, counts):
        ctx.counts = counts
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.counts["n"], None


class Misshapen(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient[:1, :2]


class NoneAtAll(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient * 3


class NoZerosForNumbers(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        where = x.argmax()
        ctx.mark_non_differentiable(where)
        return x * 2, where

    @staticmethod
    def backward(ctx, a, b):
        return a * 2 if b is None else a * 5


class WritesGradient(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        gradient.mul_(3)
        return gradient


class NoZeros(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        return (0 if a is None else a * 2) + (0 if b is None else b * 7)


class Modes(Function):
    """As solvers do that run without gradients, and backwards that ask for gradients of what they compute anew."""

    @staticmethod
    def forward(ctx, x, w):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            result = x * w
        ctx.save_for_backward(x, w)
        return result if torch.is_grad_enabled() else result.clone()

    @staticmethod
    def backward(ctx, gradient):
        x, w = (t.detach().requires_grad_() for t in ctx.saved_tensors)
        with torch.enable_grad():
            result = x * w * 3
        return torch.autograd.grad(result, (x, w), gradient)


class OnlyForward(Modes):
    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient * w, (gradient * x).sum(0)


class OnlyBackward(Linear):
    @staticmethod
    def backward(ctx, gradient):
        with torch.no_grad():
            return Linear.backward(ctx, gradient)


class LeavesAMode(OnlyForward):
    @staticmethod
    def forward(ctx, x, w):
        torch.set_grad_enabled(True)
        ctx.save_for_backward(x, w)
        return (x * w).detach()


def chain(x, w):
    h = x @ w
    for _ in range(3):
        h = Straight.apply(Swish.apply(h, 1.5) * 4) / 4
    return h.sin().sum()


def with_what_leads_to_it(x, w):
    h = Straight.apply(Swish.apply(x @ w, 1.5) * 4) / 4
    return (h @ w).square().mean(), h


TRACED = {
    "chain": chain,
    "a loss and what leads to it": with_what_leads_to_it,
    "products": lambda x, w: Linear.apply(x, w, w[0]).sin(),
    "no bias": lambda x, w: Linear.apply(x @ w, w, None).sin(),
    "products of what needs no gradient": lambda x, w: Linear.apply(x.detach(), w, None).sin(),
    "reversed": lambda x, w: Reversed.apply(x @ w, 0.5).sin() * w[0],
    "an argument reversed": lambda x, w: Reversed.apply(x, 0.5) * w[0],
    "several results": lambda x, w: Several.apply(x @ w, w[0])[::2],
    "one of several results": lambda x, w: Several.apply(x @ w, w[0])[2].sin(),
    "a result that is kept": lambda x, w: WithResult.apply(x @ w, None) * w[0],
    "autocast that is off": lambda x, w: Mixed.apply(x, w).sin(),
    "a part": lambda x, w: Part.apply(x @ w).exp(),
    "nothing for a result without gradients": lambda x, w: NoZerosForNumbers.apply(x @ w)[0].cos(),
    "modes in the forward": lambda x, w: OnlyForward.apply(x @ w, w[0]).sin(),
    "no gradient for one argument": lambda x, w: NoneAtAll.apply(x @ w, w[0]) + x,
}
TRACED |= {
    "results that have something in common": lambda x, w: ((r := Several.apply(x @ w, w[0]))[0].sin(), r[2].cos()),
    "classes and domains": lambda x, w: (((h := (x @ w).tanh()) @ w).sin(), (Reversed.apply(h, 0.5) * w[0]).cos()),
    "quantised": lambda x, w: (
        ((q := Straight.apply(z := x @ w * 3)) @ w).sin(), (z - q.detach()).square().mean(), q * 2,
    ),
    "one behind the other": lambda x, w: ((a := Swish.apply(x @ w, 1.5)), Linear.apply(a, w, None), a.sin()),
}
WHOLE = {
    "modes": lambda x, w: Modes.apply(x @ w, w[0].expand(4, 3)) * w[0],
    "modes in the backward": lambda x, w: OnlyBackward.apply(x @ w, w, None).sin(),
    "a mode that is left": lambda x, w: LeavesAMode.apply(x @ w, w[0]).sin(),
    "a view as a result": lambda x, w: Reversed.apply(x @ w, 0.5),
    "listening": lambda x, w: Listening.apply(x @ w).cos(),
    "a global": lambda x, w: OfGlobals.apply(x @ w).cos(),
    "a global tensor": lambda x, w: OfTensors.apply(x @ w).cos(),
    "random numbers": lambda x, w: Dropping.apply(x @ w).cos(),
    "a dict that may change": lambda x, w: Counted.apply(x @ w, {"n": 3}).cos(),
    "the same tensor twice": lambda x, w: NoneAtAll.apply(h := x @ w, h).cos(),
    "nothing for a gradient that does not come": lambda x, w: NoZeros.apply(x @ w)[0].cos(),
    "a gradient that is written": lambda x, w: WritesGradient.apply(h := x @ w) + h,
    "a gradient of another shape": lambda x, w: Misshapen.apply(x @ w).cos(),
}


def use(fn, x, w):
    x.grad = w.grad = None
    seen.clear()
    results = fn(x, w)
    results = results if isinstance(results, tuple) else (results,)
    facts = [(r.stride(), r._is_view(), r._version) for r in results]
    enabled = torch.is_grad_enabled()
    results[0].sum().backward()
    return results, facts, [*seen], x.grad, w.grad, enabled, torch.is_grad_enabled()


def all_results(fn, x, w):
    x.grad = w.grad = None
    results = fn(x, w)
    results = results if isinstance(results, tuple) else (results,)
    found = {}
    for number, result in enumerate(results):
        result.register_hook(lambda gradient, number=number: found.setdefault(number, gradient) * 2)
    sum(r.square().sum() for r in results).backward()
    return [found.get(number) for number in range(len(results))], x.grad, w.grad


class Nothing(Function):
    """Has no gradient for its first argument, which eager's functions are told of."""

    @staticmethod
    def forward(ctx, x, y):
        return x.sum() + y.sum()

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient.expand(3)


def nothing_comes(fn, x, w):
    x.grad = w.grad = None
    results = fn(x, w)
    results = results if isinstance(results, tuple) else (results,)
    found = []
    for result in results:
        if result.requires_grad:
            other = leaf(3)
            try:
                Nothing.apply(result, other).backward(retain_graph=True)
            except TypeError as e:  # of a function that wants no zeros, and knows not what to do then
                found.append(str(e))
                continue
            found.append((None if x.grad is None else x.grad.clone(), None if w.grad is None else w.grad.clone()))
    return found


def gradients_of_gradients(fn, x, w):
    results = fn(x, w)
    result = results[0] if isinstance(results, tuple) else results
    (first,) = torch.autograd.grad(result.sum(), x, create_graph=True, allow_unused=True)
    if first is None or not first.requires_grad:
        return first
    return first.detach(), torch.autograd.grad(first.square().sum(), [x, w], allow_unused=True)


@pytest.mark.parametrize("name", [*TRACED, *WHOLE])
def test_gradients(name):
    fn = (TRACED | WHOLE)[name]
    twins = Twins(fn, leaf(4, 3), leaf(3, 3))
    twins.both(use)
    names = [re.sub(r"^graph_\d+", "", graph.name) for graph in framejit.inspect(twins.compiled).graphs]
    is_one = names[0] == "" and all(each.startswith("_backward") for each in names[1:])
    assert is_one == (name in TRACED), names
    twins.both(all_results)
    twins.both(nothing_comes)
    twins.inputs = [[t.detach().requires_grad_() for t in inputs] for inputs in twins.inputs]
    twins.both(gradients_of_gradients, calls=2)


@pytest.mark.parametrize("name", TRACED)
def test_sizes_that_are_left_open(name):
    fn = TRACED[name]
    compiled = framejit.optimize(fn, backend="fuse", dynamic=True)
    for rows in (4, 6, 9):
        x, w = leaf(rows, 3), leaf(3, 3)
        torch.testing.assert_close(use(compiled, x, w), use(fn, x, w))


def written_around(x, w, buffer):
    h = x @ w
    buffer.add_(1)
    y = Listening.apply(h)
    buffer.mul_(2)
    z = y.sin()
    z.add_(buffer.sum())
    y = Listening.apply(z)
    buffer[1:].add_(1)
    return y.cos() * buffer, z


def test_writes_are_counted_around_what_runs_as_a_whole():
    def use(fn, x, w, buffer):
        x.grad = w.grad = None
        results = fn(x, w, buffer)
        versions = [r._version for r in results], buffer._version
        results[0].sum().backward()
        return results, versions, buffer, x.grad, w.grad

    Twins(written_around, leaf(4, 3), leaf(3, 3), torch.randn(3, dtype=torch.float64)).both(use)


@pytest.mark.parametrize("backend", ["fuse", "eager"])
def test_what_is_another_by_the_time_of_the_backward(backend, monkeypatch):
    def run(fn):
        seed()
        x, w, counts = leaf(4, 3), leaf(3, 3), {"n": 1}
        monkeypatch.setitem(globals(), "FACTOR", 2.0)
        result = fn(x, w, counts)
        counts["n"] = 5
        monkeypatch.setitem(globals(), "FACTOR", 7.0)
        scale = SCALE.clone()
        SCALE.mul_(2)
        try:
            result.sum().backward()
        finally:
            SCALE.copy_(scale)
        return x.grad, w.grad

    def fn(x, w, counts):
        return OfTensors.apply(OfGlobals.apply(Counted.apply(x @ w, counts))).cos()

    compiled = framejit.optimize(fn, backend=backend)
    for _ in range(3):
        torch.testing.assert_close(run(compiled), run(fn))


def test_a_weight_that_is_written_before_the_backward():
    def run(fn):
        seed()
        x, w = leaf(4, 3), leaf(3, 3)
        result = fn(x, w)
        with torch.no_grad():
            w.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()

    def fn(x, w):
        return Linear.apply(x, w, None).sin()

    compiled = framejit.optimize(fn, backend="fuse")
    for _ in range(3):
        run(compiled)
        run(fn)


def test_autocast_that_is_on():
    def fn(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return Mixed.apply(x, w).float().sin()

    def run(fn):
        seed()
        x, w = leaf(4, 3, dtype=torch.float32), leaf(3, 3, dtype=torch.float32)
        fn(x, w).sum().backward()
        return x.grad, w.grad

    compiled = framejit.optimize(fn, backend="fuse")
    for _ in range(3):
        torch.testing.assert_close(run(compiled), run(fn))
