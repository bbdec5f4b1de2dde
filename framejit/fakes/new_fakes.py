"""Fakes over memory of the device `meta`, made in a fifth of the time that torch's constructor takes.

What that sets, apart from the tensor itself, is the same for all new fakes of a mode and device: it is read off the
first one, and given to the others as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_KNOWN: Final = "framejit_new_fakes"
"""The attribute of a mode: by device, what fakes for it are to have."""


class _Alike(NamedTuple):
    """What new fakes of a mode and device have in common."""

    device: torch.device
    attributes: dict[str, Any]
    guard_data: Callable[[torch.Tensor], None]
    """Makes reading the address of a fake's data an error, or tells of it."""


def fake_of(mode: FakeTensorMode, memory: torch.Tensor, device: torch.device) -> torch.Tensor:
    """`FakeTensor(mode, memory, device)`: a fake that says it is on `device`, over a tensor on `meta`."""
    known: dict[torch.device, _Alike | None] = mode.__dict__.setdefault(_KNOWN, {})
    if (alike := known.get(device)) is None:
        made = FakeTensor(mode, memory, device)
        if device not in known:
            known[device] = _alike(made, mode)
        return made
    other = torch.Tensor._make_subclass(
        FakeTensor, memory, memory.requires_grad, dispatch_device=True, device_for_backend_keys=alike.device
    )
    alike.guard_data(other)
    other.__dict__.update(alike.attributes)
    return other


def _alike(made: FakeTensor, mode: FakeTensorMode) -> _Alike | None:
    """What others may have as a new fake has it; None where a release of torch gives each something of its own."""
    attributes = dict(made.__dict__)
    if not all(value is None or value is mode or type(value) is torch.device for value in attributes.values()):
        return None
    unsafe = mode._allow_unsafe_data_ptr_access
    guard = torch._C._set_warn_deprecated_on_mutable_data_ptr if unsafe else torch._C._set_throw_on_mutable_data_ptr
    return _Alike(made.fake_device, attributes, guard)
