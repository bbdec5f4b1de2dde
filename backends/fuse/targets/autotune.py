"""Which of several ways to run a kernel is the quickest: measured on the device, in turns.

Each way is a plan of one step over memory that nothing else uses. A way that fails, or gives other numbers than the
first, is told of and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.backends.fuse.plan.plan_parts import PlanParts
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize
from framejit.events import emit

if TYPE_CHECKING:
    from framejit import _native
    from framejit.backends.fuse.loop_ir.nodes import Kernel
    from framejit.backends.fuse.targets.target import KernelLaunch, Target

ROUNDS: Final = 5
"""How often each way is measured. The least counts: what else the device does only adds to it."""
SECONDS: Final = 1e-3
"""How long one way is run in a round, about."""
MOST_CALLS: Final = 50
"""Calls of a way in a round at most."""
MARGIN: Final = 0.97
"""The first way, which rules chose, gives way to one that takes this share of its time or less."""
MEMORY_SHARE: Final = 0.25
"""Of the memory that is free, how much may be taken to measure."""
CLOSE: Final = {torch.float64: 1e-9, torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""How far apart, as a share of the largest number, results of two ways may be: sums are taken in other orders."""


def is_measurable(kernel: Kernel) -> bool:
    """Whether its sizes are known. For others one way would be measured for sizes that change."""
    sizes = (
        size for buffer in kernel.buffers.values() for size in (*buffer.sizes, *buffer.strides, buffer.offset)
    )
    return not any(isinstance(size, SymbolicSize) for size in sizes)


def quickest(kernel: Kernel, ways: Sequence[tuple[str, KernelLaunch]], target: Target) -> int | None:
    """The position of the quickest of `ways`, each with what it is called in events; None, and events that say
    why, where the device lacks the memory to measure, or none of them runs."""
    memory = _memory(kernel, target)
    if memory is None:
        emit("autotuned", kernel=kernel.name, tried=0, chosen=ways[0][0], first_us=None, chosen_us=None)
        return None
    with torch.no_grad():
        runs = [(position, _plan(kernel, launch)) for position, (_, launch) in enumerate(ways)]
        usable = _alike(kernel, ways, runs, memory)
        if len(usable) < 2:
            return usable[0][0] if usable else None
        seconds = _measured([run for _, run in usable], [*memory.values()], target)
    positions = [position for position, _ in usable]
    best = min(range(len(seconds)), key=seconds.__getitem__)
    if seconds[best] > MARGIN * seconds[0]:
        best = 0
    emit(
        "autotuned", kernel=kernel.name, tried=len(usable), chosen=ways[positions[best]][0],
        first_us=seconds[0] * 1e6, chosen_us=seconds[best] * 1e6,
    )
    return positions[best]


def _memory(kernel: Kernel, target: Target) -> dict[str, torch.Tensor] | None:
    """A tensor for each of the kernel's buffers, as it is told of them: numbers around 0 for floats, zeros (which are
    places everywhere) for others. None if the device lacks the memory.

    The program's random numbers are left alone.
    """
    random = torch.Generator(target.device).manual_seed(0)
    made: dict[str, torch.Tensor] = {}
    bytes_of = {
        name: max(1, buffer.offset + buffer.extent) * buffer.dtype.itemsize for name, buffer in kernel.buffers.items()
    }
    if sum(bytes_of.values()) * 2 > MEMORY_SHARE * target.free_memory():
        return None
    try:
        for name, buffer in kernel.buffers.items():
            if buffer.constant is not None and name not in kernel.writes:
                made[name] = buffer.constant
                continue
            count = bytes_of[name] // buffer.dtype.itemsize
            made[name] = torch.zeros(count, dtype=buffer.dtype, device=target.device)
            if buffer.dtype in CLOSE:
                made[name].normal_(generator=random)
    except torch.OutOfMemoryError:
        return None
    return made


def _plan(kernel: Kernel, launch: KernelLaunch) -> _native.Plan:
    """A plan that takes the kernel's buffers, in their order, and runs it."""
    count = len(kernel.buffers)
    slots = dict(zip(kernel.buffers, range(count)))
    step = launch([slots[name] for name in launch.buffers])
    parts = PlanParts(count, count, (step,), (), (), (), (), (0,) * count)
    return parts.native((), _no_fallback, kernel.name)


def _no_fallback(*inputs: torch.Tensor) -> tuple[Any, ...]:
    raise RuntimeError("a kernel that is measured can't be run")


def _alike(
    kernel: Kernel, ways: Sequence[tuple[str, KernelLaunch]], runs: Iterable[tuple[int, _native.Plan]],
    memory: dict[str, torch.Tensor],
) -> list[tuple[int, _native.Plan]]:
    """Those that run, and give what the first of them does."""
    written = [*dict.fromkeys(kernel.writes)]
    before = {name: memory[name].clone() for name in written}
    first: list[torch.Tensor] | None = None
    found = []
    for position, run in runs:
        for name in written:
            memory[name].copy_(before[name])
        try:
            run(*memory.values())
            results = [memory[name].clone() for name in written]
        except Exception as e:
            _leave_out(kernel, ways[position][0], f"{type(e).__name__}: {e}")
            continue
        if first is None:
            first = results
        elif not all(map(_close, results, first)):
            _leave_out(kernel, ways[position][0], f"it gives other numbers than {ways[0][0]}")
            continue
        found.append((position, run))
    return found


def _leave_out(kernel: Kernel, way: str, why: str) -> None:
    emit("kernel_failed", kernel=kernel.name, error=f"{way}: {why}", instead="another of the ways that are measured")


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype not in CLOSE:
        return torch.equal(one, other)
    largest = other.abs().nan_to_num(0, 0, 0).max()
    return torch.allclose(one, other, rtol=CLOSE[one.dtype], atol=CLOSE[one.dtype] * float(largest), equal_nan=True)


def _measured(runs: Sequence[_native.Plan], memory: Sequence[torch.Tensor], target: Target) -> list[float]:
    """Seconds a call of each, the least of several rounds in which they take turns."""

    def of(run: _native.Plan, calls: int) -> float:
        return target.seconds(lambda: run(*memory), calls) / calls

    calls = [max(1, min(MOST_CALLS, int(SECONDS / max(of(run, 2), 1e-9)))) for run in runs]
    rounds = [[of(run, count) for run, count in zip(runs, calls)] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*rounds)]
