"""Tiles of attention of one query: a program takes a part of the keys, and all heads that share these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from framejit.backends.fuse.loop_ir.nodes import AttentionKernel, Kernel, Layout, SplitAttention
from framejit.backends.fuse.schedule.into_attention import turns
from framejit.backends.fuse.triton.tiles.block_sizes import power_above
from framejit.backends.fuse.triton.tiles.tile import INT32_MAX, Axis, Tile
from framejit.late_dataclass import dataclass

LEAST_INNER: Final = 16
"""Elements of a head that tensor cores multiply at least; fewer are filled up with zeros."""
LEAST_HEADS: Final = 8
"""Heads that they multiply at least."""
WARPS: Final = (4, 2, 8)


@dataclass(frozen=True)
class AttentionTile:
    """How a `SplitAttention` is dealt out to programs."""

    attention: SplitAttention
    warps: int
    first: tuple[Tile, ...] = ()
    """For each kernel that programs do before: see `AttentionKernel.first`."""

    @property
    def programs(self) -> int:
        batch, heads = self.attention.key.sizes[:2]
        return batch * heads * self.attention.parts

    @property
    def inner(self) -> int:
        """The elements of a query and a key, filled up."""
        return max(LEAST_INNER, power_above(self.attention.key.sizes[3]))

    @property
    def columns(self) -> int:
        """The elements of a value, filled up."""
        return max(LEAST_INNER, power_above(self.attention.value.sizes[3]))

    @property
    def heads(self) -> int:
        """The heads that share keys, filled up."""
        return max(LEAST_HEADS, power_above(self.attention.group))

    @property
    def wide(self) -> bool:
        """Whether places need 64 bits."""
        filled = [Layout(buffer, buffer.sizes, buffer.strides, 0) for buffer in self.attention.filled]
        touched = [*self.attention.layouts, *filled]
        return any(_reach(layout, self.attention.keys_a_part) > INT32_MAX for layout in touched)

    def __str__(self) -> str:
        return f"{self.attention.keys_a_part} keys, {self.heads} heads, {self.warps} warps"


def attention_tiles(kernel: AttentionKernel) -> Iterator[AttentionTile]:
    """Tiles of attention, the one to take without trying first."""
    for warps in WARPS:
        yield AttentionTile(kernel.attention, warps, tuple(_before(each, kernel, warps) for each in kernel.first))


def _before(kernel: Kernel, attention: AttentionKernel, warps: int) -> Tile:
    """How what is done before is dealt out, in as many programs for each of attention's heads of the cache."""
    batch, heads = attention.attention.key.sizes[:2]
    _, at_once = turns(kernel.parallel_size // (batch * heads))
    return Tile(kernel, (Axis("x", kernel.parallel, at_once),), warps)


def _reach(layout: Layout, more: int) -> int:
    """The furthest place that is computed, though perhaps not read."""
    return abs(layout.offset) + sum((size + more) * abs(step) for size, step in zip(layout.sizes, layout.strides))
