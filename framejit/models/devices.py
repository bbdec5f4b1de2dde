"""torch.device as a context manager: what makes tensors inside of the block makes them on the device."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._device import DeviceContext

from framejit.models.model_registry import models

_C = torch._C


@models(torch.device.__enter__)
def enter(device: Any) -> Any:
    _C._push_on_torch_function_stack(DeviceContext(device))
    return device


@models(torch.device.__exit__)
def leave(device: Any, *exception: Any) -> None:
    _C._pop_torch_function_stack()
