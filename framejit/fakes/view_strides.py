"""The strides of a view of all elements of a tensor in other sizes, by the rule of ATen's kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from framejit.fakes.elementwise_strides import contiguous


def whole_sizes(sizes: Sequence[Any], count: Any) -> list[Any]:
    """The sizes that `count` elements are to have, with a number in place of -1. Raises if there are none such."""
    found = list(sizes)
    inferred_dims = [dim for dim, size in enumerate(found) if isinstance(size, int) and size == -1]
    known = math.prod(size for dim, size in enumerate(found) if dim not in inferred_dims)
    if len(inferred_dims) == 1 and known != 0 and count % known == 0:
        found[inferred_dims[0]] = count // known
    elif inferred_dims or known != count:
        raise RuntimeError(f"shape '{found}' is invalid for input of size {count}")
    return found


def view_strides(sizes: Sequence[Any], strides: Sequence[Any], wanted: Sequence[Any]) -> list[Any] | None:
    """The strides of a tensor's view in the wanted sizes, which have as many elements. None if only a copy can have
    them."""
    if not sizes:
        return [1] * len(wanted)
    if any(size == 0 for size in sizes):
        return list(strides if list(sizes) == list(wanted) else contiguous(wanted))
    found: list[Any] = []  # from the last dimension on
    left = [*wanted]
    step, own, covered = strides[-1], 1, 1
    for dim in reversed(range(len(sizes))):
        own = own * sizes[dim]
        if dim and (sizes[dim - 1] == 1 or strides[dim - 1] == own * step):
            continue  # elements go on at the same distance
        while left and (covered < own or left[-1] == 1):
            found.append(covered * step)
            covered = covered * left.pop()
        if covered != own:
            return None
        if dim:
            step, own, covered = strides[dim - 1], 1, 1
    return None if left else found[::-1]
