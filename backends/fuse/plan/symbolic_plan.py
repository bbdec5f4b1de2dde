"""Plans with symbolic sizes, and the plans for given sizes that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from framejit import _native
from framejit.backends.fuse.plan.plan_parts import Launch, PlanParts, launching
from framejit.backends.fuse.plan.sized_steps import Steps, for_sizes, has_symbols
from framejit.late_dataclass import dataclass
from framejit.symbols.expression import Symbol

Run = Callable[..., Any]


class SizedPlans:
    """Plans for given sizes: the same steps and kernels, with numbers for what was symbolic. `parts` and the steps that
    `launches` give may hold sizes that are not known.

    All share the steps in which no such size stands: most of them, and a cache that grows asks for a plan at each call.
    """

    def __init__(self, parts: PlanParts, launches: Sequence[Launch], name: str) -> None:
        self._parts, self._launches, self._name = parts, launches, name
        self._shared: tuple[_native.Plan, list[tuple[Any, ...]], Steps] | None = None

    def plan_for(self, sizes: Mapping[Symbol, int], eager: Run) -> _native.Plan:
        """The plan for these sizes; `eager` runs the calls that it cannot run."""
        if self._shared is not None:
            plan, _, differing = self._shared
            changes, outputs, spans = differing(sizes)
            return plan.for_sizes(changes, outputs, spans, eager)
        parts = self._parts
        steps = launching(parts.steps, self._launches)
        differing = for_sizes(
            ([(number, step) for number, step in enumerate(steps) if has_symbols(step)], parts.outputs, parts.spans)
        )
        plan = self._closed(sizes, steps, differing).native((), eager, self._name)
        self._shared = plan, steps, differing
        return plan

    def parts_for(self, sizes: Mapping[Symbol, int]) -> PlanParts:
        """The parts of the plan for these sizes, which has been made before."""
        assert self._shared is not None
        _, steps, differing = self._shared
        return self._closed(sizes, steps, differing)

    def _closed(self, sizes: Mapping[Symbol, int], steps: Sequence[tuple[Any, ...]], differing: Steps) -> PlanParts:
        changes, outputs, spans = differing(sizes)
        closed = [*steps]
        for number, step in changes:
            closed[number] = step
        return replace(self._parts, steps=closed, outputs=outputs, spans=spans)


@dataclass(eq=False)
class SymbolicPlan:
    """A compiled graph with symbolic sizes: for the sizes of a call it runs one of `plans`, or `eager`. `select` makes
    of a plan what measures it against that."""

    plans: SizedPlans
    eager: Run
    finished: Callable[[_native.Plan, Callable[[], PlanParts]], Run]
    """What is called in a plan's place, such as one that switches gradients off around it. Given, too, what says what
    the plan was made of."""
    select: Callable[[Run], _native.Selector]
    measured: dict[int, _native.Selector] = field(default_factory=dict)
    """By the number of bits of the product of the sizes, equal ones once: how a plan of about that size did. The layers
    of a cache grow together."""

    def run_for(self, sizes: Mapping[Symbol, int]) -> Run:
        """The function to call for these sizes. Plan and eager are measured once for sizes of the same order of
        magnitude."""
        amount = 1
        for size in {*sizes.values()}:
            amount *= size
        known = self.measured.get(amount.bit_length())
        if known is not None and known.state == "eager":
            return self.eager
        run = self.finished(self.plan_for(sizes), lambda: self.plans.parts_for(sizes))
        if known is None:
            self.measured[amount.bit_length()] = run = self.select(run)
        return run

    def plan_for(self, sizes: Mapping[Symbol, int]) -> _native.Plan:
        """The plan for these sizes."""
        return self.plans.plan_for(sizes, self.eager)
