"""What is told of a graph once its plan is there: its account, and the events."""

from __future__ import annotations

from collections.abc import Sequence

from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.cache.plan_record import KernelRecord
from framejit.events import emit


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


def tell_unfused(graph: CompiledGraph) -> None:
    """An event: why a graph runs as ATen operations."""
    emit(
        "fusion", graph_id=graph.graph_id, graph=graph.name, text=f"nothing is fused: {graph.reason}",
        reason=graph.reason,
    )
