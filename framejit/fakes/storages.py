"""Which memory a fake stands for."""

from __future__ import annotations

import torch


def storage_of(fake: torch.Tensor) -> int:
    """A number that the storage of a tensor has as long as it lives, and no other storage."""
    return int(fake.untyped_storage()._cdata)
