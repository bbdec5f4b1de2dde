"""From a graph that passes have been over to the record of its plan: lowering, schedule, kernels, plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.account.stage_counts import stages
from framejit.backends.fuse.account.telling import tell_fused
from framejit.backends.fuse.cache.folding_record import folding_of
from framejit.backends.fuse.cache.plan_record import KernelRecord, PlanRecord
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.layers.expansion import expanded
from framejit.backends.fuse.layers.shortened import Shortened
from framejit.backends.fuse.loop_ir.bytes_moved import bytes_moved
from framejit.backends.fuse.loop_ir.nodes import Buffer, ExternNode, Kernel, LoweredGraph
from framejit.backends.fuse.loop_ir.nodes import text_of as loops_as_text
from framejit.backends.fuse.loop_ir.renamed_kernel import RenamedKernel
from framejit.backends.fuse.lowering.lower_graph import lower_graph
from framejit.backends.fuse.plan.build_plan import build_plan
from framejit.backends.fuse.plan.plan_functions import view_in_another_dtype, view_of
from framejit.backends.fuse.plan.plan_parts import KERNEL, Launch
from framejit.backends.fuse.random_numbers.operations import OPERATIONS
from framejit.backends.fuse.schedule.make_kernels import schedule
from framejit.backends.fuse.targets.kernel_code import compile_kernels
from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.fuse.targets.target import KernelLaunch


def plan_record(
    passed: Graph, tracked: bool, graph: CompiledGraph, short: Shortened | None = None
) -> tuple[PlanRecord, list[KernelLaunch]]:
    """Lower a graph that passes have been over, schedule it, compile its kernels and plan its memory: the record of the
    plan, and how its kernels are launched. `tracked`: see `lower_graph`. If the graph is that of `short`, the plan is
    for the whole one; raises Uneven where its layers have not come to steps that are alike."""
    lowered = lower_graph(passed, tracked)
    stages["lower"] += 1
    before_fusion = loops_as_text(lowered.nodes, lowered.buffers)
    steps = schedule(lowered)
    stages["schedule"] += 1
    after_fusion = loops_as_text(steps, lowered.buffers)
    if short is not None:
        lowered, steps = expanded(short, lowered, steps)
        before_fusion, after_fusion = (f"# {short.left_out}\n{text}" for text in (before_fusion, after_fusion))
    tell_fused(graph, before_fusion, after_fusion)
    called = [
        step.function
        for step in steps
        if isinstance(step, ExternNode) and step.function not in (view_of, view_in_another_dtype)
    ]
    externs = [getattr(function, "__name__", str(function)) for function in called]
    graph.externs = externs
    launches = compile_kernels([step for step in steps if isinstance(step, Kernel) and not step.is_empty], graph)
    numbered = {kernel: _numbered(kernel, number, launch) for number, (kernel, launch) in enumerate(launches.items())}
    parts = build_plan(lowered, steps, numbered)
    moved = {kernel: bytes_moved(kernel) for kernel in dict.fromkeys(map(_original, launches))}
    kernels = tuple(
        KernelRecord(launch.device, launch.origins, launch.described, moved[_original(kernel)])
        for kernel, launch in launches.items()
    )
    pure, cuda = _is_pure(lowered, steps), _is_asynchronous(lowered.buffers)
    record = PlanRecord(
        parts, kernels, tuple(externs), before_fusion, graph.after_fusion, lowered.plain, pure, cuda,
        any(node.operation in OPERATIONS for node in passed.nodes), folding_of(passed),
    )
    return record, [*launches.values()]


def _original(kernel: Kernel) -> Kernel:
    """The kernel that does the same to other buffers of the same sizes, if one was made of another."""
    return kernel.like if isinstance(kernel, RenamedKernel) else kernel


def _numbered(kernel: Kernel, number: int, launch: KernelLaunch) -> Launch:
    def step(slots: Sequence[int]) -> tuple[Any, ...]:
        by_name = dict(zip(kernel.buffers, slots, strict=True))
        return KERNEL, number, tuple(by_name[name] for name in launch.buffers)

    return step


def _is_pure(lowered: LoweredGraph, steps: list[Kernel | ExternNode]) -> bool:
    """Whether running it twice does no more than running it once: nothing that outlives it is written, and no random
    numbers are drawn."""
    outlives = {
        name for name, buffer in lowered.buffers.items() if buffer.input is not None or buffer.constant is not None
    }
    written = {lowered.buffers[name].memory for step in steps for name in step.writes}
    return not written & outlives and not any(isinstance(step, ExternNode) and step.ordered for step in steps)


def _is_asynchronous(buffers: dict[str, Buffer]) -> bool:
    return any(target_of(buffer.device).is_asynchronous for buffer in buffers.values())
