"""What `clamp` makes of nan for its only bound: in torch before 2.13 it bounds nothing, though nan beside another bound
gives nan, as `clamp_min` and `clamp_max` do."""
from __future__ import annotations

import math
from functools import cache

import torch

from framejit.environment.own_thread import asked_apart


@cache
def nan_alone_binds() -> bool:
    """Whether the result is nan."""
    return asked_apart(_clamped_is_nan) is True


def _clamped_is_nan() -> bool:
    return math.isnan(torch.zeros((), device="cpu").clamp(min=math.nan).item())
