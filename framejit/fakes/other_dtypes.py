"""Existing views of a tensor in another dtype.

Torch makes the fake of such a view of the fake of its base, which it first sees in the other dtype as a whole. A base
may have no such view (its last dimension is no pair of numbers, or no multiple) where the part in question has one.
"""

from __future__ import annotations

from typing import Any

import torch

_aten: Any = torch.ops.aten
_AS_COMPLEX: Any = _aten.view_as_complex.default
_AS_DTYPE: Any = _aten.view.dtype


def seen_as_memory(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a view in another dtype, with the base laid out so that it has one. The part that is wanted of
    the view is found by its place in memory."""
    if func is not _AS_COMPLEX and func is not _AS_DTYPE:
        return args
    base = args[0]
    n = 2 if func is _AS_COMPLEX else max(1, args[1].itemsize // base.itemsize)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(base.shape, base.stride()))
    units = 0 if 0 in base.shape else extent // n
    sizes, strides = ((units, 2), (2, 1)) if func is _AS_COMPLEX else ((units * n,), (1,))
    offset = base.storage_offset()
    return base.as_strided(sizes, strides, offset - offset % n), *args[1:]
