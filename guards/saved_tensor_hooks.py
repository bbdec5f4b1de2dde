"""The program's hooks on what autograd saves (of checkpointing, offloading) see nothing of framejit itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import _C


@contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """Keeps hooks for saved tensors from seeing what autograd saves in the block, of fakes or of tensors made for a
    trial."""
    before = _C._autograd._saved_tensors_hooks_set_tracing(True)
    try:
        yield
    finally:
        _C._autograd._saved_tensors_hooks_set_tracing(before)
