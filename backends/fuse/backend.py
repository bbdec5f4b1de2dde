"""The backend `fuse`: a graph goes through the stages one after the other and comes out as a region that is never slower than eager."""
from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
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
from framejit.config import config
from framejit.events import emit, warn

if TYPE_CHECKING:
    import torch

_numbers = itertools.count()


def fuse_graph(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Compile a graph to fused kernels and a plan that runs them.

    What comes back takes the graph's inputs and gives the tuple of its outputs, as `gm.forward` does, which runs instead where nothing can be
    fused, where a kernel cannot be compiled (with one warning), and where it measures quicker.
    """
    graph = CompiledGraph(f"graph_{next(_numbers)}", weakref.ref(gm))
    remember(gm, graph)
    try:
        graph.region = _compile(gm, example_inputs, graph)
    except NotFusable as e:
        graph.reason = str(e)
        emit("fusion", graph_id=graph.name, text=f"nothing is fused: {graph.reason}")
    except Exception as e:
        _failed(gm, example_inputs, graph, e)
    if config.artifacts and not graph.artifacts:
        _write_down(gm, example_inputs, graph)
    return graph.region or gm.forward


def _failed(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph, error: Exception) -> None:
    graph.reason = str(error) if isinstance(error, KernelFailed) else f"{type(error).__name__}: {error}"
    folder = _write_down(gm, example_inputs, graph, error)
    if config.debug:
        raise error
    warn(f"{graph.name} could not be compiled and runs as ATen operations: {graph.reason}" + (f" (details in {folder})" if folder else ""))


def _write_down(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph, error: Exception | None = None) -> str:
    from framejit.backends.fuse.artifacts import write_artifacts

    return write_artifacts(graph, gm, example_inputs, error)


def _compile(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph) -> Callable[..., Any]:
    lowered = lower(gm, example_inputs)
    graph.before_fusion = text_of(lowered.nodes, lowered.buffers)
    steps = schedule(lowered)
    graph.after_fusion = text_of(steps, lowered.buffers)
    emit("fusion", graph_id=graph.name, text=graph.after_fusion)
    kernels = [step for step in steps if isinstance(step, Kernel) and not step.is_empty]
    graph.externs = [getattr(step.function, "__name__", str(step.function)) for step in steps if isinstance(step, ExternNode)]
    launches = compile_kernels(kernels, graph)
    for source in graph.kernels:
        emit("output_code", graph_id=graph.name, name=source.name, language=source.language, source=source.source, kernel=source.name)
    plan = build_plan(lowered, steps, launches, gm.forward, graph.name)
    compiled = _plainly(plan) if lowered.plain else plan
    return _native.Region(compiled, gm.forward, pure=_is_pure(lowered, steps), cuda=_uses_cuda(lowered.buffers), on_decision=_tell(graph))


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


def _tell(graph: CompiledGraph) -> Callable[[_native.Region], None]:
    def decided(region: _native.Region) -> None:
        compiled, eager = region.compiled_ns or 0, region.eager_ns or 0
        emit("perf", region=graph.name, compiled_us=compiled / 1e3, eager_us=eager / 1e3, state=region.state)
        if graph.artifacts:
            from framejit.backends.fuse.artifacts import settled

            settled(graph)

    return decided
