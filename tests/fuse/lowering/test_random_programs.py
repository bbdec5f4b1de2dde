"""Programs of random operations, views and writes, compared with eager in values, strides, aliases and what is left in
their arguments."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

import framejit
from tests.fuse.operators.operator_cases import Case
from tests.fuse.operators.operator_wall import check_case

SIZES = [(4, 6), (6,), (3, 4, 5), (8, 8), (2, 3, 4, 4)]
MOST_ELEMENTS = 20_000

Operation = Callable[[torch.Tensor, torch.Tensor, random.Random], torch.Tensor]
OPERATIONS: list[Operation] = [
    lambda x, y, r: x.relu(),
    lambda x, y, r: x * 0.5 + 1,
    lambda x, y, r: x.sin(),
    lambda x, y, r: x.abs(),
    lambda x, y, r: x + y,
    lambda x, y, r: x * y,
    lambda x, y, r: torch.where(x > 0, x, y),
    lambda x, y, r: x.sum(r.randrange(x.dim()), keepdim=r.random() < 0.5),
    lambda x, y, r: x.amax(r.randrange(x.dim()), keepdim=r.random() < 0.5),
    lambda x, y, r: x.mean(-1, keepdim=True).expand_as(x),
    lambda x, y, r: x.var(-1, keepdim=True).add(1e-3).rsqrt() * x,
    lambda x, y, r: x.softmax(-1),
    lambda x, y, r: x.cumsum(0),
    lambda x, y, r: x.transpose(0, r.randrange(x.dim())),
    lambda x, y, r: x[r.randrange(2) :],
    lambda x, y, r: x[..., ::2],
    lambda x, y, r: x.reshape(-1),
    lambda x, y, r: x.unsqueeze(r.randrange(x.dim() + 1)),
    lambda x, y, r: x.flip(0),
    lambda x, y, r: x.detach(),
    lambda x, y, r: torch.cat([x, y], 0),
]
WRITES: list[Operation] = [
    lambda x, y, r: x.add_(1),
    lambda x, y, r: x[0].mul_(0.5),
    lambda x, y, r: x.copy_(y * 0.3),
    lambda x, y, r: x[..., 1:].zero_(),
]


def program(seed: int) -> Callable[..., list[torch.Tensor]]:
    """A function that does the same for the same seed; operations that its tensors do not fit are left out."""

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        r = random.Random(seed)
        tensors = list(inputs)
        for _ in range(r.randint(3, 14)):
            x, y = (r.choice(tensors[-6:] if r.random() < 0.7 else tensors) for _ in range(2))
            writes = r.random() < 0.15
            # eager raises where memory that overlaps is written, fakes do not
            if writes and any(size > 1 and not stride for size, stride in zip(x.shape, x.stride())):
                continue
            try:
                made = r.choice(WRITES if writes else OPERATIONS)(x, y, r)
            except (RuntimeError, IndexError):
                continue
            if 0 < made.numel() <= MOST_ELEMENTS:
                tensors.append(made)
        chosen = [tensor for tensor in tensors[len(inputs) :] if r.random() < 0.5]
        return chosen[-6:] or [tensors[-1]]

    return run


@pytest.mark.parametrize("seed", range(150))
def test_random_program(seed: int) -> None:
    r = random.Random(seed)
    torch.manual_seed(seed)
    sizes = r.choice(SIZES)
    inputs = [torch.randn(sizes) for _ in range(r.randint(1, 3))]
    if r.random() < 0.4:
        inputs[0] = inputs[0].transpose(0, -1)
    if r.random() < 0.3:
        inputs[-1] = torch.randn(sizes[-1:])
    with framejit.config.patch(debug=True):
        check_case(Case(f"seed {seed}", "function", torch.float32, program(seed), inputs))
