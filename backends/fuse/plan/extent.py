"""How much memory a tensor reaches over."""
from __future__ import annotations

from collections.abc import Sequence


def extent(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from a tensor's first to its last, with all between."""
    return 0 if 0 in sizes else 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
