"""The modes of a thread's torch that a function may leave changed."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_DEVICES = ("cpu", "cuda")


def described() -> dict[str, Any]:
    """The present modes by name."""
    found: dict[str, Any] = {"grad mode": torch.is_grad_enabled(), "default dtype": torch.get_default_dtype()}
    for device in _DEVICES:
        found[f"autocast of {device}"] = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    return found


def now() -> Callable[[], None]:
    """A function that brings the present modes back."""
    modes = described()

    def restore() -> None:
        torch.set_grad_enabled(modes["grad mode"])
        torch.set_default_dtype(modes["default dtype"])
        for device in _DEVICES:
            enabled, dtype = modes[f"autocast of {device}"]
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)

    return restore
