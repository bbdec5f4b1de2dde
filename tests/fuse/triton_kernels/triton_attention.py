"""Attention of few queries by Triton's interpreter, as triton_products.py has it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from triton.language.extra import cuda

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3]))
from framejit.backends.fuse.targets.cuda import CudaTarget
from tests.fuse.triton_kernels.triton_products import BF16, F16, F32, Made, r, report


def tensors(
    heads: int = 4, shared: int = 2, keys: int = 37, size: int = 24, queries: int = 1, batch: int = 1,
    of_values: int = 0, dtype: torch.dtype = BF16,
) -> tuple[torch.Tensor, ...]:
    """Queries as projections give them, keys and values as caches hold them."""
    query = r(batch, queries, heads, size, dtype=dtype).transpose(1, 2)
    return (
        query, r(batch, shared, keys, size, dtype=dtype), r(batch, shared, keys, of_values or size, dtype=dtype)
    )


def repeated(x: torch.Tensor, times: int) -> torch.Tensor:
    """Each head as often, as models of transformers have it."""
    batch, heads, keys, size = x.shape
    return x[:, :, None].expand(batch, heads, times, keys, size).reshape(batch, heads * times, keys, size)


def plain(q: Any, k: Any, v: Any, mask: Any = None, **how: Any) -> torch.Tensor:
    """As models go on with it, whichever way it lies."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **how).transpose(1, 2).flatten()


def of_repeated(q: Any, k: Any, v: Any, mask: Any = None) -> torch.Tensor:
    times = q.shape[1] // k.shape[1]
    return plain(q, repeated(k, times), repeated(v, times), mask)


def into_cache(q: Any, k: Any, v: Any, new: Any, at: Any, mask: Any) -> tuple[torch.Tensor, ...]:
    """A token's own key and value are put into the caches before, and what comes out is projected."""
    k, v = k.index_copy(2, at, new), v.index_copy(2, at, new * 2)
    out = of_repeated(q, k, v, mask)
    return out * 2, k, v


def token_into_caches(q: Any, k: Any, v: Any, keys: Any, values: Any, at: Any, angles: Any, mask: Any) -> torch.Tensor:
    """What models of transformers do with the projections of a token: (batch, heads * size)."""
    batch, shared, _, size = keys.shape
    q, k, v = (x.view(batch, 1, -1, size).transpose(1, 2) for x in (q, k, v))
    q, k = rotated(q, angles), rotated(k, angles)
    keys.index_copy_(2, at, k)
    values.index_copy_(2, at, v)
    return of_repeated(q, keys, values, mask)


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-high, low), -1) * angles.sin()


def of_token(heads: int, shared: int, keys: int, size: int, batch: int = 1, at: int = 9) -> Made:
    caches = [r(batch, shared, keys, size, dtype=BF16) for _ in range(2)]
    projections = [r(batch, 1, count * size, dtype=BF16) for count in (heads, shared, shared)]
    angles = r(1, 1, 1, size, dtype=BF16)
    return token_into_caches, (*projections, *caches, torch.tensor([at]), angles, at_most(keys, at))


def at_most(keys: int, most: int) -> torch.Tensor:
    return (torch.arange(keys) <= most)[None, None, None]


def some(*sizes: int) -> torch.Tensor:
    return torch.rand(sizes) < 0.5


def twice(q: Any, k: Any, v: Any, mask: Any = None) -> torch.Tensor:
    """Two of them, which count in one place."""
    first = of_repeated(q, k, v, mask)
    return of_repeated(first.view(q.shape), k, v, mask) + first


def overlapping(made: Made) -> Made:
    """The case, where launches overlap: here there is nothing to wait for."""
    cuda.gdc_launch_dependents = cuda.gdc_wait = lambda: None
    CudaTarget.overlaps_launches = True  # type: ignore[assignment, method-assign]
    return made


CASES: dict[str, Callable[[], Made]] = {
    "plain": lambda: (of_repeated, tensors()),
    "half": lambda: (of_repeated, tensors(dtype=F16)),
    "float32": lambda: (of_repeated, tensors(dtype=F32)),
    "one key": lambda: (of_repeated, tensors(keys=1)),
    "whole blocks": lambda: (of_repeated, tensors(8, 2, keys=64, size=32)),
    "several queries": lambda: (of_repeated, tensors(queries=5)),
    "a batch": lambda: (of_repeated, tensors(8, 2, batch=3, keys=40)),
    "whole blocks of a batch": lambda: (of_repeated, tensors(8, 2, batch=2, keys=64, size=32)),
    "values of another size": lambda: (of_repeated, tensors(of_values=40)),
    "long": lambda: (of_repeated, tensors(2, 1, keys=2100, size=64)),
    "many parts": lambda: (of_repeated, tensors(10, 2, keys=1300, size=40)),
    "many parts, under a mask of heads": lambda: (
        of_repeated, (*tensors(6, 2, keys=700, size=200), some(1, 6, 1, 700))
    ),
    "parts that are masked": lambda: (of_repeated, (*tensors(keys=300), at_most(300, 40))),
    "parts that are all masked": lambda: (of_repeated, (*tensors(keys=300), at_most(300, -1))),
    "parts, not finite": lambda: (
        of_repeated, tuple(x.index_fill(-2, torch.tensor([x.shape[-2] // 2]), torch.inf) for x in tensors(keys=300))
    ),
    "parts, not numbers where others are masked": lambda: (
        of_repeated,
        (*tensors(keys=300), torch.full((1, 1, 1, 300), -torch.inf, dtype=BF16).index_fill(
            -1, torch.tensor([7]), torch.nan
        )),
    ),
    "a token": lambda: of_token(8, 2, 300, 32),
    "a token of each of a batch": lambda: of_token(8, 2, 300, 32, batch=3, at=150),
    "a token, the last": lambda: of_token(8, 2, 300, 32, at=299),
    "a token, one part": lambda: of_token(4, 2, 40, 64),
    "a token, three heads of each": lambda: of_token(6, 2, 300, 32, batch=2),
    "a token, in several turns": lambda: of_token(6, 1, 300, 160),
    "a token, one head": lambda: of_token(1, 1, 200, 64, at=70),
    "a token, few odd elements": lambda: of_token(3, 3, 300, 12),
    "parts of three heads": lambda: (of_repeated, tensors(6, 2, keys=300, size=40, batch=2)),
    "two of parts": lambda: (twice, tensors(keys=300)),
    "one head for all": lambda: (of_repeated, tensors(8, 1, keys=50)),
    "scale": lambda: (lambda q, k, v: plain(q, repeated(k, 2), repeated(v, 2), scale=0.3), tensors()),
    "causal": lambda: (
        lambda q, k, v: plain(q, repeated(k, 2), repeated(v, 2), is_causal=True), tensors(queries=7)
    ),
    "causal, one query": lambda: (
        lambda q, k, v: plain(q, repeated(k, 2), repeated(v, 2), is_causal=True), tensors()
    ),
    "mask": lambda: (of_repeated, (*tensors(), at_most(37, 20))),
    "mask of heads": lambda: (of_repeated, (*tensors(batch=2), some(2, 4, 1, 37))),
    "mask of keys": lambda: (of_repeated, (*tensors(), some(1, 37))),
    "mask of numbers": lambda: (of_repeated, (*tensors(), r(1, 1, 1, 37))),
    "mask that leaves nothing": lambda: (of_repeated, (*tensors(), torch.zeros(1, 1, 1, 37, dtype=torch.bool))),
    "into a cache": lambda: (
        into_cache, (*tensors(8, 2), r(1, 2, 1, 24), torch.tensor([9]), at_most(37, 9))
    ),
    "not finite": lambda: (of_repeated, tuple(x.index_fill(-1, torch.tensor([3]), torch.inf) for x in tensors())),
    "heads that are not shared": lambda: (plain, tensors(4, 4)),
    "heads that are not shared, of float32": lambda: (plain, tensors(4, 4, dtype=F32)),
    "heads that are not shared, under a mask": lambda: (
        plain, (*tensors(3, 3, keys=300, size=16), at_most(300, 255))
    ),
    "heads that torch shares": lambda: (lambda q, k, v: plain(q, k, v, enable_gqa=True), tensors()),
    "heads that torch shares, under a mask of each": lambda: (
        lambda q, k, v, mask: plain(q, k, v, mask, enable_gqa=True), (*tensors(6, 2, batch=2), some(2, 6, 1, 37))
    ),
    "heads that torch shares, of float32": lambda: (
        lambda q, k, v: plain(q, k, v, enable_gqa=True), tensors(dtype=F32)
    ),
    "one head, expanded": lambda: (
        lambda q, k, v: plain(q, k.expand(-1, 8, -1, -1), v.expand(-1, 8, -1, -1)), tensors(8, 1, keys=140)
    ),
    "many heads of one": lambda: (of_repeated, tensors(36, 1, keys=33, size=16)),
    "long heads": lambda: (of_repeated, tensors(2, 1, keys=70, size=136)),
    "heads too long": lambda: (of_repeated, tensors(2, 1, keys=20, size=264)),
    "mask of one number": lambda: (of_repeated, (*tensors(), r(1, 1, 1, 1))),
    "keys that are computed": lambda: (lambda q, k, v: of_repeated(q, k * 2, v.tanh()), tensors()),
    "part of a cache": lambda: (
        lambda q, k, v: of_repeated(q, k[:, :, 3:30], v[:, 1:, 3:30]), (*tensors()[:2], tensors(shared=3)[2])
    ),
    "keys side by side": lambda: (
        lambda q, k, v: of_repeated(q, k.mT.contiguous().mT, v.mT.contiguous().mT), tensors()
    ),
    "one tensor repeated": lambda: (lambda q, k, v: plain(q, k, repeated(v, 2)), (*tensors(4, 4)[:2], tensors()[2])),
    # from here on launches overlap
    "overlapping, plain": lambda: overlapping((of_repeated, tensors(keys=300))),
    "overlapping, a token": lambda: overlapping(of_token(8, 2, 300, 32)),
    "overlapping, a token of each of a batch": lambda: overlapping(of_token(8, 2, 300, 32, batch=3, at=150)),
    "overlapping, a token, the last": lambda: overlapping(of_token(6, 2, 300, 32, at=299)),
    "overlapping, a token, one head": lambda: overlapping(of_token(1, 1, 200, 64, batch=2, at=70)),
    "overlapping, a token, few odd elements": lambda: overlapping(of_token(3, 3, 300, 12)),
}

if __name__ == "__main__":
    CudaTarget.attends = lambda self, queries, keys, dtype: True  # type: ignore[method-assign]
    report(CASES, sys.argv[1:])
