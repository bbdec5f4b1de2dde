"""Kernels to machine code, on whatever device each is for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch

from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.fuse.targets.target import Described, KernelLaunch

if TYPE_CHECKING:
    from framejit.backends.fuse.loop_ir.nodes import Kernel

T = TypeVar("T")


def compile_kernels(kernels: Sequence[Kernel], graph: CompiledGraph) -> dict[Kernel, KernelLaunch]:
    """How to launch each kernel; sources and machine code go to the graph's account.

    Raises NotFusable for devices that no code generator is for, KernelFailed where one fails.
    """
    return begun_kernels(kernels, graph)()


def begun_kernels(kernels: Sequence[Kernel], graph: CompiledGraph) -> Callable[[], dict[Kernel, KernelLaunch]]:
    """What gives `compile_kernels`. Where other threads can do a part of it, they are at it meanwhile."""
    begun = []
    for device, group in _by_device(kernels, lambda kernel: kernel.device):
        target = target_of(device)
        given = group if target.renames else [*map(_plain, group)]
        begun.append((group, partial(target.autotuned, given) if graph.autotune else target.begun(given)))

    def done() -> dict[Kernel, KernelLaunch]:
        launches: dict[Kernel, KernelLaunch] = {}
        for group, made in begun:
            launches.update(zip(group, made(), strict=True))
        for launch in launches.values():
            _note(launch, graph)
        return launches

    return done


def _plain(kernel: Kernel) -> Kernel:
    from framejit.backends.fuse.loop_ir.renamed_kernel import RenamedKernel  # a process that finds kernels needs none

    return kernel.plain() if isinstance(kernel, RenamedKernel) else kernel


def load_kernels(
    described: Sequence[tuple[torch.device, tuple[str, ...], Described]], graph: CompiledGraph
) -> list[KernelLaunch]:
    """How to launch kernels that were compiled before, of each its device, its origins and what `described` gave; as
    `compile_kernels` otherwise.

    Raises whatever data that is none leads to, before the graph's account knows of any kernel.
    """
    places: dict[int, KernelLaunch] = {}
    for device, positions in _by_device(range(len(described)), lambda position: described[position][0]):
        places.update(
            zip(positions, target_of(device).load([described[position][1:] for position in positions]), strict=True)
        )
    launches = [places[position] for position in range(len(described))]
    for launch in launches:
        _note(launch, graph)
    return launches


def _by_device(items: Iterable[T], device_of: Callable[[T], torch.device]) -> list[tuple[torch.device, list[T]]]:
    """The items of each device, in their order; devices in the order of their names."""
    groups: dict[torch.device, list[T]] = {}
    for item in items:
        groups.setdefault(device_of(item), []).append(item)
    return sorted(groups.items(), key=lambda group: str(group[0]))


def _note(launch: KernelLaunch, graph: CompiledGraph) -> None:
    graph.kernels.append(launch.source)
    graph.machine_code.append(launch.machine_code)
