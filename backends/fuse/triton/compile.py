"""Triton source to machine code, several kernels at a time, without a GPU at hand: by processes that do nothing else
where there are, else by threads of this one."""
from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from framejit.backends.fuse.triton import compile_processes, passes
from framejit.backends.fuse.triton.kernel_source import TritonSource
from framejit.backends.fuse.triton.tiles.multiples import ALIGNED
from framejit.environment.collector import resting
from framejit.late_dataclass import dataclass


@dataclass(frozen=True)
class GpuBinary:
    """Machine code for one kernel. Plain data, as it can be kept on disk."""

    cubin: bytes
    name: str
    """The kernel's name in the cubin."""
    shared_bytes: int
    threads: int
    pointers: int
    """How many of the arguments are addresses of tensors; they come first."""
    scratch: int
    """How many addresses of scratch memory come last, none of which the kernel uses: null will do."""

    def arguments(self, slots: Sequence[int], scalars: Iterable[tuple[str, Any]] = ()) -> tuple[tuple[Any, ...], ...]:
        """The arguments of a plan's step for tensors in these slots, in the order of the source's `buffers`, and for
        its `scalars`, each with its type."""
        return (*(("p", slot) for slot in slots), *scalars, *(("null",) for _ in range(self.scratch)))


def compile_gpu_kernels(
    sources: Sequence[TritonSource], capability: int, processes: bool = True
) -> list[GpuBinary | Exception]:
    """For each of the sources machine code, or what Triton raises, with a note that names the kernel. `capability` is
    the GPU's compute capability, such as 90; `processes`: whether others than this one may compile."""
    distinct = {source.key: source for source in sources}
    jobs = [_job(source, capability) for source in distinct.values()]
    outcomes = compile_processes.outcomes(jobs) if processes else None
    if outcomes is None:
        outcomes = _by_threads(jobs)
    found = {key: _binary(source, outcome) for (key, source), outcome in zip(distinct.items(), outcomes)}
    return [found[source.key] for source in sources]


def _by_threads(jobs: Sequence[passes.Job]) -> list[passes.MachineCode | Exception]:
    """By threads of this process, which for a third of the passes wait for each other: these are Python."""
    # imports and passes make many objects that stay; collections of a heap with torch in it would take as long as they
    # do
    with (
        resting(),
        ThreadPoolExecutor(
            max_workers=max(1, min(len(jobs), os.cpu_count() or 1)), thread_name_prefix="framejit-triton"
        ) as pool,
    ):
        return [*pool.map(passes.outcome, jobs)]


def _job(source: TritonSource, capability: int) -> passes.Job:
    signature = tuple(
        (name, kind, (16 if kind.startswith("*") else ALIGNED) if aligned else 0)
        for name, kind, aligned in source.signature
    )
    return passes.Job(source.name, source.code, source.function, signature, source.warps, capability)


def _binary(source: TritonSource, outcome: passes.MachineCode | Exception) -> GpuBinary | Exception:
    if isinstance(outcome, Exception):
        return outcome
    return GpuBinary(
        outcome.cubin, outcome.name, outcome.shared_bytes, outcome.threads, len(source.buffers), outcome.scratch
    )
