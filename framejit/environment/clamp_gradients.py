"""Which gradient `clamp` has where a number equals a bound: from torch 2.15 on none goes there."""
from __future__ import annotations

from functools import cache

import torch

from framejit.environment.own_thread import asked_apart


@cache
def passes_gradients_at_bounds() -> bool:
    """Whether a gradient goes to what equals a bound."""
    return asked_apart(_has_gradient) is True


def _has_gradient() -> bool:
    with torch.enable_grad():
        number = torch.zeros((), device="cpu", requires_grad=True)
        return bool(torch.autograd.grad(number.clamp(min=0.0), number)[0])
