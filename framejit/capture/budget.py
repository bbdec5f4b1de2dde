"""What a capture may cost before the frame, or the call inside it that takes so long, is left to plain Python; and what
compiling may cost at a time when a program has only run for so long.

Capture runs the program's Python some thousand times slower than Python does. That is well spent where it ends in a
graph, and never pays back where a long loop works on plain numbers only.
"""
from __future__ import annotations

import os
from collections.abc import Collection
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Final

import torch

from framejit.config import config
from framejit.signals import CostsTooMuch, Unsupported

if TYPE_CHECKING:
    from framejit.capture.graph.graph_builder import GraphBuilder

STEPS_PER_RUN = 20  # a capture with tensor operations may take so many times `config.capture_steps` in all
SECONDS_OF_A_NODE: Final = 0.002
SECONDS_OF_A_DIFFERENTIATED_NODE: Final = 0.006
"""What compiling takes for a node of a graph, and for one that gradients are wanted of, in loops that were unrolled
(benchmarks/NOTES.md)."""
SHARE_OF_ALIKE: Final = 0.2
"""Of that, what a node takes that stands in a layer like another one."""
NODES_OF_A_CELL: Final = 10
"""To how many nodes a cell of a recurrent network comes, which is one operation of torch."""
_CELLS: Final = (torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell)
CHEAP_S: Final = 5.0
"""Compiling that takes no longer is done at any time."""
SMALL_PARTS: Final = 4
"""From so many parts on, each of which ends with a graph break, what they hold is looked at."""
OPERATIONS_OF_A_PART: Final = 8
ELEMENTS_OF_A_PART: Final = 1 << 14
"""To go from one part to the next takes some 5 us on a CPU (benchmarks/NOTES.md), as much as so few operations of
tensors that are no larger gain."""
_LOOK = 4096  # steps between two looks at clock and memory
_OPEN = open  # the program may put one of its own among the builtins
_PAGE = os.sysconf("SC_PAGE_SIZE")
HINT = (
    "leave such code outside the compiled function, or raise framejit.config.capture_steps, capture_seconds or "
    "capture_memory"
)


class OverBudget(Unsupported):
    """The capture has cost more than it may."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "FJ211", HINT)


class Budget:
    """The cost of capturing one frame, over all attempts at it: instructions, seconds, bytes."""

    def __init__(self, may_wait: bool = False) -> None:
        """`may_wait`: nobody has asked for the frame to be compiled, so that it is left to Python as long as that costs
        too much."""
        self.may_wait = may_wait
        self.started, self.resident = monotonic(), _resident()
        self.steps = 0
        self._run = 0  # steps since the last tensor operation
        self._ops = 0
        self._next_look = _LOOK

    @property
    def since_operation(self) -> int:
        """Steps since the last tensor operation."""
        return self._run

    def new_attempt(self) -> None:
        """The capture starts again; what it took to get as far as an operation does not count twice."""
        self._run = self._ops = 0

    def spend(self, steps: int, graph: GraphBuilder) -> None:
        """Count `steps` instructions, or items made, in a capture. Raises OverBudget, and CostsTooMuch."""
        self.steps += steps
        self._run = steps if graph.n_ops != self._ops else self._run + steps
        self._ops = graph.n_ops
        if self._run > config.capture_steps:
            raise OverBudget(f"more than {config.capture_steps} instructions were captured without a tensor operation")
        if self.steps >= self._next_look:
            self._next_look = self.steps + _LOOK
            self._look()
            self.check_cost(graph)

    def check_cost(self, graph: GraphBuilder) -> None:
        """Raises CostsTooMuch where compiling would take longer than the program has run so far.

        Who knows nothing of the future spends at most twice what the best choice would cost by waiting until then
        (Karlin et al., Competitive snoopy caching, 1988).
        """
        if not self.may_wait:
            return
        expected, has_run = _expected_seconds(graph), thread_time()  # a busy machine changes both sides alike
        if expected > max(CHEAP_S, has_run):
            raise CostsTooMuch(max(expected - has_run, has_run))  # the graph may be far from complete

    def check_parts(self, parts: Collection[tuple[int, int]]) -> None:
        """Raises OverBudget where a function falls into many parts with little in them: operations, and elements of the
        largest result, of each."""
        if (
            len(parts) >= SMALL_PARTS
            and sum(operations for operations, _ in parts) <= OPERATIONS_OF_A_PART * len(parts)
            and max(elements for _, elements in parts) <= ELEMENTS_OF_A_PART
        ):
            raise OverBudget("between its graph breaks there is so little that parts cost more than they save")

    def _look(self) -> None:
        if self.steps > STEPS_PER_RUN * config.capture_steps:
            raise OverBudget(f"more than {STEPS_PER_RUN * config.capture_steps} instructions were captured")
        if monotonic() - self.started > config.capture_seconds:
            raise OverBudget(f"the capture took more than {config.capture_seconds} seconds")
        if _resident() - self.resident > config.capture_memory:
            raise OverBudget(f"the capture took more than {config.capture_memory >> 20} MiB of memory")


def _expected_seconds(graph: GraphBuilder) -> float:
    """What compiling a graph is expected to take."""
    each = SECONDS_OF_A_DIFFERENTIATED_NODE if graph.wants_gradients else SECONDS_OF_A_NODE
    cells = sum(node.target in _CELLS for node in graph.graph.nodes)
    kinds = {id(layer.kind): len(layer.nodes) for layer in graph.layers}
    alike = sum(len(layer.nodes) for layer in graph.layers) - sum(kinds.values())
    return each * (len(graph.graph.nodes) + cells * (NODES_OF_A_CELL - 1) - alike * (1 - SHARE_OF_ALIKE))


def _resident() -> int:
    """The memory of the process, in bytes."""
    with _OPEN("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * _PAGE
