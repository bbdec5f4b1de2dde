"""Tiles of convolutions: pixels and output channels whose sums a processor holds in registers.

For each product of a tile's sums one vector of weights is loaded for its channels and one number of the image for each
pixel, which all lanes share. So the loads are fewer than the multiplications, and no sum waits for the one before.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from framejit.backends.fuse.llvm.machine import machine

FEW_LANES: Final = 8
"""The lanes of a vector of 32 bytes, the least that such tiles are quick with."""
VECTORS: Final = (2, 3, 1)
"""How many vectors of channels a tile has, the quickest first."""
MOST_PIXELS: Final = 14


@dataclass(frozen=True)
class ConvolutionTile:
    """So many pixels, and `vectors` of so many lanes of output channels."""

    pixels: int
    vectors: int
    lanes: int


def channel_block(channels: int) -> int:
    """Of so many output channels those of a tile; 0 where tiles would not be quick."""
    host = machine()
    if host.vector_bytes < 4 * FEW_LANES or not host.has_fma:
        return 0
    lanes = host.vector_bytes // 4
    blocks = (lanes * vectors for lanes in dict.fromkeys((lanes, FEW_LANES)) for vectors in VECTORS)
    return next((block for block in blocks if channels % block == 0), 0)


def tile_of(block: int, pixels: int) -> ConvolutionTile:
    """The tile for blocks of so many channels of images of so many pixels: the one that takes the fewest
    instructions, where the last tile of an image does some pixels again."""
    host = machine()
    lanes = next(
        lanes for lanes in (host.vector_bytes // 4, FEW_LANES)
        if block % lanes == 0 and block // lanes in VECTORS
    )
    vectors, registers = block // lanes, 32 if host.is_avx512 else 16
    most = min((registers - 1 - vectors) // vectors, MOST_PIXELS, pixels)
    # loads and multiplications go side by side, two at a time; a sum takes eight multiplications to come about
    turns = {count: -(-pixels // count) * max(count * vectors, count + vectors, 8) for count in range(1, most + 1)}
    return ConvolutionTile(min(reversed(range(1, most + 1)), key=turns.__getitem__), vectors, lanes)
