"""torch's modes as plain data, and the methods of its tensors, which programs may replace before anybody looks."""

from __future__ import annotations

import hashlib
from types import FunctionType
from typing import Any

import torch

from framejit.kept.code_hash import code_hash
from framejit.kept.not_kept import NotKept


def described_state(state: Any) -> list[Any]:
    """What a snapshot of torch's modes says. Raises NotKept under function modes, which are objects of the process."""
    if torch._C._len_torch_function_stack():
        raise NotKept("a function mode of torch is on")
    return [[name, str(value)] for name, value in state.described.items()]


def methods_of_tensors() -> str:
    """A hash over the functions that are methods of tensors, and over the names of the others."""
    digest = hashlib.sha256()
    for cls in (torch.Tensor, torch.nn.Parameter):
        for name, held in sorted(vars(cls).items()):
            is_function = type(held) is FunctionType
            digest.update(f"{name} {type(held).__name__} ".encode())
            digest.update(code_hash(held.__code__) if is_function else str(getattr(held, "__name__", "")).encode())
    return digest.hexdigest()
