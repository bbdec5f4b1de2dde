"""Programs of random operations as a GPU would run them, by Triton's interpreter, as triton_products.py has it: which
kernels share a launch, what is done before what, tensors without elements among them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.fuse.triton_kernels.triton_products import Made, r, report

MOST_ELEMENTS = 600
Operation = Callable[[torch.Tensor, torch.Tensor, random.Random], torch.Tensor]
OPERATIONS: list[Operation] = [
    lambda x, y, r: x.relu(),
    lambda x, y, r: x * 0.5 + 1,
    lambda x, y, r: x.sin(),
    lambda x, y, r: x + y,
    lambda x, y, r: torch.where(x > 0, x, y),
    lambda x, y, r: x.sum(r.randrange(x.dim()), keepdim=r.random() < 0.5),
    lambda x, y, r: x.mean(-1, keepdim=True).expand_as(x),
    lambda x, y, r: x.softmax(-1),
    lambda x, y, r: x.transpose(0, r.randrange(x.dim())),
    lambda x, y, r: x.narrow(0, x.shape[0] // 2, x.shape[0] - x.shape[0] // 2),
    lambda x, y, r: x.narrow(r.randrange(x.dim()), 0, 0),
    lambda x, y, r: x.reshape(-1),
    lambda x, y, r: x.unsqueeze(r.randrange(x.dim() + 1)),
    lambda x, y, r: torch.cat([x, y], 0),
    lambda x, y, r: torch.zeros(r.choice(((0,), (4,), (3, 5), (2, 0))), dtype=x.dtype, device=x.device),
    lambda x, y, r: torch.full((r.choice((1, 7)), 3), 1.5, dtype=x.dtype, device=x.device),
    lambda x, y, r: torch.arange(6, dtype=x.dtype, device=x.device) * 0.25,
    lambda x, y, r: x.reshape(-1, 1) @ y.reshape(1, -1),
    lambda x, y, r: x.reshape(1, -1) @ y.reshape(-1, 1),
    lambda x, y, r: x @ y.transpose(-1, -2),
    lambda x, y, r: x.clone(),
]
WRITES: list[Operation] = [
    lambda x, y, r: x.add_(1),
    lambda x, y, r: x.mul_(0.5),
    lambda x, y, r: x.copy_(y * 0.3),
    lambda x, y, r: x.narrow(0, 0, 1).zero_(),
]


def program(seed: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    """A function that does the same for the same seed; operations that its tensors do not fit are left out."""

    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        r = random.Random(seed)
        tensors = [*inputs]
        for _ in range(r.randint(4, 12)):
            x, y = (r.choice(tensors[-6:] if r.random() < 0.7 else tensors) for _ in range(2))
            writes = r.random() < 0.15
            if writes and any(size > 1 and not step for size, step in zip(x.shape, x.stride())):
                continue
            try:
                made = r.choice(WRITES if writes else OPERATIONS)(x, y, r)
            except (RuntimeError, IndexError, ValueError):
                continue
            if made.numel() <= MOST_ELEMENTS:
                tensors.append(made)
        return tuple(tensor for tensor in tensors[len(inputs) :] if r.random() < 0.6) or (tensors[-1] * 2,)

    return run


def case(seed: int) -> Made:
    chosen = random.Random(seed)
    sizes = chosen.choice(((4, 6), (6,), (3, 4, 5), (8, 8), (1, 16)))
    return program(seed), tuple(r(*sizes, dtype=torch.float32) for _ in range(chosen.randint(1, 3)))


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    report({f"program {seed}": lambda seed=seed: case(seed) for seed in range(first, first + count)}, [])
