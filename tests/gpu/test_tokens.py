"""Tokens of a decoder with a cache of given rows, on a GPU: eager's numbers, and its caches, token after token."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.backends.fuse import backend

pytestmark = pytest.mark.gpu

BF16 = {"device": "cuda", "dtype": torch.bfloat16}
ROWS = 300


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plans run, whatever is quicker."""
    make = backend.selector
    monkeypatch.setattr(backend, "selector", lambda run, eager, *rest: make(run, run, *rest))
    yield
    framejit.reset()


class Layer(torch.nn.Module):
    """Attention and products as a Llama has them, with caches of its own."""

    def __init__(self, batch: int, heads: int, shared: int, size: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, size
        hidden = heads * size
        self.q, self.o = (torch.nn.Linear(hidden, hidden, bias=False, **BF16) for _ in range(2))
        self.k, self.v = (torch.nn.Linear(hidden, shared * size, bias=False, **BF16) for _ in range(2))
        self.down, self.up = torch.nn.Linear(3 * hidden, hidden, **BF16), torch.nn.Linear(hidden, 3 * hidden, **BF16)
        self.register_buffer("keys", torch.zeros(batch, shared, ROWS, size, **BF16))
        self.register_buffer("values", torch.zeros(batch, shared, ROWS, size, **BF16))

    def forward(self, x: Any, at: Any, angles: Any) -> Any:
        normed = F.rms_norm(x, x.shape[-1:])
        q, k, v = (f(normed).view(x.shape[0], 1, -1, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        self.keys.index_copy_(2, at, rotated(k, angles))
        self.values.index_copy_(2, at, v)
        mask = torch.arange(ROWS, device=x.device) <= at
        keys, values = (
            c[:, :, None].expand(-1, -1, self.heads // self.shared, -1, -1).flatten(1, 2)
            for c in (self.keys, self.values)
        )
        mixed = F.scaled_dot_product_attention(rotated(q, angles), keys, values, attn_mask=mask[None, None, None])
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(F.rms_norm(x, x.shape[-1:]))))


def rotated(x: Any, angles: Any) -> Any:
    low, high = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-high, low), -1) * angles.sin()


def decoder(batch: int, heads: int, shared: int, size: int) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.ModuleList([Layer(batch, heads, shared, size) for _ in range(3)])


def step(layers: Any, x: Any, at: Any) -> Any:
    angles = (at[:, None] * torch.linspace(0.1, 1, layers[0].size, device="cuda")).to(x.dtype)[None, None]
    for layer in layers:
        x = layer(x, at, angles)
    return x


def tokens(layers: Any, run: Any, count: int = 24) -> list[torch.Tensor]:
    """What comes out for each of some tokens, then the caches."""
    generator = torch.Generator("cuda").manual_seed(1)
    found = []
    with torch.no_grad():
        for number in range(count):
            x = torch.randn(layers[0].keys.shape[0], 1, layers[0].o.in_features, **BF16, generator=generator)
            found.append(run(layers, x, torch.tensor([number * 12], device="cuda")).clone())
    return [*found, *(cache.clone() for layer in layers for cache in (layer.keys, layer.values))]


def check(ours: list[torch.Tensor], eager: list[torch.Tensor], exact: list[torch.Tensor]) -> None:
    for got, expected, right in zip(ours, eager, exact, strict=True):
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        error, allowed = ((x.double() - right).norm() for x in (got, expected))
        assert error <= 1.3 * allowed + 1e-3 * right.norm()


def in_float64(layers: Any, x: Any, at: Any) -> Any:
    return step(layers.double(), x.double(), at)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize(
    ("batch", "heads", "shared", "size"),
    [(1, 8, 2, 64), (3, 8, 2, 64), (8, 8, 2, 64), (1, 6, 2, 64), (2, 4, 4, 32), (1, 16, 2, 128), (2, 2, 1, 48)],
)
def test_tokens(batch: int, heads: int, shared: int, size: int, mode: str) -> None:
    made = batch, heads, shared, size
    exact, eager = tokens(decoder(*made), in_float64), tokens(decoder(*made), step)
    check(tokens(decoder(*made), framejit.optimize(step, mode=mode)), eager, exact)


def test_tokens_of_two_streams_at_once() -> None:
    """Each call has zeros of its own to count parts in."""
    sides = [decoder(2, 8, 2, 64) for _ in range(2)]
    eager, exact = tokens(decoder(2, 8, 2, 64), step), tokens(decoder(2, 8, 2, 64), in_float64)
    fast = framejit.optimize(step)
    tokens(decoder(2, 8, 2, 64), fast)
    found: dict[int, list[torch.Tensor]] = {}

    def run(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            found[number] = tokens(sides[number], fast)
            torch.cuda.current_stream().synchronize()

    threads = [Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(2):
        check(found[number], eager, exact)
