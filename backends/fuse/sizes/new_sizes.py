"""Whether sizes that did not come before are worth a plan of their own: where data decides sizes, most calls have new
ones, and a plan takes longer to make than small tensors to compute with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
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
    """What was measured for one graph, whose inputs are on `devices`."""

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self._devices = [device for device in devices if device.type == "cuda"]
        self.in_vain = 0
        """How many new sizes in a row were not worth a plan."""
        self._measured: dict[int, tuple[list[int], list[int]]] = {}
        """By the number of bits of the product of the sizes the times with a plan, and without."""
        self._is_worth_it: dict[int, bool] = {}
        """What came of that."""
        self._counted: dict[tuple[int, ...], int] = {}

    def run_for(self, sizes: tuple[int, ...], plan: Callable[[], Run], eager: Run) -> tuple[Run, bool]:
        """What to run for sizes that have no plan, and whether that is for good; `plan` makes what runs with one."""
        bits = prod({*sizes}).bit_length()  # layers of a cache grow together
        is_worth_it = self._is_worth_it.get(bits)
        if is_worth_it:
            self.in_vain = 0
            return plan(), True
        times = self._counted.get(sizes, 0) + 1
        if times >= OFTEN:
            self.in_vain = 0
            return plan(), True
        if len(self._counted) >= MOST_COUNTED:
            self._counted.clear()
        self._counted[sizes] = times
        if is_worth_it is None:
            return self._tried(bits, plan, eager), False
        self.in_vain += 1
        return eager, False

    def _tried(self, bits: int, plan: Callable[[], Run], eager: Run) -> Run:
        planned, unplanned = self._measured.setdefault(bits, ([], []))
        if len(unplanned) >= SAMPLES:
            self._is_worth_it[bits] = min(planned) < min(unplanned) * MARGIN
            return eager
        return self._timed(plan, planned) if len(planned) <= len(unplanned) else self._timed(lambda: eager, unplanned)

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
        for device in self._devices:  # what found sizes has waited for it, too
            torch.cuda.current_stream(device).synchronize()
