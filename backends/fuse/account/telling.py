"""What is told of a graph once its plan is there: its account, and the events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.events import emit

if TYPE_CHECKING:
    from framejit.backends.fuse.cache.plan_record import KernelRecord, PlanRecord


ASKED_FOR: Final = "gradients are asked for at results that lead to the loss"
"""Why a graph with one backward from the loss has one for each of its results instead."""


def tell_fused(graph: CompiledGraph, before: str, after: str) -> None:
    """Put into a graph's account, and into the trace, the loops that it had before fusion and has after it."""
    graph.before_fusion, graph.after_fusion = before, after
    emit("fusion", graph_id=graph.graph_id, graph=graph.name, text=after, reason="")


def tell_kernels(graph: CompiledGraph, kernels: Sequence[KernelRecord]) -> None:
    """Put the sources of a graph's kernels into the trace."""
    for source, kernel in zip(graph.kernels, kernels):
        facts = {"bytes": kernel.moved} if kernel.moved is not None else {}
        emit(
            "output_code", graph_id=graph.graph_id, name=source.name, language=source.language, source=source.source,
            kernel=facts,
        )


def tell_found(graph: CompiledGraph, record: PlanRecord) -> None:
    """Tell of a plan that comes out of the disk cache, and put it into the graph's account."""
    tell_fused(graph, record.before_fusion, record.after_fusion)
    graph.externs = [*record.externs]
    tell_kernels(graph, record.kernels)


def tell_training(
    accounts: Sequence[CompiledGraph], kept: Sequence[tuple[str, int]], computed_again: Sequence[tuple[str, int]],
    apart: str
) -> None:
    """An event: a graph is compiled as a forward and backwards, of which these are the accounts. `kept`: the lines
    whose values are kept, and their bytes. `computed_again`: those that are computed again, and how often. `apart`: why
    each result has a backward of its own, of a graph that was to have one from the loss; empty elsewhere."""
    forward, *backwards = accounts
    kernels = {
        "forward": [kernel.name for kernel in forward.kernels],
        "backward": [kernel.name for backward in backwards for kernel in backward.kernels],
    }
    emit(
        "training", graph_id=forward.graph_id, graph=forward.name, kernels=kernels, kept=kept,
        computed_again=computed_again, apart=apart,
    )


def tell_launches(graph: CompiledGraph) -> Callable[[str, str], None]:
    """What tells whether a graph's launches are one, `captured` or `plain`, and why."""

    def tell(state: str, reason: str) -> None:
        emit("launch_graph", graph_id=graph.graph_id, graph=graph.name, state=state, reason=reason)

    return tell


def tell_divided(graph: CompiledGraph, why_not: str) -> None:
    """An event: gradients are asked for at results of a graph that its backward went through in one go. `why_not`: why
    there is no backward for each, and the graph runs as ATen; empty where there is."""
    outcome = f"it runs as ATen from now on ({why_not})" if why_not else "each has a backward of its own from now on"
    text = f"{ASKED_FOR}: {outcome}"
    emit("fusion", graph_id=graph.graph_id, graph=graph.name, text=text, reason=text if why_not else "")


def tell_unfused(graph: CompiledGraph) -> None:
    """An event: why a graph runs as ATen operations."""
    emit(
        "fusion", graph_id=graph.graph_id, graph=graph.name, text=f"nothing is fused: {graph.reason}",
        reason=graph.reason,
    )
