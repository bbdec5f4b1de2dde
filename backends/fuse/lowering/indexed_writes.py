"""Writes at computed places: rows that `index_copy_` or `index_put_` puts where an index says, such as those of a new
token into a cache. Only where ATen itself asserts on the device that the places exist (`Target.gathers`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.lowering.lowered_tensor import Tensor
from framejit.backends.fuse.lowering.operators.indexing import place_at
from framejit.backends.fuse.sizes.symbolic_size import as_size, as_sizes
from framejit.backends.fuse.targets.lookup import target_of
from framejit.late_dataclass import dataclass


@dataclass(frozen=True)
class IndexedWrite:
    """What is written into a tensor, and where along one of its dimensions."""

    value: Tensor
    """Broadcast to `sizes`."""
    sizes: tuple[int, ...]
    """Those of the tensor, but along `dim` the number of places."""
    dim: int
    index: Tensor
    """The places, of one dimension, int64."""
    wraps: bool
    """Whether places below 0 are counted from the end."""

    def places(self, at: Sequence[Index], size: int) -> list[Index]:
        """The indices in the tensor, of this size along `dim`, of what is at some indices in `sizes`."""
        place = place_at(self.index.at([at[self.dim]]), size, self.wraps)
        return [*at[: self.dim], place, *at[self.dim + 1 :]]


def indexed_write(node: Node, args: Sequence[Any], kwargs: dict[str, Any]) -> IndexedWrite | None:
    """The write that a node is, with its arguments lowered; None if it is another operation, or one that ATen is to
    carry out."""
    [target] = node.writes
    if kwargs or len(args) not in (3, 4) or not isinstance(args[0], Tensor) or not target_of(target.device).gathers:
        return None
    if node.name == "index_copy_":
        _, dim, index, value = args
        wraps = False
    elif node.name == "index_put_" and args[3:] in ((), (False,)):
        _, indices, value = args[:3]
        given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
        if len(given) != 1:
            return None
        [(dim, index)] = given
        wraps = True
    else:
        return None
    rank = len(target.shape)
    if not isinstance(index, Tensor) or index.dtype != torch.int64 or len(index.sizes) != 1 or not rank:
        return None
    if not isinstance(value, Tensor) or value.dtype != target.dtype or value.device != target.device:
        return None
    # several values for one place: torch says which one is written in its deterministic mode
    if index.device != target.device or (index.sizes[0] != 1 and torch.are_deterministic_algorithms_enabled()):
        return None
    dim %= rank
    sizes = as_sizes(target.shape)
    if type(sizes[dim]) is int and not sizes[dim]:  # there is no such place, which ATen says
        return None
    sizes = (*sizes[:dim], as_size(index.sizes[0]), *sizes[dim + 1 :])
    if node.name == "index_copy_" and tuple(value.sizes) != sizes or not _may_be_broadcast(value.sizes, sizes):
        return None
    return IndexedWrite(value, sizes, dim, index, wraps)


def _may_be_broadcast(sizes: Sequence[int], to: Sequence[int]) -> bool:
    pairs = zip(reversed(sizes), reversed(to))
    return len(sizes) <= len(to) and all(type(size) is int and size == 1 or size == wanted for size, wanted in pairs)
