"""CPUs: kernels through LLVM, called on this thread or on torch's OpenMP team.

The generator is imported inside of functions: a process whose kernels are on the disk does not need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from framejit.backends.fuse.account.compiled_graph import KernelSource
from framejit.backends.fuse.cache.kernel_cache import cpu_object
from framejit.backends.fuse.not_fusable import KernelFailed
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize
from framejit.backends.fuse.targets.target import Described, KernelLaunch, Target
from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from framejit.backends.fuse.llvm.compiled_kernel import CpuKernel
    from framejit.backends.fuse.loop_ir.expr import Expr
    from framejit.backends.fuse.loop_ir.nodes import Kernel

SIZE = (int, SymbolicSize)


@dataclass(eq=False)
class CpuLaunch:
    """How a kernel is called on the CPU."""

    kernel: CpuKernel
    origins: tuple[str, ...]
    device: torch.device

    @property
    def buffers(self) -> tuple[str, ...]:
        return self.kernel.buffers

    @property
    def source(self) -> KernelSource:
        return KernelSource(self.kernel.name, CpuTarget.language, self.kernel.source, self.origins)

    @property
    def machine_code(self) -> CpuKernel:
        return self.kernel

    @property
    def described(self) -> Described:
        return {name: getattr(self.kernel, name) for name in CpuTarget.described}

    def __call__(self, slots: Sequence[int]) -> tuple[Any, ...]:
        return "cpu_kernel", self.kernel.address, tuple(slots), self.kernel.sizes, self.kernel.total, self.kernel.grain


class CpuTarget(Target):
    """The processor: kernels are LLVM's, called on this thread or on torch's OpenMP team."""

    language = "llvm"
    suffix = "ll"
    described = {
        "name": str, "remarks": str, "text": str, "buffers": tuple, "total": SIZE, "grain": SIZE, "sizes": tuple,
    }
    renames = True
    packs_weights = True
    sums_in_double = True
    shifts_norms = True
    few_rows = 64
    row_parts = 64
    few_elements = 1 << 12
    scan_lanes = 4

    @property
    def is_there(self) -> bool:
        return True

    @property
    def parallel_turns(self) -> int:
        return 8

    @property
    def identity(self) -> str:
        from framejit.backends.fuse.llvm.processor import processor_key

        return processor_key()

    def supports(self, operation: str, dtype: torch.dtype, divisor: Expr | None = None) -> bool:
        from framejit.backends.fuse.llvm.llvm_support import supports

        return supports(operation.removeprefix("reduce_"), dtype, divisor)

    def channel_block(self, channels: int) -> int:
        from framejit.backends.fuse.llvm.products.convolution_tile import channel_block

        return channel_block(channels)

    def compile(self, kernels: Sequence[Kernel]) -> list[KernelLaunch]:
        made: list[KernelLaunch] = []
        writing: Writing | None = None
        for kernel in kernels:
            try:
                from framejit.backends.fuse.llvm.kernel import Writing, compile_cpu_kernel

                writing = writing or Writing()
                made.append(CpuLaunch(compile_cpu_kernel(kernel, cpu_object, writing), kernel.origins, self.device))
            except Exception as e:
                raise KernelFailed(f"{kernel.name} failed with {type(e).__name__}: {e}") from e
        return made

    def load(self, kernels: Sequence[tuple[tuple[str, ...], Described]]) -> list[KernelLaunch]:
        from framejit.backends.fuse.llvm.compiled_kernel import CpuKernel, code_of

        return [
            CpuLaunch(CpuKernel(**described, code=code_of(described["text"], cpu_object)), origins, self.device)
            for origins, described in kernels
        ]
