"""Copies of inputs that lie where kernels can't take them."""
from __future__ import annotations

import torch

from framejit.backends.fuse.plan.extent import extent


def aligned_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the same content, sizes and strides, in memory of its own, which torch's allocators align."""
    flat = tensor.detach().as_strided((extent(tensor.shape, tensor.stride()),), (1,))
    return flat.clone().as_strided(tensor.shape, tensor.stride())
