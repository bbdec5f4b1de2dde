"""Functions that gradients are wanted of, and how these are compared."""

import torch
import torch.nn.functional as F


def gradients(fn, *inputs):
    """The results, and gradients that all inputs have after a backward of their sum."""
    out = fn(*inputs)
    outs = [o for o in (out if isinstance(out, tuple) else (out,)) if isinstance(o, torch.Tensor) and o.requires_grad]
    sum((o * (k + 2)).sum() for k, o in enumerate(outs)).backward()
    return out, [t.grad for t in inputs if isinstance(t, torch.Tensor) and t.is_leaf]


def chain(x, w):
    h = torch.tanh(x @ w)
    return F.gelu(h) * h.sigmoid()


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.neg() * ctx.alpha, None
