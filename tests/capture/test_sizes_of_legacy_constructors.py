"""`tensor.new(size)` and `torch.Tensor(size)`: a size says how large, a tuple what is in it."""

import pytest
import torch

import framejit

MADE = {
    "new, of a size": lambda x: x.new(x.size()).zero_(),
    "new, of a size without dimensions": lambda x: x.new(x[0, 0].size()).fill_(7),
    "new, of an empty size": lambda x: x.new(torch.Size([])).fill_(7),
    "new, of an empty tuple": lambda x: x.new(()),
    "new, of numbers": lambda x: x.new((2, 3)),
    "new, of nothing": lambda x: x.new(),
    "a class, of a size": lambda x: torch.Tensor(x.size()).zero_(),
    "a class, of a size without dimensions": lambda x: torch.DoubleTensor(x[0, 0].size()).fill_(7),
    "a class, of an empty tuple": lambda x: torch.Tensor(()),
    "a class, of nothing": lambda x: torch.Tensor(),
    "values put into one": lambda x: torch.add(x, x.new(x[0, 0].shape).fill_(3)),
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_sizes_and_numbers(made):
    optimized = framejit.optimize(made)
    x = torch.arange(4.0).view(2, 2)
    for _ in range(2):
        expected, got = made(x), optimized(x)
        assert (expected.dtype, expected.shape, expected.tolist()) == (got.dtype, got.shape, got.tolist())
