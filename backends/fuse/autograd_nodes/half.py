"""One half of a graph that gradients are wanted of, forward or the backward of a segment, compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native
from framejit.backends.fuse.cache.plan_key import SymbolicSizes
from framejit.backends.fuse.graph.execute import execute
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.launches.launch_graphs import LaunchGraphs
from framejit.fakes.dropped_warnings import without_warnings
from framejit.late_dataclass import dataclass
from framejit.symbols.conditions import Condition
from framejit.symbols.expression import Symbol

if TYPE_CHECKING:
    from framejit.backends.fuse.cache.kept_plan import KeptPlan

Runs = Callable[..., Any]
"""Takes the inputs of a graph as arguments, and gives the tuple of its outputs."""
Sizes = Mapping[Symbol, int]
"""The sizes of a call, for those that are symbolic; empty where none is."""
PlanFor = Callable[[Sizes, Runs], _native.Plan]
"""Gives the plan for sizes. Given what to run in the place of a plan that can't be run for the inputs."""

Launches = Callable[[_native.Plan, "int | None"], LaunchGraphs]
"""Given the plan, and how many of its results, the first, the program sees: all of them for None."""

OtherResults = Callable[[Sizes], "list[str] | None"]
"""A line for each operation that gives other results than on fakes; None where only running it tells."""


@dataclass(frozen=True)
class CompiledHalf:
    """What was compiled of a forward or backward."""

    plan_for: PlanFor
    conditions: tuple[Condition, ...]
    """On sizes, under which the plans are right, besides those that were noted."""
    kept: KeptPlan | None
    """How another process finds the plans, if it can."""
    launches: Launches | None = None
    """Makes of a plan what launches it as one graph, if it is to be."""


def sizes_now(symbolic_sizes: SymbolicSizes | None) -> Sizes:
    """The sizes that something is compiled with."""
    return {} if symbolic_sizes is None else {symbol: symbol.hint for symbol in symbolic_sizes.symbols}


@dataclass
class Trial:
    """The outcome of the first run of a forward or backward, which is ATen's, for whatever sizes came first."""

    is_over: bool = False
    differences: list[str] = field(default_factory=list)
    tell: Callable[[], None] = lambda: None
    """Called when it is over."""


class Half:
    """Forward or backward, compiled. Before the first run is looked whether operations give what they gave on fakes:
    what a library keeps for its own backward need not. Where one does not, all runs are done by ATen, operation by
    operation; and so is the first, where looking takes that."""

    def __init__(
        self, graph: Callable[[], Graph], is_repeatable: bool, compiled: CompiledHalf, sizes: Sizes,
        trial: Trial | None = None, n_seen: int | None = None, other_results: OtherResults | None = None
    ) -> None:
        """`n_seen`: so many results, the first, are the program's; the others are kept for backwards. None: all are."""
        self.graph, self.n_seen = graph, n_seen
        self.is_repeatable = is_repeatable
        """Whether running it once more gives the same, and changes nothing."""
        self.recorded: Graph | None = None
        self.other_results = other_results
        self.compiled = compiled
        self.trial = Trial() if trial is None else trial
        self._have(sizes)

    def _have(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.plan = self.compiled.plan_for(sizes, self.as_aten)
        launches = self.compiled.launches
        self.runs = self.plan if launches is None else launches(self.plan, self.n_seen)

    def at(self, sizes: Sizes) -> Half:
        """A copy of the half for other sizes."""
        made = copy.copy(self)
        made._have(sizes)
        return made

    def as_aten(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        """Run it without a plan."""
        if self.recorded is None:
            self.recorded = self.graph()
        return execute(self.recorded, inputs, sizes=self.sizes)

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Run it with autocast off: what that converts stands in the graph. A list of inputs is emptied: each goes
        after its last use."""
        if torch._C._is_any_autocast_enabled():
            with torch._C._DisableAutocast():
                return self._run(inputs)
        return self._run(inputs)

    def try_out(self, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...] | None:
        """Look whether operations give what they gave on fakes; the results of running it, if that takes running it.
        Where that is besides the program's own run, what it warns of is dropped."""
        self.trial.is_over = True
        results = None
        with torch._C._DisableAutocast():
            with without_warnings():
                found = None if self.other_results is None else self.other_results(self.sizes)
            if found is None:
                with without_warnings() if self.is_repeatable else nullcontext():
                    results = execute(self.graph(), inputs, self.trial.differences, self.sizes)
            else:
                self.trial.differences += found
        self.trial.tell()
        return results

    def _run(self, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        if not self.trial.is_over:
            results = self.try_out(inputs)
            if results is not None and not self.is_repeatable:
                return results
        if self.trial.differences:
            return self.as_aten(*inputs)
        return self.runs.consume(inputs) if isinstance(inputs, list) else self.runs(*inputs)
