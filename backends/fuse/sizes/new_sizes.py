"""Whether sizes that did not come before are worth a plan of their own: where data decides sizes, most calls have new
ones, and a plan takes longer to make than small tensors to compute with."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

import torch

SAMPLES: Final = 8
"""Calls with new sizes that are measured with a plan made for them, and as many without, for each order of
magnitude."""
MARGIN: Final = 0.7
"""A plan for sizes that come once has to be as much quicker."""
OFTEN: Final = 4
"""Sizes that come so often get a plan whatever it costs: they will come again."""
MOST_COUNTED: Final = 4096

Run = Callable[..., Any]


class NewSizes:
    """What was measured for one graph; `device` is where its inputs are."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.in_vain = 0
        """How many new sizes in a row were not worth a plan."""
        self._measured: dict[int, tuple[list[int], list[int]]] = {}
        """By the number of bits of the product of the sizes the times with a plan, and without."""
        self._counted: dict[tuple[int, ...], int] = {}

    def run_for(self, sizes: tuple[int, ...], plan: Callable[[], Run], eager: Run) -> tuple[Run, bool]:
        """What to run for sizes that have no plan, and whether that is for good; `plan` makes what runs with one."""
        times = self._counted.get(sizes, 0) + 1
        if times >= OFTEN:
            self.in_vain = 0
            return plan(), True
        if len(self._counted) >= MOST_COUNTED:
            self._counted.clear()
        self._counted[sizes] = times
        amount = 1
        for size in {*sizes}:
            amount *= size
        planned, unplanned = self._measured.setdefault(amount.bit_length(), ([], []))
        if len(unplanned) == SAMPLES:
            is_worth_it = min(planned) < min(unplanned) * MARGIN
            self.in_vain = 0 if is_worth_it else self.in_vain + 1
            return (plan(), True) if is_worth_it else (eager, False)
        if len(planned) > len(unplanned):
            return self._timed(lambda: eager, unplanned), False
        return self._timed(plan, planned), False

    def _timed(self, make: Callable[[], Run], taken: list[int]) -> Run:
        """A call whose time is added to those that were taken."""

        def run(*inputs: torch.Tensor) -> Any:
            self._wait()
            start = perf_counter_ns()
            made = make()
            making = perf_counter_ns() - start
            result = made(*inputs)
            self._wait()
            backward = making if torch.is_grad_enabled() and any(given.requires_grad for given in inputs) else 0
            taken.append(perf_counter_ns() - start + backward)  # which has a plan, too
            return result

        return run

    def _wait(self) -> None:
        if self._device.type == "cuda":  # what found the sizes has waited for it, too
            torch.cuda.current_stream(self._device).synchronize()
