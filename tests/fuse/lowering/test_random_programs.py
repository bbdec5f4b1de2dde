"""Programs of random operations, views and writes, compared with eager in values, strides, aliases and what is left in
their arguments."""

from __future__ import annotations

import random

import pytest
import torch

import framejit
from tests.fuse.operators.operator_cases import Case
from tests.fuse.operators.operator_wall import check_case
from tests.fuse.random_functions import Operation, program

SIZES = [(4, 6), (6,), (3, 4, 5), (8, 8), (2, 3, 4, 4)]
MOST_ELEMENTS = 20_000

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
    function = program(seed, OPERATIONS, WRITES, MOST_ELEMENTS)
    with framejit.config.patch(debug=True):
        check_case(Case(f"seed {seed}", "function", torch.float32, function, inputs))
