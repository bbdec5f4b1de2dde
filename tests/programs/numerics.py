"""The numerical programs under test: iterations until a tensor says stop, and routers."""
import torch
from torch import nn


def newton_sqrt(x, tol=1e-5):
    """Newton's iteration for the square root."""
    y = x.clone()
    steps = 0
    while (y * y - x).abs().max() > tol:
        y = 0.5 * (y + x / y)
        steps += 1
    return y, steps


def conjugate_gradient(a, b, tol=1e-10):
    x = torch.zeros_like(b)
    r = b - a @ x
    p, rs = r, r @ r
    for i in range(b.shape[0] * 2):
        ap = a @ p
        alpha = rs / (p @ ap)
        x = x + alpha * p
        r = r - alpha * ap
        new = r @ r
        if new.sqrt() < tol:
            return x, i
        p, rs = r + (new / rs) * p, new
    return x, None


class Router(nn.Module):
    """A mixture of experts that skips experts without tokens."""

    def __init__(self, width=8, experts=4):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(experts))

    def forward(self, x):
        weight, choice = self.gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            mask = choice == i
            if mask.any():
                scaled = expert(x) * weight[:, None]
                out = torch.where(mask[:, None], scaled, out)
        return out + x


def clip_and_report(grads, limit, log):
    """Gradient clipping with a data-dependent branch and a log."""
    total = torch.stack([g.norm() for g in grads]).norm()
    if total > limit:
        scale = limit / (total + 1e-6)
        grads = [g * scale for g in grads]
        log.append(("clipped", total.item()))
    return grads, total
