"""Graphs so small that ATen's operations may be quicker, forward and backward: measured once, after some calls.

A node of ours costs some ten microseconds in each direction, whatever it does; an operation of ATen's on a few numbers
takes about five, and its backward ten. Graphs for inference are measured call by call (`selecting.py`). Here a call is
over long before its backward is, and what other nodes take in between would be counted. So the graph is run a few
times besides, on the inputs of a call, where that changes nothing and takes no longer than some milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.backends.fuse.autograd_nodes.segment_nodes import CompiledSegment
from framejit.environment.signal_handlers import SignalsWait
from framejit.events import emit

if TYPE_CHECKING:
    from framejit.backends.fuse.autograd_nodes.differentiable import Differentiable

CALLS: Final = 8
"""A graph is measured in its call of this number."""
MOST_OPERATIONS: Final = 64
MOST_BYTES: Final = 1 << 22
"""Of all inputs. With more, what a node costs is little of the whole."""
ROUNDS: Final = 5
MARGIN: Final = 1.05
"""So many times quicker ATen has to be."""

Runs = Callable[..., tuple[Any, ...]]


def choose(graph: Differentiable, compiled: Runs, inputs: Sequence[torch.Tensor]) -> None:
    """Have the graph run as ATen from now on if that is quicker for such inputs. `compiled`: runs it otherwise."""
    if not _is_measured(graph, inputs) or not any(tensor.requires_grad for tensor in inputs):
        return
    with SignalsWait():
        leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in inputs]
        times: dict[Runs, list[int]] = {compiled: [], graph.as_aten: []}
        for _ in range(ROUNDS):
            for run, taken in times.items():
                taken.append(_nanoseconds(run, leaves))
    graph.compiled_ns, graph.eager_ns = map(min, times.values())
    graph.fate.runs_as_aten = graph.eager_ns * MARGIN < graph.compiled_ns
    account = graph.accounts[0]
    emit(
        "perf", graph=account.name, graph_id=account.graph_id, compiled_us=graph.compiled_ns / 1e3,
        eager_us=graph.eager_ns / 1e3, eager_is_least=False, state=graph.state, bytes=None,
    )


def _is_measured(graph: Differentiable, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether running the graph besides takes little time, changes nothing, and nobody sees it."""
    halves = graph.halves()
    return (
        torch.is_grad_enabled()
        and not torch.is_anomaly_enabled()
        and torch._C._current_graph_task_id() == -1
        and not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
        and not (graph.forward.sizes or graph.written or graph.stages or graph.second_run.devices)
        and graph.second_run.eager == graph.eager
        and all(isinstance(segment, CompiledSegment) for segment in graph.segments)
        and all(half.is_repeatable and half.trial.is_over and half.compiled.launches is None for half in halves)
        and not any(half.trial.differences for half in halves)
        and all(type(tensor) in (torch.Tensor, torch.nn.Parameter) for tensor in inputs)
        and sum(tensor.numel() * tensor.itemsize for tensor in inputs) <= MOST_BYTES
        and len(graph.forward.graph().nodes) <= MOST_OPERATIONS
    )


def _nanoseconds(run: Runs, leaves: list[torch.Tensor]) -> int:
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    device = next((leaf.device for leaf in leaves if leaf.device.type == "cuda"), None)
    if device is not None:
        torch.cuda.synchronize(device)
    start = perf_counter_ns()
    results = [result for result in run(*leaves) if isinstance(result, torch.Tensor) and result.requires_grad]
    torch.autograd.grad(results, wanted, [torch.ones_like(result) for result in results], allow_unused=True)
    if device is not None:
        torch.cuda.synchronize(device)
    return perf_counter_ns() - start
