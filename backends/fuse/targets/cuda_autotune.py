"""Which of a kernel's tiles is the quickest on this GPU, by measuring them once; the disk keeps the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from framejit.backends.fuse.cache import disk_cache
from framejit.backends.fuse.cache.cache_key import key_of
from framejit.backends.fuse.cache.kernel_record import BadRecord, pack, unpack
from framejit.backends.fuse.targets.autotune import is_measurable, quickest
from framejit.events import emit
from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from framejit.backends.fuse.loop_ir.nodes import Kernel
    from framejit.backends.fuse.targets.cuda import CudaTarget
    from framejit.backends.fuse.targets.target import KernelLaunch
    from framejit.backends.fuse.triton.compile import GpuBinary
    from framejit.backends.fuse.triton.kernel_source import TritonSource
    from framejit.backends.fuse.triton.tiles.blocks import AnyTile

MOST_TILES: Final = 40
"""Of a kernel's tiles, how many are measured. Only matrix products have more than eight."""
KIND: Final = "tile"
"""The kind of entries of the disk cache that say which of a kernel's tiles measured quickest."""


@dataclass(frozen=True)
class _Choice:
    """A kernel, its tiles, those of rules first, and its source with each; under the key the disk keeps which to
    take."""

    kernel: Kernel
    tiles: list[AnyTile]
    sources: list[TritonSource]
    key: str

    def known(self) -> int | None:
        """The position of the tile that was chosen before, or of the only one; None if there is a choice to make."""
        return 0 if len(self.tiles) == 1 else _kept(self.key, len(self.tiles))

    def make(self, outcomes: Sequence[GpuBinary | Exception], target: CudaTarget) -> int:
        """The position of the tile that measures quickest, which is kept; of the first that compiles where nothing
        could be measured. `outcomes`: what Triton made of the sources."""
        ways: list[tuple[int, KernelLaunch]] = []
        for place, (source, outcome) in enumerate(zip(self.sources, outcomes)):
            if isinstance(outcome, Exception):
                why = f"{type(outcome).__name__}: {outcome}"
                emit("kernel_failed", kernel=source.name, error=why, instead=f"others than {self.tiles[place]}")
            else:
                [launch] = target.launches([source], [outcome], [self.kernel.origins])
                ways.append((place, launch))
        if not ways:
            return 0
        found = quickest(self.kernel, [(str(self.tiles[place]), way) for place, way in ways], target)
        if found is None:
            return ways[0][0]
        place = ways[found][0]
        disk_cache.put(KIND, self.key, pack({"tile": place}, {}))
        return place


def measured_tiles(kernels: Sequence[Kernel], target: CudaTarget) -> list[Iterator[AnyTile]]:
    """The tiles of each kernel, the one that measures quickest first."""
    from framejit.backends.fuse.triton.tiles.blocks import candidates

    choices = [_choice(kernel, target) if is_measurable(kernel) else None for kernel in kernels]
    places = [None if choice is None else choice.known() for choice in choices]
    unknown = [choice for choice, place in zip(choices, places) if choice is not None and place is None]
    outcomes = iter(target.begun_binaries([source for choice in unknown for source in choice.sources])())
    found: list[Iterator[AnyTile]] = []
    for kernel, choice, place in zip(kernels, choices, places):
        if choice is None:
            found.append(candidates(kernel, target.limits))
            continue
        if place is None:
            place = choice.make([*islice(outcomes, len(choice.sources))], target)
        found.append(iter([choice.tiles[place], *choice.tiles[:place], *choice.tiles[place + 1 :]]))
    return found


def _choice(kernel: Kernel, target: CudaTarget) -> _Choice:
    from framejit.backends.fuse.triton.kernel_source import triton_source
    from framejit.backends.fuse.triton.tiles.blocks import worth_measuring

    tiles = [*{str(tile): tile for tile in islice(worth_measuring(kernel, target.limits), MOST_TILES)}.values()]
    sources = [triton_source(kernel, tile=tile) for tile in tiles]
    key = key_of(target.identity, *((source.key, source.programs) for source in sources))
    return _Choice(kernel, tiles, sources, key)


def _kept(key: str, count: int) -> int | None:
    """Which of `count` tiles was chosen under the key before; None if that is not known."""
    record = disk_cache.get(KIND, key)
    try:
        place = None if record is None else unpack(record)[0]["tile"]
    except (BadRecord, KeyError):
        return None
    return place if type(place) is int and 0 <= place < count else None
