"""What bounds the shapes of a GPU's blocks."""

from __future__ import annotations

from typing import Final

import torch

from framejit.late_dataclass import dataclass

SPARED: Final = 8
"""Registers of each thread that addresses and counters take."""


@dataclass(frozen=True)
class GpuLimits:
    """Limits of one kind of GPU, as its driver gives them, and what follows from them."""

    multiprocessors: int
    most_threads: int
    """The most threads that a program may have."""
    working_registers: int
    """Registers that what a thread loads and what it adds up may take, where a program has that many threads."""
    longest_row: int
    """How many values of a row, all told, are held in registers by one program: of larger ones a multiprocessor takes
    one at a time, and its memory is idle while that computes. (Of rows of 32000, held, the maximum and sum of
    exponentials came to 0.57 of copying's speed on an H200; in a loop, to 0.96.)
    """
    longest_block: int
    """Up to here a row that is read only once is taken as one block, not in a loop."""

    @property
    def enough_programs(self) -> int:
        """Programs among which a multiprocessor always finds one that does not wait for memory."""
        return 2 * self.multiprocessors

    @classmethod
    def of(cls, multiprocessors: int, registers: int, most_threads: int) -> GpuLimits:
        """`registers` are those of a multiprocessor, of 32 bits."""
        return cls(multiprocessors, most_threads, registers // most_threads - SPARED, registers // 4, registers // 8)

    @classmethod
    def of_device(cls, index: int) -> GpuLimits:
        """The limits of a GPU of this machine, by its number."""
        found = torch.cuda.get_device_properties(index)
        # releases of torch differ in what they tell; these two are the same for all GPUs that Triton compiles for
        registers, most_threads = (
            getattr(found, "regs_per_multiprocessor", 1 << 16),
            getattr(found, "max_threads_per_block", 1024),
        )
        return cls.of(found.multi_processor_count, registers, most_threads)


WITHOUT_A_GPU: Final = GpuLimits.of(132, 65536, 1024)
"""What code is made for where no GPU is at hand, only looked at: an H100 or H200."""
