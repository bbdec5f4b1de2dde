"""Readings of clocks (`time.perf_counter()`), taken by an operation of the graph in its place among the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import torch

CLOCKS: Final[dict[str, Callable[[], float]]] = {
    function.__name__: function for function in (
        time.time, time.perf_counter, time.monotonic, time.process_time, time.thread_time,
        time.time_ns, time.perf_counter_ns, time.monotonic_ns, time.process_time_ns, time.thread_time_ns,
    )
}
MOST: Final = 2**62
"""No clock is read past this, in nanoseconds: that is the year 2116."""
_LIBRARY: Final = torch.library.Library("framejit", "FRAGMENT")
_LIBRARY.define("clock_read(str clock, Tensor like) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
CLOCK_READ: Final[torch._ops.OpOverload] = torch.ops.framejit.clock_read.default
"""(the clock, a tensor that says where): what it shows, in float64 or int64 on the CPU. What stands before it in the
graph has run by then, and what stands behind it has not begun, but for what a GPU does on its own."""


def gives_int(clock: str) -> bool:
    """Whether a clock counts nanoseconds."""
    return clock.endswith("_ns")


def _dtype(clock: str) -> torch.dtype:
    return torch.int64 if gives_int(clock) else torch.float64


def _read(clock: str, like: torch.Tensor) -> torch.Tensor:
    shown = CLOCKS[clock]()
    if not 0 <= shown <= MOST:  # one that is set to before 1970
        raise ValueError(f"time.{clock}() gives a number that no graph holds")
    return torch.scalar_tensor(shown, dtype=_dtype(clock), device="cpu")


def _shape(clock: str, like: torch.Tensor) -> torch.Tensor:
    return torch.empty((), dtype=_dtype(clock), device=like.device)


_LIBRARY.impl("clock_read", _read, "CPU")
_LIBRARY.impl("clock_read", _shape, "Meta")
