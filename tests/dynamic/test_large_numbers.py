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


def beside_tensors(x, n):
    found = []
    for compute in (
        lambda: x * n, lambda: n - x, lambda: x > n, lambda: x.add(n), lambda: x.long() + n, lambda: x * (n * 2),
    ):
        try:
            found.append(compute())
        except (OverflowError, RuntimeError) as e:
            found.append((type(e).__name__, str(e)))
    return found


def test_torch_refuses_numbers_of_more_than_64_bits():
    pair = Pair(lambda: beside_tensors)
    for n in (-1, -2, -3, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 2**100, -(2**100), 5, 2**62 + 1):
        pair.call(torch.ones(2), n)


def of_two(x, n, m):
    try:
        return x * (n + m)
    except OverflowError as e:
        return str(e)


def test_of_two_numbers():
    pair = Pair(lambda: of_two)
    for n in (-1, -2, -3, -(2**62), -(2**63)):
        pair.call(torch.ones(2), n, n)
