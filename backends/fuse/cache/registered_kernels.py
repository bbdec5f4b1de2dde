"""Which kernels Python code has registered for ATen's operations (`torch.library`)."""

from __future__ import annotations

import torch


def registered_kernels() -> list[str]:
    """Operations and dispatch keys, as torch notes them, in order. Torch's own modules register some when they are
    imported, and operations of their own, which are left out."""
    return sorted(place for place in torch.library._impls if place.startswith("aten/"))
