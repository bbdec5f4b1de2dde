"""What a graph that gradients are wanted of gives: what its forward plan gives, inputs, and views of either.

Views are made outside of autograd's nodes, each call anew by the operations that eager makes them by. So autograd knows
what they are views of, gradients go through them as in eager, and results may share memory.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import torch

from framejit.backends.fuse.autograd_nodes.segments import NO_STAGES, Segment, needed_segments
from framejit.backends.fuse.plan.plan_functions import count_exactly
from framejit.backends.fuse.sizes.symbolic_size import concrete
from framejit.late_dataclass import dataclass
from framejit.symbols.expression import Symbol


@dataclass(frozen=True)
class Step:
    """An operation that makes a view."""

    operation: torch._ops.OpOverload
    args: tuple[Any, ...]
    """What follows the tensor."""
    kwargs: dict[str, Any]
    number: int | None
    """Which of several views is meant."""


class Base(enum.Enum):
    """The kind of tensor that a view is made of."""

    INPUT = enum.auto()
    GIVEN = enum.auto()
    """A tensor that the plan gives."""
    VIEW = enum.auto()
    """A view that is a base to autograd: a detached one."""


@dataclass(frozen=True)
class View:
    """A result that is a view."""

    base: Base
    place: int
    """Which input it is a view of, which tensor that the plan gives, or the position of which view."""
    steps: list[Step]
    data: int | None = None
    """Where it is `x.data` of what the steps give: how many writes autograd has counted of it."""

    def made(self, base: torch.Tensor) -> torch.Tensor:
        """The view of a tensor."""
        for step in self.steps:
            made = step.operation(base, *step.args, **step.kwargs)
            base = made if step.number is None else made[step.number]
        if self.data is None:
            return base
        count_exactly([data := base.data], [self.data])
        return data


@dataclass(eq=False)
class Results:
    """Where the results of a graph come from."""

    n_returned: int
    passed_on: dict[int, int]
    """Results that are inputs: their positions, and those of the inputs."""
    places: dict[int, int]
    """Where the plan gives a result that is neither input nor view."""
    views: dict[int, View]
    """Results that are views, by their positions; behind all results, views that are none, which others have as a
    base."""
    tied: dict[int, int]
    """Inputs that are written and come out of nodes of ours then: their places among what the plan gives, though it
    does not give them, and their positions."""
    writes: list[tuple[int, int]]
    """Of what is written in place before it is given: the place, and how many writes autograd has counted."""
    differentiable_views: list[int]
    """Positions of the views that gradients may come to."""

    def at(self, sizes: Mapping[Symbol, int]) -> Results:
        """A copy with numbers for symbolic sizes, where views are made for real."""
        made = copy.copy(self)
        made.views = {
            position: replace(
                view,
                steps=[replace(s, args=concrete(s.args, sizes), kwargs=concrete(s.kwargs, sizes)) for s in view.steps],
            )
            for position, view in self.views.items()
        }
        return made

    def autograd_roots(self, inputs: Sequence[torch.Tensor], outputs: Sequence[Any]) -> dict[int, torch.Tensor]:
        """What gradients may come to, of results that autograd has seen each operation of: tensors, written inputs, and
        the bases of views. The keys are the places where the plan gives them, in order."""
        found = {
            place: outputs[position]
            for position, place in self.places.items()
            if isinstance(outputs[position], torch.Tensor) and outputs[position].requires_grad
        }
        found.update((place, inputs[position]) for place, position in self.tied.items())
        for position in self.differentiable_views:
            view, base = self.views[position], outputs[position]._base
            if view.base is Base.GIVEN and outputs[position].requires_grad and base is not None:
                found.setdefault(view.place, base)
        return dict(sorted(found.items()))

    def segments(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[Any], ends: Set[Any] = frozenset(),
        stages: Mapping[Any, int] = NO_STAGES
    ) -> list[Segment]:
        """The segments of autograd's graph of results, and of inputs once they are written, where autograd has seen
        each operation. The roots are numbered in the order of `differentiable`, and behind them differentiable views.
        `ends`: the nodes that the inputs come out of, where these are no leaves. `stages`: those of the backward, by
        such nodes."""
        roots = [*self.autograd_roots(inputs, outputs).values()]
        return needed_segments(roots, self.views_among(outputs), ends, stages)

    def views_among(self, outputs: Sequence[Any]) -> list[torch.Tensor]:
        """The results that are differentiable views."""
        return [outputs[position] for position in self.differentiable_views]

    def viewed_inputs(self) -> list[int]:
        """The positions of inputs that differentiable views are made of."""
        views = [self.views[position] for position in self.differentiable_views]
        return [view.place for view in views if view.base is Base.INPUT]

    def view(
        self, position: int, inputs: Sequence[torch.Tensor], given: Sequence[Any], views: dict[int, torch.Tensor]
    ) -> torch.Tensor:
        """A result that is a view, for these inputs and what the plan gave. `views`: those made already, by their
        positions; it is added to them."""
        if position not in views:
            view = self.views[position]
            if view.base is Base.VIEW:
                self.view(view.place, inputs, given, views)
            views[position] = view.made(base_of(view, inputs, given, views))
        return views[position]


def base_of(
    view: View, inputs: Sequence[torch.Tensor], given: Sequence[Any], views: Mapping[int, torch.Tensor]
) -> torch.Tensor:
    """What a view is made of: views by their positions."""
    if view.base is Base.VIEW:
        return views[view.place]
    base: torch.Tensor = (inputs if view.base is Base.INPUT else given)[view.place]
    return base
