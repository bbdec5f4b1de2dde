"""Kernels to machine code, on whatever device each is for."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from framejit import _native
from framejit.backends.fuse.account.compiled_graph import CompiledGraph, KernelSource
from framejit.backends.fuse.cache.kernel_cache import cpu_object, gpu_binaries
from framejit.backends.fuse.errors import KernelFailed, NotFusable
from framejit.backends.fuse.loop_ir.nodes import Kernel

if TYPE_CHECKING:
    from framejit.backends.fuse.llvm.kernel import CpuKernel
    from framejit.backends.fuse.triton.compile import GpuBinary
    from framejit.backends.fuse.triton.source import TritonSource


@dataclass(eq=False)
class CpuLaunch:
    """A kernel on the CPU; called with the slots of its `buffers`, it gives the step of a plan."""

    kernel: CpuKernel
    origins: tuple[str, ...]
    device: torch.device

    language: ClassVar[str] = "llvm"
    written: ClassVar[tuple[str, ...]] = ("name", "remarks", "text", "pointers", "total", "grain", "sizes")

    @property
    def buffers(self) -> tuple[str, ...]:
        return self.kernel.pointers

    @property
    def source(self) -> KernelSource:
        return KernelSource(self.kernel.name, self.language, self.kernel.source, self.origins)

    @property
    def machine_code(self) -> CpuKernel:
        return self.kernel

    @property
    def described(self) -> dict[str, Any]:
        """All that `load_kernels` needs, as plain data."""
        return {name: getattr(self.kernel, name) for name in self.written}

    def __call__(self, slots: Sequence[int]) -> tuple[Any, ...]:
        return "cpu_kernel", self.kernel.address, tuple(slots), self.kernel.sizes, self.kernel.total, self.kernel.grain


@dataclass(eq=False)
class GpuLaunch:
    """The same for a GPU."""

    text: TritonSource
    binary: GpuBinary
    machine_code: _GpuModule
    origins: tuple[str, ...]
    device: torch.device

    language: ClassVar[str] = "triton"

    @property
    def buffers(self) -> tuple[str, ...]:
        return self.text.buffers

    @property
    def source(self) -> KernelSource:
        return KernelSource(self.text.name, self.language, self.text.text, self.origins)

    @property
    def described(self) -> dict[str, Any]:
        return {field.name: getattr(self.text, field.name) for field in fields(self.text)}

    def __call__(self, slots: Sequence[int]) -> tuple[Any, ...]:
        binary, module = self.binary, self.machine_code
        sizes = zip((kind for _, kind, _ in self.text.signature[len(self.text.buffers) :]), self.text.sizes)
        return "cuda_kernel", module.function, self.text.grid, binary.threads, binary.shared_bytes, binary.arguments(slots, sizes), module.device_index


KernelLaunch = CpuLaunch | GpuLaunch


def compile_kernels(kernels: Sequence[Kernel], graph: CompiledGraph) -> dict[Kernel, KernelLaunch]:
    """How to launch each kernel; sources and machine code go to the graph's account.

    Raises NotFusable for devices that no code generator is for, KernelFailed where one fails.
    """
    launches: dict[Kernel, KernelLaunch] = {}
    for device, group in groupby(sorted(kernels, key=lambda kernel: str(kernel.device)), key=lambda kernel: kernel.device):
        if device.type == "cpu":
            launches.update((kernel, _cpu(kernel, graph)) for kernel in group)
        elif device.type == "cuda" and torch.version.hip is None:
            launches.update(_cuda(list(group), device, graph))
        else:
            raise NotFusable(f"there is no code generator for {device}")
    return launches


def load_kernels(described: Sequence[tuple[torch.device, tuple[str, ...], dict[str, Any]]], graph: CompiledGraph) -> list[KernelLaunch]:
    """How to launch kernels that were compiled before, of each its device, its origins and what `described` gave; as `compile_kernels` otherwise.

    Raises whatever data that is none leads to, before the graph's account knows of any kernel.
    """
    from framejit.backends.fuse.llvm.kernel import CpuKernel, code_of

    launches: list[KernelLaunch | None] = [None] * len(described)
    on_gpu: dict[torch.device, list[int]] = {}
    for position, (device, origins, data) in enumerate(described):
        if device.type == "cpu":
            launches[position] = CpuLaunch(CpuKernel(**data, code=code_of(data["text"], cpu_object)), origins, device)
        else:
            on_gpu.setdefault(device, []).append(position)
    for device, positions in on_gpu.items():
        from framejit.backends.fuse.triton.source import TritonSource

        sources = [TritonSource(**described[position][2]) for position in positions]
        for position, source, binary in zip(positions, sources, _binaries(sources, device)):
            launches[position] = GpuLaunch(source, binary, _GpuModule.of(source.key, binary, _index(device)), described[position][1], device)
    return [_known(launch, graph) for launch in launches if launch is not None]


def _known(launch: KernelLaunch, graph: CompiledGraph) -> KernelLaunch:
    graph.kernels.append(launch.source)
    graph.machine_code.append(launch.machine_code)
    return launch


def _cpu(kernel: Kernel, graph: CompiledGraph) -> KernelLaunch:
    from framejit.backends.fuse.llvm.kernel import compile_cpu_kernel

    try:
        compiled = compile_cpu_kernel(kernel, cpu_object)
    except Exception as e:
        raise KernelFailed(f"{kernel.name} failed with {type(e).__name__}: {e}") from e
    return _known(CpuLaunch(compiled, kernel.origins, kernel.device), graph)


def _cuda(kernels: Sequence[Kernel], device: torch.device, graph: CompiledGraph) -> dict[Kernel, KernelLaunch]:
    from framejit.backends.fuse.triton.source import triton_source

    try:
        sources = [triton_source(kernel) for kernel in kernels]
        binaries = _binaries(sources, device)
    except Exception as e:
        notes = " ".join(["", *getattr(e, "__notes__", ())])  # which kernel it was
        raise KernelFailed(f"{type(e).__name__}{notes}: {e}") from e
    return {
        kernel: _known(GpuLaunch(source, binary, _GpuModule.of(source.key, binary, _index(device)), kernel.origins, device), graph)
        for kernel, source, binary in zip(kernels, sources, binaries)
    }


def _binaries(sources: list[TritonSource], device: torch.device) -> list[GpuBinary]:
    major, minor = torch.cuda.get_device_capability(_index(device))
    return gpu_binaries(sources, 10 * major + minor)


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


class _GpuModule:
    """Machine code that is loaded on a device. Loaded for good: a process has as many kernels as it has code, and unloading waits for the device."""

    _loaded: dict[tuple[str, int], _GpuModule] = {}

    def __init__(self, binary: Any, device_index: int) -> None:
        self.device_index = device_index
        _, self.function, self.registers, self.local_bytes = _native.cuda_load_module(binary.cubin, binary.name, binary.shared_bytes, device_index)

    @classmethod
    def of(cls, key: str, binary: Any, device_index: int) -> _GpuModule:
        """The module of a kernel on a device, loaded now unless it is already."""
        module = cls._loaded.get((key, device_index))
        if module is None:
            module = cls._loaded[key, device_index] = cls(binary, device_index)
        return module
