"""What a capture may cost before the frame, or the call inside it that takes so long, is left to plain Python.

Capture runs the program's Python some thousand times slower than Python does. That is well spent where it ends in a
graph, and never pays back where a long loop works on plain numbers only.
"""
from __future__ import annotations

import os
from time import monotonic

from framejit.config import config
from framejit.signals import Unsupported

STEPS_PER_RUN = 20  # a capture with tensor operations may take so many times `config.capture_steps` in all
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

    def __init__(self) -> None:
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

    def spend(self, steps: int, n_ops: int) -> None:
        """Count `steps` instructions, or items made, in a capture whose graph has `n_ops` operations. Raises
        OverBudget."""
        self.steps += steps
        self._run = steps if n_ops != self._ops else self._run + steps
        self._ops = n_ops
        if self._run > config.capture_steps:
            raise OverBudget(f"more than {config.capture_steps} instructions were captured without a tensor operation")
        if self.steps >= self._next_look:
            self._next_look = self.steps + _LOOK
            self._look()

    def _look(self) -> None:
        if self.steps > STEPS_PER_RUN * config.capture_steps:
            raise OverBudget(f"more than {STEPS_PER_RUN * config.capture_steps} instructions were captured")
        if monotonic() - self.started > config.capture_seconds:
            raise OverBudget(f"the capture took more than {config.capture_seconds} seconds")
        if _resident() - self.resident > config.capture_memory:
            raise OverBudget(f"the capture took more than {config.capture_memory >> 20} MiB of memory")


def _resident() -> int:
    """The memory of the process, in bytes."""
    with _OPEN("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * _PAGE
