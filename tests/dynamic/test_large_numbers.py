"""Ints that change between calls, beside numbers that take more than 64 bits."""
import torch

from support import Pair


def against(x, n):
    total = min(n + 2**64, 2**64 + 50)
    return x + 1, total, n < 2**70, n * 2**65, max(n, -(2**80)), n * n * 2**40 + 1 < 2**80


def test_numbers_of_more_than_64_bits():
    pair = Pair(lambda: against)
    for n in (3, 4, 5, 100, 2**40):
        pair.call(torch.ones(2), n)
