"""A token of a small decoder by Triton's interpreter, as triton_products.py has it, lowered by the rules that a GPU's
target has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.fuse.triton_kernels.triton_attention import repeated
from tests.fuse.triton_kernels.triton_products import F32, Made, r, report

HEADS, SHARED, SIZE, KEYS, INNER = 4, 2, 16, 40, 96
HIDDEN = HEADS * SIZE
OF_LAYER: Final = 12
"""Tensors that a layer has."""


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    variance = x.float().pow(2).mean(-1, keepdim=True)
    return weight * (x.float() * torch.rsqrt(variance + 1e-6)).to(x.dtype)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = SIZE // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(1, 1, -1, SIZE).transpose(1, 2)


def token(
    embedding: Any, number: Any, cos: Any, sin: Any, mask: Any, *weights: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """As transformers' Llama with a static cache does it, which counts itself how many rows it has."""
    x = F.embedding(number, embedding)
    for first in range(0, len(weights), OF_LAYER):
        before, q, k, v, o, behind, gate, up, down, keys, values, length = weights[first : first + OF_LAYER]
        normed = norm(x, before)
        query, key, value = (heads(F.linear(normed, weight)) for weight in (q, k, v))
        query, key = rotated(query, cos, sin), rotated(key, cos, sin)
        place = torch.arange(1, device=x.device) + length
        length.add_(1)
        keys.index_copy_(2, place, key)
        values.index_copy_(2, place, value)
        times = HEADS // SHARED
        mixed = F.scaled_dot_product_attention(query, repeated(keys, times), repeated(values, times), attn_mask=mask)
        x = x + F.linear(mixed.transpose(1, 2).reshape(1, 1, -1), o)
        normed = norm(x, behind)
        x = x + F.linear(F.silu(F.linear(normed, gate)) * F.linear(normed, up), down)
    return (x,)


def inputs(layers: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    def of(*sizes: int) -> torch.Tensor:
        return r(*sizes, dtype=dtype) / (sizes[-1] ** 0.5 if len(sizes) == 2 else 1)

    weights: list[torch.Tensor] = []
    for layer in range(layers):
        weights += [of(HIDDEN), of(HIDDEN, HIDDEN), *(of(SHARED * SIZE, HIDDEN) for _ in range(2))]
        weights += [of(HIDDEN, HIDDEN), of(HIDDEN), *(of(INNER, HIDDEN) for _ in range(2)), of(HIDDEN, INNER)]
        weights += [*(of(1, SHARED, KEYS, SIZE) for _ in range(2)), torch.tensor([20 + layer])]
    mask = (torch.arange(KEYS) <= 20)[None, None, None]
    return of(50, HIDDEN), torch.tensor([[7]]), of(1, 1, SIZE), of(1, 1, SIZE), mask, *weights


CASES: dict[str, Callable[[], Made]] = {
    "one layer": lambda: (token, inputs(1, F32)),
    "three layers": lambda: (token, inputs(3, F32)),
}

if __name__ == "__main__":
    report(CASES, sys.argv[1:])
