"""What `clamp` makes of nan for its only bound: in torch before 2.13 it bounds nothing, though nan beside another bound
gives nan, as `clamp_min` and `clamp_max` do."""
from __future__ import annotations

import math
import threading
from functools import cache

import torch


@cache
def nan_alone_binds() -> bool:
    """Whether the result is nan."""
    found: list[bool] = []
    # In a thread of its own: no mode of the program's is on there.
    thread = threading.Thread(target=lambda: found.append(_clamped_is_nan()))
    thread.start()
    thread.join()
    return found == [True]


def _clamped_is_nan() -> bool:
    return math.isnan(torch.zeros((), device="cpu").clamp(min=math.nan).item())
