"""Machine code of Triton kernels, made without a GPU; what fails is raised."""

from __future__ import annotations

from collections.abc import Sequence

from framejit.backends.fuse.triton.compile import GpuBinary, compile_gpu_kernels
from framejit.backends.fuse.triton.kernel_source import TritonSource


def machine_code(sources: Sequence[TritonSource], capability: int = 90) -> list[GpuBinary]:
    """`compile_gpu_kernels`, which gives what was raised. Here it is."""
    binaries = []
    for outcome in compile_gpu_kernels(sources, capability):
        if isinstance(outcome, Exception):
            raise outcome
        binaries.append(outcome)
    return binaries
