"""What went into each compiled graph during a verified call, and what came out."""
from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from framejit.late_dataclass import dataclass
from framejit.verify import modes, randomness
from framejit.verify.difference import Difference, first_difference

if TYPE_CHECKING:
    from framejit.options import Options


@dataclass
class Graph:
    """A captured graph as the backend was given it."""

    module: fx.GraphModule
    options: Options


@dataclass
class GraphRun:
    """One call of a compiled graph. All tensors are copies that nobody else holds."""

    graph: Graph
    inputs: list[torch.Tensor]
    inputs_after: list[torch.Tensor]
    outputs: list[torch.Tensor]
    restore: Callable[[], None]
    """Brings back modes and random numbers as they were before the call."""

    def difference(self) -> Difference | None:
        """How the call differs from the graph run node by node."""
        return against_eager(self.graph.module, self.inputs, self.inputs_after, self.outputs, self.restore)


class _Local(threading.local):
    runs: list[GraphRun] | None = None
    dispatched = 0
    """How many dispatchers that choose calls themselves this thread is inside of."""


_local = _Local()


@contextmanager
def recorded() -> Iterator[list[GraphRun]]:
    """Within the block this thread's calls of watched graphs are recorded in the list."""
    before = _local.runs
    runs: list[GraphRun] = []
    _local.runs = runs
    try:
        yield runs
    finally:
        _local.runs = before


@contextmanager
def dispatched() -> Iterator[None]:
    """Within the block whole calls are verified, or not; graphs do not choose calls by themselves."""
    _local.dispatched += 1
    try:
        yield
    finally:
        _local.dispatched -= 1


def inside() -> bool:
    """Whether this thread is in the middle of a verified call."""
    return _local.runs is not None


def watched(
    compiled: Callable[..., Any], graph: Graph, chosen: Callable[[], bool], check: Callable[[GraphRun], object]
) -> Callable[..., Any]:
    """`compiled`, recorded while its thread records. Where no dispatcher verifies whole calls (under `framejit run`),
    `chosen` calls are checked."""

    def run(*inputs: torch.Tensor) -> Any:
        if _local.runs is None and (_local.dispatched or not chosen()):
            return compiled(*inputs)
        before, restore = private(inputs), _state()
        outputs = compiled(*inputs)
        made = GraphRun(graph, before, private(inputs), private(outputs), restore)
        if _local.runs is not None:
            _local.runs.append(made)
        else:
            after = _state()
            check(made)
            after()
        return outputs

    run.__wrapped__ = compiled  # type: ignore[attr-defined]  # `framejit.inspect` looks for it
    return run


def before_compilation(module: fx.GraphModule, options: Options) -> Graph:
    """A graph to compare with later; backends may change the one they get."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return Graph(fx.GraphModule(torch.nn.Module(), graph), options)


def against_eager(
    module: fx.GraphModule, inputs: list[torch.Tensor], inputs_after: list[torch.Tensor], outputs: list[torch.Tensor],
    restore: Callable[[], None]
) -> Difference | None:
    """How outputs and inputs after a call differ from those of the graph's own Python code."""
    own = private(inputs)
    restore()
    expected = private(module.forward(*own))
    return first_difference(
        {"output": expected, "input, after the call,": private(own)},
        {"output": outputs, "input, after the call,": inputs_after}
    )


def private(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies with the same layout and sharing of memory, and a gradient history that ends at themselves."""
    copies = copy.deepcopy([t.detach() for t in tensors])
    with torch.enable_grad():
        return [c.requires_grad_().clone() if t.requires_grad else c for c, t in zip(copies, tensors)]


def _state() -> Callable[[], None]:
    numbers, flags = randomness.now(), modes.now()

    def restore() -> None:
        numbers()
        flags()

    return restore
