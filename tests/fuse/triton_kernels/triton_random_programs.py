"""Programs of random operations as a GPU would run them, by Triton's interpreter, as triton_products.py has it: which
kernels share a launch, what is done before what, tensors without elements among them."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.fuse.random_functions import Operation, program
from tests.fuse.triton_kernels.triton_products import Made, r, report

MOST_ELEMENTS = 600
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


def case(seed: int) -> Made:
    chosen = random.Random(seed)
    sizes = chosen.choice(((4, 6), (6,), (3, 4, 5), (8, 8), (1, 16)))
    run = program(seed, OPERATIONS, WRITES, MOST_ELEMENTS, empty=True, kept=0.8)
    inputs = tuple(r(*sizes, dtype=torch.float32) for _ in range(chosen.randint(1, 3)))
    return lambda *given: tuple(x.clone() if any(x is each for each in given) else x for x in run(*given)), inputs


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    report({f"program {seed}": lambda seed=seed: case(seed) for seed in range(first, first + count)}, [])
