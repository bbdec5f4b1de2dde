"""Questions about the thread that the state guard does not answer: what a guard of kind C_PY asks, given any object."""

from __future__ import annotations

from typing import Any

import torch

_C = torch._C


def is_fx_tracing(_: Any) -> bool:
    """Whether torch.fx traces in this thread. Its argument, which a guard needs to have, does not matter."""
    tracing = torch.fx._symbolic_trace
    return bool(tracing._get_is_fx_tracing() if hasattr(tracing, "_get_is_fx_tracing") else tracing._is_fx_tracing_flag)


def has_saved_tensor_hooks(_: Any) -> bool:
    return _C._autograd._top_saved_tensors_default_hooks(True) is not None


def has_no_saved_tensor_hooks(_: Any) -> bool:
    return _C._autograd._top_saved_tensors_default_hooks(True) is None
