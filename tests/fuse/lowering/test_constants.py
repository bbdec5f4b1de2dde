"""Values that depend on no input: kept once, however often the program makes them."""

from __future__ import annotations

import torch

import framejit
from framejit.backends.fuse.lowering.builder import Builder


def test_equal_values_share_memory_and_others_do_not():
    b = Builder()
    first = b.shared(torch.arange(8.0).view(2, 4))
    again = b.shared(torch.arange(8.0).view(4, 1, 2))
    assert (
        again.shape == (4, 1, 2)
        and again.data_ptr() == first.data_ptr()
        and torch.equal(again.flatten(), first.flatten())
    )
    others = [
        torch.arange(8), torch.arange(1.0, 9.0), torch.arange(9.0), torch.tensor([-0.0] + [*map(float, range(1, 8))]),
        torch.arange(9.0)[1:],
    ]
    assert all(b.shared(other) is other for other in others)


def test_a_program_that_makes_the_same_positions_again():
    def f(x):
        rows = torch.arange(16)[:, None] >= torch.arange(16)[None, :]
        columns = torch.arange(16)[None, :] * torch.sort(torch.arange(16)).values[:, None]
        return torch.where(rows, x, 0.0).cumsum(-1) + columns, torch.sort(torch.arange(16)).indices + x.argmax()

    x = torch.randn(16, 16)
    fast = framejit.optimize(f)
    for _ in range(3):
        for got, expected in zip(fast(x), f(x)):
            torch.testing.assert_close(got, expected)
