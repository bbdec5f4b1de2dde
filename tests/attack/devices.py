"""Programs on a GPU: the tensors that they make are there."""
from __future__ import annotations

import torch


def use(device: str) -> None:
    """What makes tensors without a device makes them on this one from here on."""
    if device != "cpu":
        torch.set_default_device(device)
        torch.empty(0)


def options() -> dict[str, object]:
    """What captured code is compiled with so that it gives the very numbers of eager, where it need not."""
    on_a_gpu = torch.get_default_device().type != "cpu"
    return {"options": {"same_random_numbers": True}} if on_a_gpu else {}


def is_lost() -> bool:
    """Whether this process can use its GPU no more: an assertion in a kernel failed, as for a place that there is
    not."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
