"""Pooling, where no positions are wanted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, const, index_value, masked, op
from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, compute_dtype
from framejit.backends.fuse.lowering.lowerings import lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.targets.lookup import target_of

WIDEST_WINDOW: Final = 25  # elements; each is a load of its own in the kernel


@lowers("max_pool2d")
def _max_pool2d(
    b: Builder,
    out: Value,
    x: Tensor,
    window: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> Any:
    # ATen's kernel on a GPU writes positions too, eight bytes an element, that nobody asked for; on the CPU it does
    # without
    window, padding, dilation = _pair(window), _pair(padding), _pair(dilation)
    stride = _pair(stride) if stride else window
    if (
        not target_of(out.device).pools
        or not x.dtype.is_floating_point
        or math.prod(window) > WIDEST_WINDOW
        or not out.numel()
    ):
        return NotImplemented
    b.computed_once(x)  # each element is in several windows
    kind = compute_dtype(x.dtype)
    height, width = x.sizes[-2:]

    def greatest(indices: Sequence[Index]) -> Expr:
        *batch, row, column = indices
        best = const(-math.inf, kind)
        for i, j in product(range(window[0]), range(window[1])):
            y, z = row * stride[0] + (i * dilation[0] - padding[0]), column * stride[1] + (j * dilation[1] - padding[1])
            best = op("maximum", best, _inside(x.at([*batch, y, z]), ((y, height), (z, width)), kind))
        return best

    return b.indexed(greatest, x, sizes=tuple(out.shape), dtype=x.dtype, device=x.device, ops=2 * math.prod(window))


def _inside(value: Expr, places: Sequence[tuple[Index, int]], dtype: torch.dtype) -> Expr:
    """The value where all indices are within their sizes, else minus infinity."""
    for index, size in places:
        low, high = index.bounds
        conditions = [a.ge(index_value(index), 0)] * (low < 0) + [a.lt(index_value(index), size)] * (high >= size)
        for condition in conditions:
            value = masked(condition, value, const(-math.inf, dtype))
    return value


def _pair(value: Sequence[int]) -> tuple[int, int]:
    return (value[0], value[-1])
