"""The strides of what is read at computed places (`x[i]`), by the rule of ATen's kernels: an elementwise operation of
the tensor, repeated where indices stand, and the indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from framejit.fakes.elementwise_strides import Layout, contiguous, elementwise_strides
from framejit.fakes.view_strides import view_strides


def indexed_strides(tensor: torch.Tensor, indices: Sequence[torch.Tensor | None], sizes: Sequence[Any]) -> Any:
    """Strides of the result of these sizes. `indices`: for the leading dimensions, None where all is taken."""
    given: list[torch.Tensor] = []
    dims: list[int] = []  # that are indexed
    place, of_masks = 0, False
    for index in indices:
        if index is None:
            place += 1
            continue
        is_mask = index.dtype in (torch.bool, torch.uint8)
        of_masks = of_masks or is_mask
        covered = index.dim() if is_mask else 1
        dims += range(place, place + covered)
        place += covered
        given.append(index)
    rest = [dim for dim in range(tensor.dim()) if dim not in dims]
    if not dims:
        return None
    before = dims[0] if dims == [*range(dims[0], dims[-1] + 1)] else 0
    rank = len(sizes) - len(rest)  # of the indices together
    read = [tensor.stride(dim) for dim in rest]
    chosen = sizes[before : before + rank]
    operands: list[Layout] = [(sizes, [*read[:before], *[0] * rank, *read[before:]])]
    after = len(rest) - before
    for index in given:
        if of_masks:  # the places in a mask are a list, whose strides are compared with nothing
            laid = [1] * rank
        else:
            skipped = rank - index.dim()
            laid = [0] * skipped + [
                0 if own == 1 and size != 1 else stride
                for own, stride, size in zip(index.shape, index.stride(), chosen[skipped:])
            ]
        padded = [*[1] * before, *chosen, *[1] * after]
        operands.append((padded, view_strides(chosen, laid, padded) or contiguous(padded)))
    if tensor.device.type != "cpu" and any(layout != operands[1] for layout in operands[2:]):
        operands[1:] = [(own, contiguous(own)) for own, _ in operands[1:]]
    return elementwise_strides(sizes, operands)
