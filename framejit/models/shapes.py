"""Functions of shapes, some of whose sizes are open: torch's own would assume them."""

from __future__ import annotations

from typing import Any

import torch


def broadcast_shape(*shapes: Any) -> Any:
    """The shape that tensors of these shapes are broadcast to, or None where they are not."""
    broadcast: list[Any] = []
    for shape in shapes:
        broadcast = [1] * (len(shape) - len(broadcast)) + broadcast
        for place in range(-len(shape), 0):
            size = shape[place]
            if size == broadcast[place]:
                continue
            if broadcast[place] == 1 and size >= 0:
                broadcast[place] = size
            elif size != 1:
                return None
    return torch.Size(broadcast)
