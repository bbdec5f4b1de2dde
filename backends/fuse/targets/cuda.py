"""NVIDIA GPUs: kernels through Triton, launched on torch's current stream.

The generator is imported inside of functions: a process whose kernels are on the disk does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit import _native
from framejit.backends.fuse.account.compiled_graph import KernelSource
from framejit.backends.fuse.cache.kernel_cache import begun_gpu_binaries, expect_gpu_kernels
from framejit.backends.fuse.not_fusable import KernelFailed, NotFusable
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize
from framejit.backends.fuse.targets.cuda_autotune import measured_tiles
from framejit.backends.fuse.targets.cuda_graphs import CudaRecorder
from framejit.backends.fuse.targets.target import Described, KernelLaunch, Target
from framejit.backends.fuse.triton.tiles.block_limits import WITHOUT_A_GPU, GpuLimits
from framejit.backends.fuse.triton.tiles.block_sizes import power_above
from framejit.events import emit
from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from framejit.backends.fuse.loop_ir.expr import Expr
    from framejit.backends.fuse.loop_ir.nodes import Kernel
    from framejit.backends.fuse.triton.compile import GpuBinary
    from framejit.backends.fuse.triton.kernel_source import TritonSource
    from framejit.backends.fuse.triton.tiles.blocks import AnyTile


COLUMNS: Final = 64
"""Rows side by side in memory that one program reduces."""
FEW_ROWS, MORE_ROWS, MOST_COLUMNS = 2, 8, 4096
"""Rows up to which our products are quicker than cuBLAS's, on an H200 (benchmarks/products.py): with any number of
columns, and with no more than these."""
MOST_KEYS: Final = 1 << 15
"""Keys up to which our attention of one query was measured, and quicker than copies and a kernel of torch's libraries
(benchmarks/attention.py)."""
MANY_KEYS, LEAST_KEYS, LONG_HEAD = 128, 16, 128
"""Keys that a program takes where that makes enough programs, and the least that tensor cores multiply; elements of a
head from which on it takes half as many (chosen on an H200)."""
PARTS_HELD: Final = 1 << 13
"""Numbers of parts of keys up to which one program puts them together; more are loops of many programs. (On an H200 a
token of a decoder with 16 parts of 8 heads, 64 elements each: 763 us for 779; 4,096 keys of 128 elements in 32 parts of
4 heads: 11.7 us for 9.8.)"""
LARGE: Final = 1 << 20
"""Elements from which on reading them takes longer than another kernel."""
WAITING_FROM: Final = (9, 0)
"""The compute capability from which on kernels can wait for the one before (PTX ISA, `griddepcontrol`)."""
CYCLES_A_LAUNCH: Final = 10_000
"""Cycles of the device, some 6 microseconds, in which a launch is surely queued."""


class GpuModule:
    """Machine code that is loaded on a device. Loaded for good: a process has as many kernels as it has code, and
    unloading waits for the device."""

    _loaded: dict[tuple[str, int], GpuModule] = {}

    def __init__(self, binary: GpuBinary, device_index: int) -> None:
        self.device_index = device_index
        _, self.function, self.registers, self.local_bytes = _native.cuda_load_module(
            binary.cubin, binary.name, binary.shared_bytes, device_index
        )

    @classmethod
    def of(cls, key: str, binary: GpuBinary, device_index: int) -> GpuModule:
        """The module of a kernel on a device, loaded now unless it is already."""
        module = cls._loaded.get((key, device_index))
        if module is None:
            module = cls._loaded[key, device_index] = cls(binary, device_index)
        return module


@dataclass(eq=False)
class GpuLaunch:
    """How a kernel is launched on a GPU."""

    text: TritonSource
    binary: GpuBinary
    machine_code: GpuModule
    origins: tuple[str, ...]
    device: torch.device

    @property
    def buffers(self) -> tuple[str, ...]:
        return self.text.buffers

    @property
    def source(self) -> KernelSource:
        return KernelSource(self.text.name, CudaTarget.language, self.text.text, self.origins)

    @property
    def described(self) -> Described:
        return {field.name: getattr(self.text, field.name) for field in fields(self.text)}

    def __call__(self, slots: Sequence[int]) -> tuple[Any, ...]:
        binary, module = self.binary, self.machine_code
        scalars = zip((kind for _, kind, _ in self.text.signature[len(self.text.buffers) :]), self.text.scalars)
        return (
            "cuda_kernel", module.function, self.text.grid, binary.threads, binary.shared_bytes,
            binary.arguments(slots, scalars), module.device_index, self.text.waits,
        )


class CudaTarget(Target):
    """One NVIDIA GPU: kernels are Triton's, launched on torch's current stream."""

    language = "triton"
    suffix = "py"
    described = {
        "name": str, "code": str, "function": str, "remarks": str, "buffers": tuple, "signature": tuple,
        "programs": (int, SymbolicSize), "warps": int, "waits": bool, "scalars": tuple,
    }
    is_asynchronous = True
    is_aligned = True
    allocation = 512  # kMinBlockSize in c10/cuda/CUDACachingAllocator.cpp
    prefers_layouts = True
    adds_bias_apart = True  # behind cuDNN's convolutions
    gathers = True
    pools = True
    makes_random_numbers = True
    hides_work = True
    outer_products = True
    norm_rows = 1  # two rows: 17.7 us with the norm inside, 15.4 with it apart, on an H200 (benchmarks/products.py)
    shares_launches = True
    few_rows = 512
    row_parts = 1024
    few_elements = 1 << 18
    longest_scan = {"sum": 1 << 14, "prod": 1 << 14, "logsumexp": 1 << 12}

    @property
    def is_there(self) -> bool:
        return torch.cuda.is_available()

    @property
    def identity(self) -> str:
        index = self.index
        return (
            f"{torch.cuda.current_device()} is current, {index} {torch.cuda.get_device_name(index)} "
            f"{torch.cuda.get_device_capability(index)} {self.limits}"
        )

    @property
    def index(self) -> int:
        """A GPU's number; the current one's where the device has none."""
        return torch.cuda.current_device() if self.device.index is None else self.device.index

    @cached_property
    def limits(self) -> GpuLimits:
        """The device's limits for the shapes of blocks: multiprocessors, registers, shared memory."""
        return GpuLimits.of_device(self.index) if self.is_there else WITHOUT_A_GPU

    @property
    def overlaps_launches(self) -> bool:
        return self.is_there and torch.cuda.get_device_capability(self.index) >= WAITING_FROM

    @cached_property
    def recorder(self) -> CudaRecorder | None:
        possible = self.is_there and CudaRecorder.is_possible()
        return CudaRecorder(torch.device("cuda", self.index)) if possible else None

    @property
    def parallel_turns(self) -> int:
        return self.limits.multiprocessors

    def parts(self, results: int, length: int, crosses: Callable[[], bool]) -> int:
        if isinstance(length, SymbolicSize) or isinstance(results, SymbolicSize) or not crosses():
            return super().parts(results, length, crosses)
        wanted = 8 * self.limits.multiprocessors * COLUMNS // max(COLUMNS, results)
        if wanted < 2 or length < wanted * COLUMNS and results * length < LARGE:
            return 1
        return wanted if length >= wanted * COLUMNS else max(1, length // COLUMNS)

    def multiplies(self, rows: int, columns: int, dtype: torch.dtype, joint: bool) -> bool:
        if rows <= FEW_ROWS:
            return True
        if dtype.itemsize > 2:
            return rows <= 2 * FEW_ROWS
        return rows <= MORE_ROWS and (joint or columns <= MOST_COLUMNS)

    def attends(self, queries: int, keys: int, dtype: torch.dtype) -> bool:
        return queries == 1 and keys <= MOST_KEYS

    def keys_a_part(self, heads: int, keys: int, elements: int) -> int:
        few = heads * -(-keys // MANY_KEYS) < self.limits.multiprocessors
        wanted = MANY_KEYS // 2 if few or elements > LONG_HEAD else MANY_KEYS
        return max(LEAST_KEYS, min(wanted, power_above(keys)))

    def joins_parts(self, heads: int, parts: int, elements: int) -> bool:
        return power_above(heads) * power_above(parts) * power_above(elements) <= PARTS_HELD

    def supports(self, operation: str, dtype: torch.dtype, divisor: Expr | None = None) -> bool:
        from framejit.backends.fuse.triton.triton_support import supports

        return supports(operation, dtype)

    def expect(self) -> None:
        expect_gpu_kernels()

    def compile(self, kernels: Sequence[Kernel]) -> list[KernelLaunch]:
        return self.begun(kernels)()

    def begun(self, kernels: Sequence[Kernel]) -> Callable[[], list[KernelLaunch]]:
        from framejit.backends.fuse.triton.tiles.blocks import candidates

        return self._made(kernels, lambda: [candidates(kernel, self.limits) for kernel in kernels])

    def autotuned(self, kernels: Sequence[Kernel]) -> list[KernelLaunch]:
        if torch.cuda.is_current_stream_capturing():  # nothing can be measured
            return self.compile(kernels)
        return self._made(kernels, lambda: measured_tiles(kernels, self))()

    def _made(
        self, kernels: Sequence[Kernel], tiles: Callable[[], list[Iterator[AnyTile]]]
    ) -> Callable[[], list[KernelLaunch]]:
        if torch.version.hip is not None:
            raise NotFusable(f"there is no code generator for {self.device}")
        with _as_kernel_failed():
            compiled = self._compiled(kernels, tiles())

        def made() -> list[KernelLaunch]:
            with _as_kernel_failed():
                return self.launches(*compiled(), [kernel.origins for kernel in kernels])

        return made

    def free_memory(self) -> int:
        kept = torch.cuda.memory_reserved(self.index) - torch.cuda.memory_allocated(self.index)  # by the allocator
        return torch.cuda.mem_get_info(self.index)[0] + kept

    def seconds(self, run: Callable[[], Any], calls: int) -> float:
        with torch.cuda.device(self.index):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(CYCLES_A_LAUNCH * calls)  # meanwhile all calls are queued: launching takes its time
            start.record()
            for _ in range(calls):
                run()
            end.record()
            end.synchronize()
        return start.elapsed_time(end) / 1e3

    def _compiled(
        self, kernels: Sequence[Kernel], tiles: Sequence[Iterator[AnyTile]]
    ) -> Callable[[], tuple[list[TritonSource], list[GpuBinary]]]:
        """What gives a source of each kernel, and machine code, which is being made meanwhile. A tile that Triton fails
        on gives way to the kernel's next: its passes have faults that come and go with the shape of blocks. Raises what
        Triton raises on a kernel's last."""
        from framejit.backends.fuse.triton.kernel_source import triton_source

        sources = [triton_source(kernel, tile=next(own)) for kernel, own in zip(kernels, tiles)]
        begun = self.begun_binaries(sources)

        def compiled() -> tuple[list[TritonSource], list[GpuBinary]]:
            outcomes = begun()
            while failed := {at: outcome for at, outcome in enumerate(outcomes) if isinstance(outcome, Exception)}:
                for at, error in failed.items():
                    tile = next(tiles[at], None)
                    if tile is None:
                        raise error
                    why = f"{type(error).__name__}: {error}"
                    emit("kernel_failed", kernel=sources[at].name, error=why, instead=str(tile))
                    sources[at] = triton_source(kernels[at], tile=tile)
                for at, outcome in zip(failed, self.begun_binaries([sources[at] for at in failed])()):
                    outcomes[at] = outcome
            return sources, [_machine_code(outcome) for outcome in outcomes]

        return compiled

    def load(self, kernels: Sequence[tuple[tuple[str, ...], Described]]) -> list[KernelLaunch]:
        from framejit.backends.fuse.triton.kernel_source import TritonSource

        sources = [TritonSource(**described) for _, described in kernels]
        binaries = [_machine_code(outcome) for outcome in self.begun_binaries(sources)()]
        return self.launches(sources, binaries, [origins for origins, _ in kernels])

    def launches(
        self, sources: list[TritonSource], binaries: list[GpuBinary], origins: list[tuple[str, ...]]
    ) -> list[KernelLaunch]:
        """How to launch kernels, each with its source, machine code and the lines of the program that it stems from."""
        index = self.index
        return [
            GpuLaunch(source, binary, GpuModule.of(source.key, binary, index), lines, self.device)
            for source, binary, lines in zip(sources, binaries, origins)
        ]

    def begun_binaries(self, sources: list[TritonSource]) -> Callable[[], list[GpuBinary | Exception]]:
        """What gives for each of the sources machine code, or what Triton raises."""
        major, minor = torch.cuda.get_device_capability(self.index)
        return begun_gpu_binaries(sources, 10 * major + minor)


@contextmanager
def _as_kernel_failed() -> Iterator[None]:
    try:
        yield
    except Exception as e:
        notes = " ".join(["", *getattr(e, "__notes__", ())])  # which kernel it was
        raise KernelFailed(f"{type(e).__name__}{notes}: {e}") from e


def _machine_code(outcome: GpuBinary | Exception) -> GpuBinary:
    """What was compiled. Raises what was raised instead."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
