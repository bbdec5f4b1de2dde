"""Writes by a mask (`x[mask] = value`) whose value does not depend on how many places the mask has: what is there else
stays as it is, and no place has to be found. Gradients need none, either."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import fx

from framejit.fakes.storages import storage_of

_Put = Callable[[torch.Tensor, torch.Tensor], Any]


def _in_place(x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    return x.copy_(made)  # autograd counts one write, as of the other operation


def _set_item(x: torch.Tensor, made: torch.Tensor) -> None:
    x.copy_(made)


def _anew(x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    return made


_PUTS: Final[dict[Any, _Put]] = {
    operator.setitem: _set_item, "index_put_": _in_place, torch.index_put_: _in_place, "index_put": _anew,
    torch.index_put: _anew, torch.ops.aten.index_put_: _in_place, torch.ops.aten.index_put: _anew,
}
"""What writes, and what it does with the tensor that has the values in their places."""


def masked_write(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result on fakes of a node that is such a write, done without finding places. NotImplemented for others."""
    put = _PUTS.get(node.target)
    if put is None or len(args) < 3 or type(node.args[0]) is not fx.Node or any((*args[3:], *kwargs.values())):
        return NotImplemented
    x, key, value = args[:3]
    found = _mask(key, x.dim())
    if found is None:
        return NotImplemented
    mask, before = found
    behind = x.dim() - before - mask.dim()
    if any(size != of_x for size, of_x in zip(mask.shape, x.shape[before:])):  # it raises, one element for many, too
        return NotImplemented
    if any(stride == 0 for stride in x.stride()) or not _is_apart(mask, x):  # the other operation may refuse these
        return NotImplemented
    if isinstance(value, torch.Tensor):
        if value.dim() == behind + 1 and type(value.shape[0]) is int and value.shape[0] == 1:
            value = value.squeeze(0)
        if value.dim() > behind or value.dtype != x.dtype or not _is_apart(value, x):
            return NotImplemented
    elif not _fits(value, x.dtype):
        return NotImplemented
    return put(x, torch.where(mask.reshape([*mask.shape, *[1] * behind]), value, x))


def _mask(key: Any, rank: int) -> tuple[torch.Tensor, int] | None:
    """The mask that indexes a tensor of a rank, among nothing but whole dimensions, and how many of these come before
    it."""
    parts = [*key] if isinstance(key, (tuple, list)) else [key]
    places = [place for place, part in enumerate(parts) if isinstance(part, torch.Tensor)]
    if len(places) != 1:
        return None
    [place] = places
    mask, others = parts[place], [*parts[:place], *parts[place + 1 :]]
    dots = sum(part is ... for part in others)
    missing = rank - mask.dim() - len(others) + dots
    if mask.dtype is not torch.bool or not mask.dim() or dots > 1 or missing < 0:
        return None
    if any(part is not ... and part != slice(None) for part in others):
        return None
    return mask, place + (missing - 1 if any(part is ... for part in parts[:place]) else 0)


def _is_apart(tensor: torch.Tensor, x: torch.Tensor) -> bool:
    return tensor.device == x.device and storage_of(tensor) != storage_of(x)


def _fits(number: Any, dtype: torch.dtype) -> bool:
    """Whether a number is one of the dtype's, so that to write it can't raise."""
    if dtype is torch.bool:
        return type(number) is bool
    if dtype.is_floating_point:
        limit = torch.finfo(dtype).max
        return type(number) in (bool, int, float) and (not math.isfinite(number) or abs(number) <= limit)
    if dtype.is_complex:
        return type(number) in (bool, int, float) and abs(number) < 1 << 15
    return type(number) in (bool, int) and torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max
