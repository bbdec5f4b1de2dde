"""Plans with symbolic sizes, and the plans for given sizes that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from framejit import _native
from framejit.backends.fuse.plan.plan_functions import laid_out_as
from framejit.backends.fuse.plan.plan_parts import KERNEL, Launch, PlanParts
from framejit.backends.fuse.sizes.symbolic_size import concrete
from framejit.symbols.expression import Symbol

Run = Callable[..., Any]


@dataclass(eq=False)
class SymbolicPlan:
    """`parts` and the steps that `launches` give may hold sizes that are not known. `region` makes of a plan what
    measures it against `eager`."""

    parts: PlanParts
    launches: Sequence[Launch]
    eager: Run
    name: str
    finished: Callable[[_native.Plan], Run]
    """What is called in a plan's place, such as one that switches gradients off around it."""
    select: Callable[[Run], _native.Selector]
    measured: dict[int, _native.Selector] = field(default_factory=dict)
    """By the number of bits of the product of the sizes: how a plan of about that size did."""

    def run_for(self, sizes: Mapping[Symbol, int]) -> Run:
        """What runs for these sizes. Sizes of the same order of magnitude are measured once."""
        amount = 1
        for size in sizes.values():
            amount *= size
        known = self.measured.get(amount.bit_length())
        if known is not None and known.state == "eager":
            return self.eager
        run = self.finished(self.plan_for(sizes))
        if known is None:
            self.measured[amount.bit_length()] = run = self.select(run)
        return run

    def plan_for(self, sizes: Mapping[Symbol, int]) -> _native.Plan:
        """The plan for these sizes."""
        return plan_of(self.parts, self.launches, sizes, self.eager, self.name)


def plan_of(
    parts: PlanParts, launches: Sequence[Launch], sizes: Mapping[Symbol, int], eager: Run, name: str
) -> _native.Plan:
    """The plan for given sizes: the same steps and kernels, with numbers for what was symbolic."""
    steps = [_step(launches[step[1]](step[2]) if step[0] == KERNEL else step, sizes) for step in parts.steps]
    closed = PlanParts(
        parts.n_inputs, parts.n_values, steps, concrete(parts.outputs, sizes), parts.aligned, parts.alone,
        tuple(concrete(parts.spans, sizes))
    )
    return closed.native(launches, eager, name)


def _step(step: tuple[Any, ...], sizes: Mapping[Symbol, int]) -> tuple[Any, ...]:
    if step[0] == "expect":
        _, slot, shape, strides, _ = step
        shape, strides = concrete(shape, sizes), concrete(strides, sizes)
        return "expect", slot, shape, strides, laid_out_as(shape, strides)
    return tuple([concrete(item, sizes) for item in step])
