"""torch's modes as plain data."""

from __future__ import annotations

from typing import Any

import torch

from framejit.kept.not_kept import NotKept


def described_state(state: Any) -> list[Any]:
    """The names and values in a snapshot of torch's modes, as plain data. Raises NotKept under function modes, which
    are objects of the process."""
    if torch._C._len_torch_function_stack():
        raise NotKept("a function mode of torch is on")
    return [[name, str(value)] for name, value in state.described.items()]

