"""Which kernels Python code has registered for ATen's operations (`torch.library`)."""

from __future__ import annotations

import os
from typing import Final

import torch

_HOME: Final = os.path.join(os.path.dirname(torch.__file__), "")
_NO_VALUES: Final = "Meta"
"""The dispatch key of kernels that work out shapes only."""


def registered_kernels() -> tuple[str, ...]:
    """Operations and dispatch keys, as torch notes them, in order. Torch's own modules register some when they are
    imported, and operations of their own, which are left out."""
    global _latest
    noted, found = _latest
    if noted != torch.library._impls:  # each compiled graph asks, and there are more than a thousand
        noted = frozenset(torch.library._impls)
        found = tuple(sorted(place for place in noted if place.startswith("aten/")))
        _latest = noted, found
    return found


_latest: tuple[frozenset[str], tuple[str, ...]] = frozenset(), ()


def foreign_kernels() -> list[str]:
    """Of `registered_kernels`, those that compute values and were not registered by torch itself."""
    return [place for place in registered_kernels() if not place.endswith(f"/{_NO_VALUES}") and not _is_torchs(place)]


def _is_torchs(place: str) -> bool:
    """Whether a file of torch's has registered a kernel: the dispatcher says where each comes from."""
    namespace, operation, key = place.split("/")
    told = torch._C._dispatch_dump(f"{namespace}::{operation}").splitlines()
    return any(line.startswith(f"{key}: registered at {_HOME}") for line in told)
