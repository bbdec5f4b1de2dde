"""Functions of random operations, views and writes, for tests that compare them with eager."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

Operation = Callable[[torch.Tensor, torch.Tensor, random.Random], torch.Tensor]


def program(
    seed: int, operations: Sequence[Operation], writes: Sequence[Operation], most: int, *, empty: bool = False,
    kept: float = 0.5
) -> Callable[..., list[torch.Tensor]]:
    """A function that does the same for the same seed; operations that its tensors do not fit are left out, and results
    of more than `most` elements or, unless `empty`, of none. `kept` is the share of them that it gives, six at most."""

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        r = random.Random(seed)
        tensors = list(inputs)
        for _ in range(r.randint(3, 14)):
            x, y = (r.choice(tensors[-6:] if r.random() < 0.7 else tensors) for _ in range(2))
            is_write = r.random() < 0.15
            # eager raises where memory that overlaps is written, fakes do not
            if is_write and any(size > 1 and not stride for size, stride in zip(x.shape, x.stride())):
                continue
            try:
                made = r.choice(writes if is_write else operations)(x, y, r)
            except (RuntimeError, IndexError, ValueError):
                continue
            if (empty or made.numel()) and made.numel() <= most:
                tensors.append(made)
        chosen = [tensor for tensor in tensors[len(inputs) :] if r.random() < kept]
        return chosen[-6:] or [tensors[-1]]

    return run
