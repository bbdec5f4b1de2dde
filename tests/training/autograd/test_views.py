"""Results that are views, of tensors made inside and of inputs, are what eager's are: to autograd, and in memory."""

import pytest
import torch
import torch.nn.functional as F

import framejit

from twins import Twins, leaf

VIEWS = {
    "one": lambda x, w: (x @ w).exp().t(),
    "of a view": lambda x, w: (x @ w).exp().t()[1:, None],
    "tensor and view": lambda x, w: ((h := x.exp() @ w), h.t(), h[0]),
    "view and a loss of it": lambda x, w: ((h := (x @ w).tanh().view(-1)), (h * h).sum()),
    "parts": lambda x, w: (x @ w).sin().split(2),
    "one of several, the other used": lambda x, w: ((h := (x @ w).unbind())[0], h[1].sin(), h[1].sum()),
    "one of several of one of several": lambda x, w: (
        (h := (x @ w).split(1)), (p := h[2].chunk(3, 1))[1], h[0].cos(), p[0].sum(), p[2].exp()
    )[1:],
    "several of several": lambda x, w: (*(h := (x @ w).cos()).unbind(), h.diagonal(), h.expand(2, 3, 3)[1]),
    "linear of three dimensions": lambda x, w: F.linear(x[None], w, w[0]).tanh() + F.linear(x[None], w),
    "logits": lambda x, w: F.linear(x[None], w, w[0]),
    "vector and matrix": lambda x, w: ((h := x[0] @ w), h.sin(), w @ x[0]),
    "of a vector and a matrix": lambda x, w: (x[0] @ w)[1:],
    "sizes changed in place": lambda x, w: (
        (h := (x @ w)[None]), (v := h[0]), h.squeeze_(0), h.t_().unsqueeze_(1).swapaxes_(0, 2), h.sin() + v.cos(), v,
    )[2:],
    "of an input": lambda x, w: (x.t(), (x * w).sum(), w[1:].view(-1)),
    "nothing but a view": lambda x, w: x.t(),
    "detached": lambda x, w: ((h := x * w), h.detach(), h.detach()[1], x.detach()),
    "without gradients": lambda x, w: (x * w, (x.detach() > 0)[1], (x.detach() * 2).t()),
    "twice the same": lambda x, w: ((h := (x @ w).exp()), h, (t := h.t()), t),
    "of complex numbers": lambda x, w: torch.view_as_real(torch.complex(x, w) * 2)[..., 0],
    "a cut of a padded one": lambda x, w: F.pad(x * w, (1, 1))[:, 1:-1],
    "more than there may be nodes": lambda x, w: (x @ w).exp().expand(40, 3, 3).unbind(),
    "reshaped and used": lambda x, w: ((h := (x * w).expand(2, 3, 3)).reshape(-1), h[None] * 2),
    "reshaped only": lambda x, w: (x @ w).exp().t().reshape(-1),
    "flat and used": lambda x, w: ((h := (x @ w).sin()).flatten(), h * 2, h.reshape(-1, 1)),
    "made in no_grad()": lambda x, w: (x * w, _without((x * w), lambda h: h.t())),
    "written before": lambda x, w: ((h := x * w).mul_(2), h.t())[1],
    "written behind it": lambda x, w: ((h := x * w), (v := h[0]), h.mul_(2), v.sin())[1:],
    "written by a part of it": lambda x, w: ((h := x * w), h[:, 0].copy_(w[1].exp()), h.t())[2:],
    "written and flat": lambda x, w: ((h := (x @ w).add_(1)).view(-1), h),
    "written by way of it": lambda x, w: ((h := x * w), (v := h[0]).mul_(2), v)[::2],
}
REFUSED = [VIEWS["made in no_grad()"]]


def _without(h, made):
    with torch.no_grad():
        return made(h)


def tensors(out):
    return [o for o in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(o, torch.Tensor)]


def facts(fn, x, w):
    outs = tensors(fn(x, w))
    known = [*outs, x, w]
    places = [torch._C._autograd._get_creation_meta(o).value if o._is_view() else None for o in outs]
    of = [[o._base is other for other in known] + [o._base is other._base for other in outs] for o in outs]
    memory = [[o.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() for other in known] for o in outs]
    return outs, places, of, memory, [(o._is_view(), o.storage_offset(), o._version) for o in outs]


def gradients(fn, x, w):
    total = sum((o.abs() * (k + 1)).sum() for k, o in enumerate(tensors(fn(x, w))) if o.requires_grad)
    found = torch.autograd.grad(total, [x, w], allow_unused=True)
    return [gradient if gradient is None else gradient.contiguous() for gradient in found]


def written(fn, x, w):
    """Gradients where the program writes into a result."""
    outs = tensors(fn(x.clone(), w))
    try:
        outs[-1].mul_(3)
        total = sum((o.abs() * (k + 1)).sum() for k, o in enumerate(outs) if o.requires_grad)
        return outs, torch.autograd.grad(total, [x, w], allow_unused=True)
    except RuntimeError as e:
        return str(e).partition(", which is output")[0]


def hooks(fn, x, w):
    seen = []
    outs = [o for o in tensors(fn(x, w)) if o.requires_grad]
    for number, out in enumerate(outs):
        if out._base is not None and out._base.requires_grad and not out._base.is_leaf:
            out._base.register_hook(lambda gradient, number=number: seen.append((number, gradient.contiguous())))
        out.register_hook(lambda gradient, number=number: gradient * (number + 2))
    sum((o.abs() * (k + 1)).sum() for k, o in enumerate(outs)).backward()
    return x.grad, w.grad, seen


def of_gradients(fn, x, w):
    outs = [o for o in tensors(fn(x, w)) if o.requires_grad]
    found = torch.autograd.grad(sum((o * o).abs().sum() for o in outs), [x, w], create_graph=True, allow_unused=True)
    found = [gradient for gradient in found if gradient is not None]
    again = torch.autograd.grad(sum((g * g).sum() for g in found), [x, w], allow_unused=True)
    return [g.contiguous() if g is not None else None for g in again]


@pytest.mark.parametrize("use", [facts, gradients, written, hooks, of_gradients])
@pytest.mark.parametrize("fn", VIEWS.values(), ids=VIEWS)
def test_views(fn, use):
    Twins(fn, leaf(3, 3), leaf(3, 3), fused=fn not in REFUSED).both(use)


WRITTEN_PARTS = {
    "its data": lambda x, w: ((h := F.linear(x, w, w[0])), (d := x.data).add_(1), d.sub_(h))[:0],
    "detached, and read": lambda x, w: ((h := F.linear(x, w, w[0])), (d := x.detach()).add_(1), d.sub_(h), d * 2)[3:],
    "by places": lambda x, w: (
        (h := x @ w), (d := x.detach().as_strided((2,), (1,), x.storage_offset() + 1)).add_(1), d.mul_(h[:2]), d * 2,
    )[3:],
    "one of several": lambda x, w: ((h := x @ w), (d := x.detach().split(2))[0].add_(1), d[0] * h.sum())[2:],
}


@pytest.mark.parametrize("fn", WRITTEN_PARTS.values(), ids=WRITTEN_PARTS)
def test_writing_into_a_part_of_a_tensor(fn, monkeypatch):
    """The input begins somewhere inside its storage; what takes its place in the graph begins where its own does."""
    monkeypatch.setattr(framejit.config, "debug", True)
    w = leaf(3, 3)
    compiled = framejit.optimize(fn)
    for _ in range(2):
        whole = torch.randn(4, 3, dtype=torch.float64)
        outcomes = []
        for f in (fn, compiled):
            copy = whole.clone()
            outcomes.append((f(copy[1], w), copy))
        torch.testing.assert_close(outcomes[1], outcomes[0])
