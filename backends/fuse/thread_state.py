"""The torch state that operations depend on and programs set: grad mode and autocast of the thread, the default dtype,
and which kernels attention may use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from framejit.backends.autocast_nesting import nest, nesting

AUTOCAST_DEVICES: Final = ("cpu", "cuda")
_KERNELS: Final = tuple(
    (getattr(torch._C, f"_get_{kind}_sdp_enabled"), getattr(torch._C, f"_set_sdp_use_{kind}"))
    for kind in ("flash", "mem_efficient", "math", "cudnn", "overrideable")
    if hasattr(torch._C, f"_set_sdp_use_{kind}")
)
"""For each kernel of attention, the function that asks whether it may be used and the one that says so."""


def thread_state() -> tuple[Any, ...]:
    """All of it, to compare and to restore."""
    kernels = tuple(ask() for ask, _ in _KERNELS)
    dtype = torch.get_default_dtype()
    return (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_cache_enabled(), dtype, kernels,
        *autocast_state().values(),
    )


def autocast_state() -> dict[str, tuple[bool, torch.dtype]]:
    """For each device whether autocast is on, and to which dtype."""
    return {
        device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in AUTOCAST_DEVICES
    }


def restore(state: tuple[Any, ...]) -> None:
    """Put the thread's torch state back to what `thread_state` gave."""
    grad, _, cache, dtype, kernels, *autocast = state
    torch._C._set_grad_enabled(grad)
    torch.set_autocast_cache_enabled(cache)
    if torch.get_default_dtype() != dtype:
        torch.set_default_dtype(dtype)
    for (ask, tell), allowed in zip(_KERNELS, kernels):
        if ask() != allowed:
            tell(allowed)
    for device, (enabled, dtype) in zip(AUTOCAST_DEVICES, autocast):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """In the block a dtype is the default one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def restored_thread_state() -> Iterator[None]:
    """Puts torch's state in this thread back behind the block; casts that autocast has cached are forgotten before and
    after it."""
    before, depth = thread_state(), nesting()
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        restore(before)
        nest(depth)
        torch.clear_autocast_cache()
