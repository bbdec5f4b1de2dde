"""Whether two results are the same, up to the rounding of floating-point numbers."""
from __future__ import annotations

import math
from typing import Any

import torch

_DEPTH = 8


def alike(a: Any, b: Any, depth: int = 0) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        same_kind = a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
        return same_kind and torch.allclose(a.detach(), b.detach(), rtol=1e-4, atol=1e-6, equal_nan=True)
    if isinstance(a, float):
        return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6) or a != a and b != b
    if depth > _DEPTH:
        return True
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(alike(x, y, depth + 1) for x, y in zip(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key], depth + 1) for key in a)
    if isinstance(a, (int, str, bytes, complex, set, frozenset, type(None))):
        return bool(a == b)
    return alike(vars(a), vars(b), depth + 1) if hasattr(a, "__dict__") else True
