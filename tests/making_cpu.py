"""A CPU that says of itself that its kernels make random numbers, as those of GPUs do: graphs are then what they are on
a GPU, and the operations that they have for random numbers are ATen's to carry out."""

from __future__ import annotations

from framejit.backends.fuse.targets.cpu import CpuTarget


class MakingCpu(CpuTarget):
    """To be put in the place of the CPU's target by `standing_in`."""

    makes_random_numbers = True
