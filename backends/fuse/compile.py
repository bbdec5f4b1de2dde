"""Kernels to machine code, on whatever device each is for."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch

from framejit import _native
from framejit.backends.fuse.compiled_graph import CompiledGraph, KernelSource
from framejit.backends.fuse.errors import KernelFailed, NotFusable
from framejit.backends.fuse.ir import Kernel
from framejit.backends.fuse.kernel_cache import cpu_object, gpu_binaries
from framejit.backends.fuse.plan import Launch


def compile_kernels(kernels: Sequence[Kernel], graph: CompiledGraph) -> dict[Kernel, Launch]:
    """How to launch each kernel; sources and machine code go to the graph's account.

    Raises NotFusable for devices that no code generator is for, KernelFailed where one fails.
    """
    launches: dict[Kernel, Launch] = {}
    for device, group in groupby(sorted(kernels, key=lambda kernel: str(kernel.device)), key=lambda kernel: kernel.device):
        if device.type == "cpu":
            launches.update((kernel, _cpu(kernel, graph)) for kernel in group)
        elif device.type == "cuda" and torch.version.hip is None:
            launches.update(_cuda(list(group), device, graph))
        else:
            raise NotFusable(f"there is no code generator for {device}")
    return launches


def _cpu(kernel: Kernel, graph: CompiledGraph) -> Launch:
    from framejit.backends.fuse.llvm.kernel import compile_cpu_kernel

    try:
        compiled = compile_cpu_kernel(kernel, cpu_object)
    except Exception as e:
        raise KernelFailed(f"{kernel.name} failed with {type(e).__name__}: {e}") from e
    graph.kernels.append(KernelSource(kernel.name, "llvm", compiled.source, kernel.origins))
    graph.machine_code.append(compiled)

    def launch(slots: Sequence[int]) -> tuple[Any, ...]:
        by_name = dict(zip(kernel.buffers, slots, strict=True))
        return "cpu_kernel", compiled.address, tuple(by_name[name] for name in compiled.pointers), (), compiled.total, compiled.grain

    return launch


def _cuda(kernels: Sequence[Kernel], device: torch.device, graph: CompiledGraph) -> dict[Kernel, Launch]:
    from framejit.backends.fuse.triton.source import triton_source

    index = torch.cuda.current_device() if device.index is None else device.index
    major, minor = torch.cuda.get_device_capability(index)
    try:
        sources = [triton_source(kernel) for kernel in kernels]
        binaries = gpu_binaries(sources, 10 * major + minor)
    except Exception as e:
        notes = " ".join(["", *getattr(e, "__notes__", ())])  # which kernel it was
        raise KernelFailed(f"{type(e).__name__}{notes}: {e}") from e
    launches: dict[Kernel, Launch] = {}
    for kernel, source, binary in zip(kernels, sources, binaries):
        graph.kernels.append(KernelSource(kernel.name, "triton", source.text, kernel.origins))
        module = _GpuModule.of(source.key, binary, index)
        graph.machine_code.append(module)
        launches[kernel] = _gpu_launch(kernel, source, binary, module)
    return launches


def _gpu_launch(kernel: Kernel, source: Any, binary: Any, module: _GpuModule) -> Launch:
    def launch(slots: Sequence[int]) -> tuple[Any, ...]:
        by_name = dict(zip(kernel.buffers, slots, strict=True))
        arguments = binary.arguments([by_name[name] for name in source.buffers])
        return "cuda_kernel", module.function, source.grid, binary.threads, binary.shared_bytes, arguments, module.device_index

    return launch


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
