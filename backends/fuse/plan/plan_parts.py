"""What a native plan is made of, before it is one: plain data but for constants and functions, with kernels by
number."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

import framejit.guards.tensor_layout  # noqa: F401  (measures where tensors keep their memory, which plans rely on)
from framejit import _native
from framejit.backends.fuse.plan.aligned_copy import aligned_copy
from framejit.backends.number_calls import OF_NUMBERS, call_of_numbers
from framejit.late_dataclass import dataclass

KERNEL: Final = "kernel"
"""The first item of a step that stands for the launch of a kernel: (KERNEL, number, slots)."""

Launch = Callable[[Sequence[int]], tuple[Any, ...]]
"""Given the slots of a kernel's pointers, the step of the plan that launches it."""


@dataclass(frozen=True)
class PlanParts:
    """The description of a plan, as `_native.Plan` takes it but for the launches of kernels."""

    n_inputs: int
    n_values: int
    steps: Sequence[tuple[Any, ...]]
    outputs: tuple[Any, ...]
    aligned: tuple[int, ...]
    """Inputs that kernels of ours take at aligned addresses only."""
    copied: tuple[int, ...]
    """Inputs of `aligned` that are only read: a copy may stand for one that is not aligned."""
    alone: tuple[int, ...]
    spans: tuple[int, ...]

    def launching(self, launches: Sequence[Launch]) -> PlanParts:
        """These parts with the launches of kernels in place of their numbers. Raises IndexError or TypeError
        for data that describes no plan."""
        return replace(self, steps=launching(self.steps, launches))

    def native(self, launches: Sequence[Launch], fallback: Callable[..., Any], name: str) -> _native.Plan:
        """The plan that runs. Raises ValueError, TypeError, IndexError or OverflowError for data that describes no
        plan."""
        return _native.Plan(
            self.n_inputs, self.n_values, self.launching(launches).steps, self.outputs, fallback=fallback,
            aligned=self.aligned, copied=self.copied, aligned_copy=aligned_copy, alone=self.alone, spans=self.spans,
            name=name
        )


def launching(steps: Iterable[tuple[Any, ...]], launches: Sequence[Launch]) -> list[tuple[Any, ...]]:
    """Steps with the launches of kernels in place of their numbers. Raises IndexError or TypeError for data that
    describes no plan."""
    # what ran before the plan may have written what a kernel reads before it waits, and no kernel waits for more than
    # the launch before it: so the plan's first one begins only when all before has ended
    launched = False
    made = []
    for step in steps:
        if step[0] == KERNEL:
            step = launches[step[1]](step[2])
            if step[0] == "cuda_kernel":
                if not launched:
                    step = (*step[:-1], False)
                launched = launched or all(type(size) is int and size > 0 for size in step[2])
        made.append(_without_python(step))
    return made


def _without_python(step: tuple[Any, ...]) -> tuple[Any, ...]:
    """An operator's own `__call__` is a frame of torch's around a builtin function: it takes longer than the rest of
    the step, and what operators of torch 2.15 warn of would be told of its line instead of the program's. The one that
    is Python itself is called without the dispatcher."""
    if step[0] != "call" or type(step[1]) is not torch._ops.OpOverload:
        return step
    return ("call", call_of_numbers if step[1] is OF_NUMBERS else step[1]._op, *step[2:])
