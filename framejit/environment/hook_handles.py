"""Hooks of framejit's own on nodes of autograd, which leave nothing that the program could see."""

from __future__ import annotations

from torch.utils.hooks import RemovableHandle


def remove_hook(handle: RemovableHandle) -> None:
    """Remove a hook, and give back the number that its handle has taken, unless another thread has taken one since.
    The program sees these numbers, and code that is captured right now may have read the next one."""
    handle.remove()
    if RemovableHandle.next_id == handle.id + 1:
        RemovableHandle.next_id = handle.id
