"""The operations that graphs have for random numbers: Philox's own test vectors, the distributions, and what the
numbers depend on."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from framejit.backends.fuse.random_numbers import operations
from framejit.backends.fuse.random_numbers.operations import (
    BERNOULLI,
    CHUNK,
    DTYPES,
    NORMAL,
    UNIFORM,
    draw_key,
    threshold,
    words,
)

N = 400_000
CPU = torch.device("cpu")


def key(number: int = 0x243F6A8885A308D3) -> torch.Tensor:
    return torch.tensor([number], dtype=torch.int64)


def uniform(dtype: torch.dtype, low: float = 0.0, high: float = 1.0, draw: int = 0, n: int = N) -> torch.Tensor:
    return UNIFORM(key(), draw, [n], [1], low, high, dtype=dtype)


def normal(dtype: torch.dtype, mean: float = 0.0, std: float = 1.0, draw: int = 0, n: int = N) -> torch.Tensor:
    return NORMAL(key(), draw, [n], [1], mean, std, dtype=dtype)


def distance(sample: torch.Tensor, distribution: Callable[[torch.Tensor], torch.Tensor]) -> float:
    """How far a sample's distribution is from one, by Kolmogorov and Smirnov: times the root of the sample's size less
    than 1.95 with a probability of 0.999."""
    values = sample.double().sort().values
    expected, n = distribution(values), values.numel()
    ranks = torch.arange(1, n + 1, dtype=torch.float64) / n
    worst = torch.maximum((ranks - expected).abs(), (expected - ranks + 1 / n).abs()).max()
    return float(worst) * math.sqrt(n)


def of_normal(x: torch.Tensor) -> torch.Tensor:
    return torch.special.ndtr(x)


def test_philox_is_that_of_the_paper() -> None:
    """The vectors of Random123 (kat_vectors, philox4x32-10) that a key and a place can lead to."""
    assert words(key(0), 0, 0, 4).tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    all_ones = 0xFFFFFFFF
    assert reference([all_ones] * 4, [all_ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    digits = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    assert reference(digits, [0xA4093822, 0x299F31D0]) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def reference(counter: list[int], keys: list[int]) -> list[int]:
    """Philox4x32-10 as the paper writes it, in Python's integers."""
    a, b, c, d = counter
    for _ in range(10):
        high, low = a * operations.MULTIPLIERS[0], c * operations.MULTIPLIERS[1]
        a, b, c, d = low >> 32 ^ b ^ keys[0], low & 0xFFFFFFFF, high >> 32 ^ d ^ keys[1], high & 0xFFFFFFFF
        keys = [key + step & 0xFFFFFFFF for key, step in zip(keys, operations.KEY_STEPS)]
    return [a, b, c, d]


@pytest.mark.parametrize("place", [0, 4, 1 << 20, (1 << 34) + 8, (1 << 40) + 4])
@pytest.mark.parametrize("number", [1, -1, -(1 << 63), (1 << 63) - 2, 0x299F31D0A4093822])
def test_words_are_philox_of_key_draw_and_place(number: int, place: int) -> None:
    group = place // 4
    counter = [group & 0xFFFFFFFF, group >> 32, 7, 0]
    keys = [number & 0xFFFFFFFF, number >> 32 & 0xFFFFFFFF]
    assert words(key(number), 7, place, 4).tolist() == reference(counter, keys)
    assert words(key(number), 7, place, 2).tolist() == words(key(number), 7, place, 4).tolist()[:2]


@pytest.mark.parametrize("dtype", DTYPES)
def test_uniform_numbers(dtype: torch.dtype) -> None:
    sample = uniform(dtype)
    assert sample.dtype == dtype and 0 <= sample.min() and sample.max() < 1
    wide = sample.double()
    # three standard deviations of the mean of N numbers, and what rounding to halves adds up to
    assert abs(float(wide.mean()) - 0.5) < 3 / math.sqrt(12 * N) + (1e-5 if dtype.itemsize == 2 else 0)
    assert abs(float(wide.var()) - 1 / 12) < 1e-3
    if dtype.itemsize > 2:
        assert distance(sample, lambda x: x) < 1.95
    else:  # there are few of them: what is near the end is rounded to the last one before it
        spaced = torch.tensor(1.0, dtype=dtype) - sample.max()
        assert float(spaced) == torch.finfo(dtype).eps / 2
        assert distance((sample.double() * 64).floor(), lambda x: (x + 1) / 64) < 1.95 + math.sqrt(N) / 64


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_end_of_a_range_is_never_drawn(dtype: torch.dtype) -> None:
    low, high = 3.0, 3.0 + 4 * torch.finfo(dtype).eps
    sample = uniform(dtype, low, high)
    assert low <= sample.min() and float(sample.max()) < float(torch.tensor(high, dtype=dtype))
    assert sample.unique().numel() > 1
    assert (uniform(dtype, -2.0, -2.0) == -2.0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_normal_numbers(dtype: torch.dtype) -> None:
    sample = normal(dtype)
    assert sample.dtype == dtype and sample.isfinite().all()
    wide = sample.double()
    assert abs(float(wide.mean())) < 3 / math.sqrt(N) and abs(float(wide.var()) - 1) < 3 * math.sqrt(2 / N)
    assert abs(float((wide**4).mean()) - 3) < 3 * math.sqrt(96 / N)
    if dtype.itemsize > 2:
        assert distance(sample, of_normal) < 1.95
    pairs = wide.view(-1, 2)
    for one, other in ((pairs[:, 0], pairs[:, 1]), (pairs[1:, 0], pairs[:-1, 1]), (wide[4:], wide[:-4])):
        assert abs(float((one * other).mean())) < 4 / math.sqrt(one.numel())
        assert abs(float(((one**2 - 1) * (other**2 - 1)).mean())) < 8 / math.sqrt(one.numel())
    moved = normal(torch.float64, 3.0, 0.5)
    torch.testing.assert_close(moved, normal(torch.float64) * 0.5 + 3)


def test_the_rarest_words_give_finite_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in (0, 0xFFFFFFFF):
        monkeypatch.setattr(operations, "words", lambda key, draw, first, count, word=word: torch.full((count,), word))
        for dtype in DTYPES:
            assert normal(dtype, n=9).isfinite().all()
            assert (uniform(dtype, n=9) < 1).all() and (uniform(dtype, n=9) >= 0).all()


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_bernoulli(p: float) -> None:
    sample = BERNOULLI(key(), 0, [N], [1], p)
    assert sample.dtype == torch.bool
    assert abs(float(sample.double().mean()) - p) <= 3 * math.sqrt(p * (1 - p) / N)
    assert threshold(0.0) == 0 and threshold(1.0) == 1 << 32


def test_draws_and_keys_are_independent() -> None:
    samples = [uniform(torch.float64, draw=draw) - 0.5 for draw in range(3)]
    samples.append(UNIFORM(key(5), 0, [N], [1], 0.0, 1.0, dtype=torch.float64) - 0.5)
    for position, one in enumerate(samples):
        for other in samples[:position]:
            assert abs(float((one * other).mean())) * 12 < 4 / math.sqrt(N)


@pytest.mark.parametrize("operation", [UNIFORM, NORMAL])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_number_follows_from_its_place_in_row_major_order(operation: object, dtype: torch.dtype) -> None:
    def made(size: list[int], stride: list[int]) -> torch.Tensor:
        return operation(key(), 3, size, stride, 0.0, 1.0, dtype=dtype)  # type: ignore[operator]

    plain = made([3, 5, 7], [35, 7, 1])
    assert plain.stride() == (35, 7, 1)
    permuted = made([3, 5, 7], [1, 3, 15])
    assert permuted.stride() == (1, 3, 15) and torch.equal(plain, permuted)
    assert torch.equal(made([104], [1]), plain.flatten()[:104])
    assert made([0, 4], [4, 1]).shape == (0, 4) and made([], []).shape == ()


def test_pieces_of_a_large_tensor_are_those_of_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CHUNK % 4 == 0
    whole = [uniform(torch.float32, n=1001), normal(torch.float32, n=1001), normal(torch.float64, n=1001)]
    monkeypatch.setattr(operations, "CHUNK", 64)
    pieces = [uniform(torch.float32, n=1001), normal(torch.float32, n=1001), normal(torch.float64, n=1001)]
    torch.testing.assert_close(pieces, whole, rtol=1e-6, atol=1e-6)
    assert torch.equal(pieces[0], whole[0])


def test_keys_are_drawn_from_torchs_generator() -> None:
    torch.manual_seed(3)
    first, second = draw_key(CPU), draw_key(CPU)
    assert not torch.equal(first, second) and first.dtype == torch.int64 and first.shape == (1,)
    torch.manual_seed(3)
    assert torch.equal(draw_key(CPU), first)
