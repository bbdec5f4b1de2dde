"""The backend `fuse`: a graph goes through the stages one after the other and comes out as a region that is never slower than eager."""
from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from framejit import _native
from framejit.backends.fuse.compile import compile_kernels
from framejit.backends.fuse.compiled_graph import CompiledGraph, remember
from framejit.backends.fuse.errors import KernelFailed, NotFusable
from framejit.backends.fuse.ir import Buffer, ExternNode, Kernel, LoweredGraph, text_of
from framejit.backends.fuse.lowering import lower
from framejit.backends.fuse.plan import build_plan
from framejit.backends.fuse.schedule.kernels import schedule
from framejit.backends.fuse.trace import AUTOCAST_DEVICES
from framejit.backends.fuse.traffic import bytes_moved
from framejit.backends.graph_identity import identity
from framejit.config import config
from framejit.events import emit, listening, warn

if TYPE_CHECKING:
    import torch

_numbers = itertools.count()
_missing: dict[str, str] = {}
"""For a package that can't be imported what users were told: the same for each graph, and so once."""


def fuse_graph(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Compile a graph to fused kernels and a plan that runs them.

    What comes back takes the graph's inputs and gives the tuple of its outputs, as `gm.forward` does, which runs instead where nothing can be
    fused, where a kernel cannot be compiled (with one warning), and where it measures quicker.
    """
    graph = _account(gm)
    remember(gm, graph)
    try:
        graph.region = _compile(gm, example_inputs, graph)
    except NotFusable as e:
        graph.reason = str(e)
        _tell_unfused(graph)
    except Exception as e:
        _failed(gm, example_inputs, graph, e)
    if config.artifacts and not graph.artifacts:
        _write_down(gm, example_inputs, graph)
    return graph.region or gm.forward


def _account(gm: torch.fx.GraphModule) -> CompiledGraph:
    """A graph that framejit captured is named after its number there; others are counted."""
    number = identity(gm)
    if number is None:
        return CompiledGraph(f"uncaptured_{next(_numbers)}", weakref.ref(gm))
    return CompiledGraph(f"graph_{number}", weakref.ref(gm), number)


def _tell_unfused(graph: CompiledGraph) -> None:
    emit("fusion", graph_id=graph.graph_id, region=graph.name, text=f"nothing is fused: {graph.reason}", reason=graph.reason)


def _failed(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph, error: Exception) -> None:
    graph.reason = str(error) if isinstance(error, KernelFailed) else f"{type(error).__name__}: {error}"
    _tell_unfused(graph)
    if config.debug:
        _write_down(gm, example_inputs, graph, error)
        raise error
    cause = error if error.__cause__ is None else error.__cause__
    package = cause.name if isinstance(cause, ImportError) else None
    text = _missing.get(package) if package else None
    if text is None:
        folder = _write_down(gm, example_inputs, graph, error)
        others = f"; so do all others that need {package}" if package else ""
        details = f" (details in {folder})" if folder else ""
        text = f"{graph.name} could not be compiled and runs as ATen operations: {graph.reason}{others}{details}"
        if package:
            _missing[package] = text
    warn(text)


def _write_down(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph, error: Exception | None = None) -> str:
    from framejit.backends.fuse.artifacts import write_artifacts

    return write_artifacts(graph, gm, example_inputs, error)


def _compile(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph) -> Callable[..., Any]:
    lowered = lower(gm, example_inputs)
    graph.before_fusion = text_of(lowered.nodes, lowered.buffers)
    steps = schedule(lowered)
    graph.after_fusion = text_of(steps, lowered.buffers)
    emit("fusion", graph_id=graph.graph_id, region=graph.name, text=graph.after_fusion, reason="")
    kernels = [step for step in steps if isinstance(step, Kernel) and not step.is_empty]
    graph.externs = [getattr(step.function, "__name__", str(step.function)) for step in steps if isinstance(step, ExternNode)]
    launches = compile_kernels(kernels, graph)
    wanted = listening()  # it is counted for those who listen now, and for nobody else
    traffic = {kernel.name: bytes_moved(kernel) if wanted else None for kernel in kernels}
    for source in graph.kernels:
        facts = {"bytes": moved} if (moved := traffic[source.name]) is not None else {}
        emit("output_code", graph_id=graph.graph_id, name=source.name, language=source.language, source=source.source, kernel=facts)
    plan = build_plan(lowered, steps, launches, gm.forward, graph.name)
    compiled = _plainly(plan) if lowered.plain else plan
    pure, cuda, decided = _is_pure(lowered, steps), _uses_cuda(lowered.buffers), _tell(graph, _total(traffic, graph))
    return _native.Region(compiled, gm.forward, pure=pure, cuda=cuda, on_decision=decided)


def _plainly(plan: _native.Plan) -> Callable[..., Any]:
    """The plan, run with those of gradients and autocast switched off that are on; they are whenever the graph runs."""
    import torch

    set_grad_enabled = torch._C._set_grad_enabled

    def without_gradients(*inputs: torch.Tensor) -> Any:
        set_grad_enabled(False)
        try:
            return plan(*inputs)
        finally:
            set_grad_enabled(True)

    run = without_gradients if torch.is_grad_enabled() else plan
    if not any(map(torch.is_autocast_enabled, AUTOCAST_DEVICES)):
        return run

    def without_autocast(*inputs: torch.Tensor) -> Any:
        with torch._C._DisableAutocast():
            return run(*inputs)

    return without_autocast


def _is_pure(lowered: LoweredGraph, steps: list[Kernel | ExternNode]) -> bool:
    """Whether running it twice does no more than running it once: nothing that outlives it is written, and no random numbers are drawn."""
    outlives = {name for name, buffer in lowered.buffers.items() if buffer.input is not None or buffer.constant is not None}
    written = {lowered.buffers[name].memory for step in steps for name in step.writes}
    return not written & outlives and not any(isinstance(step, ExternNode) and step.ordered for step in steps)


def _uses_cuda(buffers: dict[str, Buffer]) -> bool:
    return any(buffer.device.type == "cuda" for buffer in buffers.values())


def _total(traffic: Mapping[str, int | None], graph: CompiledGraph) -> int | None:
    """What all of a graph moves; None where that is not known, as of ATen's operations."""
    moved = [size for size in traffic.values() if size is not None]
    return None if graph.externs or len(moved) < len(traffic) else sum(moved)


def _tell(graph: CompiledGraph, moved: int | None) -> Callable[[_native.Region], None]:
    def decided(region: _native.Region) -> None:
        compiled, eager = region.compiled_ns or 0, region.eager_ns or 0
        times = {"compiled_us": compiled / 1e3, "eager_us": eager / 1e3}
        emit("perf", region=graph.name, graph_id=graph.graph_id, **times, state=region.state, bytes=moved)
        if graph.artifacts:
            from framejit.backends.fuse.artifacts import settled

            settled(graph)

    return decided
