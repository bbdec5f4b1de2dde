"""From a graph that passes have been over to the record of its plan: lowering, schedule, kernels, plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from framejit.backends.fuse.account.aten_launches import aten_launches
from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.account.stage_counts import stages
from framejit.backends.fuse.account.telling import tell_fused
from framejit.backends.fuse.cache.folding_record import folding_of
from framejit.backends.fuse.cache.plan_record import KernelRecord, PlanRecord
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.layers.expansion import ScheduledUnits, Uneven, expanded
from framejit.backends.fuse.layers.renaming import Step
from framejit.backends.fuse.layers.repeated_nodes import ShortGraph, shortened_nodes
from framejit.backends.fuse.loop_ir.bytes_moved import bytes_moved
from framejit.backends.fuse.loop_ir.nodes import Buffer, ExternNode, Kernel, LoweredGraph, text_of
from framejit.backends.fuse.loop_ir.renamed_kernel import RenamedKernel
from framejit.backends.fuse.lowering.lower_graph import lower_graph
from framejit.backends.fuse.plan.build_plan import build_plan
from framejit.backends.fuse.plan.plan_functions import view_in_another_dtype, view_of
from framejit.backends.fuse.plan.plan_parts import KERNEL, Launch
from framejit.backends.fuse.random_numbers.operations import OPERATIONS
from framejit.backends.fuse.schedule.make_kernels import schedule
from framejit.backends.fuse.targets.kernel_code import begun_kernels, compile_kernels
from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.fuse.targets.target import KernelLaunch
from framejit.late_dataclass import dataclass

Short = Callable[[], "tuple[ShortGraph, ShortGraph]"]


def plan_record(
    passed: Graph, tracked: bool, graph: CompiledGraph, short: Short | None = None
) -> tuple[PlanRecord, list[KernelLaunch]]:
    """Lower a graph that passes have been over, schedule it, compile its kernels and plan its memory: the record of the
    plan, and how its kernels are launched. `tracked`: see `lower_graph`. If the graph has only a few of many layers
    alike, `short` gives it, and the same with one fewer, and the plan is for the whole one; raises Uneven where its
    layers have not come to steps that are alike."""
    loops = _loops(passed, tracked, short)
    return _planned(passed, loops, compile_kernels(_told(loops, graph), graph), graph)


def begun_plan_record(
    passed: Graph, tracked: bool, graph: CompiledGraph
) -> Callable[[], tuple[PlanRecord, list[KernelLaunch]]]:
    """What gives `plan_record`. Kernels are being compiled meanwhile, where others can do that."""
    loops = _loops(passed, tracked, None)
    launches = begun_kernels(_told(loops, graph), graph)
    return lambda: _planned(passed, loops, launches(), graph)


def _told(loops: _Loops, graph: CompiledGraph) -> list[Kernel]:
    """The kernels to compile, the graph's account being told of them."""
    tell_fused(graph, loops.before_fusion, loops.after_fusion)
    called = [
        step.function
        for step in loops.steps
        if isinstance(step, ExternNode) and step.function not in (view_of, view_in_another_dtype)
    ]
    graph.externs = [getattr(function, "__name__", str(function)) for function in called]
    return [step for step in loops.steps if isinstance(step, Kernel) and not step.is_empty]


def _planned(
    passed: Graph, loops: _Loops, launches: dict[Kernel, KernelLaunch], graph: CompiledGraph
) -> tuple[PlanRecord, list[KernelLaunch]]:
    lowered, steps = loops.lowered, loops.steps
    numbered = {kernel: _numbered(kernel, number, launch) for number, (kernel, launch) in enumerate(launches.items())}
    parts = build_plan(lowered, steps, numbered)
    moved = {kernel: bytes_moved(kernel) for kernel in dict.fromkeys(map(_original, launches))}
    kernels = tuple(
        KernelRecord(launch.device, launch.origins, launch.described, moved[_original(kernel)])
        for kernel, launch in launches.items()
    )
    pure, cuda = _is_pure(lowered, steps), _is_asynchronous(lowered.buffers)
    record = PlanRecord(
        parts, kernels, tuple(graph.externs), loops.before_fusion, loops.after_fusion, lowered.plain, pure, cuda,
        any(node.operation in OPERATIONS for node in passed.nodes), aten_launches(graph.module()) if cuda else 0,
        folding_of(passed),
    )
    return record, [*launches.values()]


@dataclass(frozen=True, eq=False)
class _Loops:
    """A graph that was lowered and scheduled, and how it looked before and after, for people."""

    lowered: LoweredGraph
    steps: list[Step]
    before_fusion: str
    after_fusion: str


def _loops(
    passed: Graph, tracked: bool, short: Short | None
) -> _Loops:
    """The loops of the whole graph. Raises Uneven where it is given shortened, and its layers have not come to steps
    that are alike."""
    if short is not None:
        return _expanded(*short(), tracked)
    found = shortened_nodes(passed)
    if found is not None:
        try:
            return _expanded(*found, tracked)
        except Uneven:
            pass  # each operation is lowered
    return _scheduled(passed, tracked)


def _expanded(short: ShortGraph, fewer: ShortGraph, tracked: bool) -> _Loops:
    """The loops of the graph of which two have but the first units."""
    few, fewest = _scheduled(short.graph, tracked), _scheduled(fewer.graph, tracked)
    lowered, steps = expanded(
        ScheduledUnits(short.units, few.lowered, few.steps), ScheduledUnits(fewer.units, fewest.lowered, fewest.steps)
    )
    told = f"# {short.units.left_out}\n"
    return _Loops(lowered, steps, told + few.before_fusion, told + few.after_fusion)


def _scheduled(graph: Graph, tracked: bool) -> _Loops:
    lowered = lower_graph(graph, tracked)
    stages["lower"] += 1
    before_fusion = text_of(lowered.nodes, lowered.buffers)
    steps = schedule(lowered)
    stages["schedule"] += 1
    return _Loops(lowered, steps, before_fusion, text_of(steps, lowered.buffers))


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
