"""What a graph that gradients are wanted of gives: what its forward plan gives, inputs, and views of either.

Views are made outside of autograd's nodes, each call anew by the operations that eager makes them by. So autograd knows
what they are views of, gradients go through them as in eager, and results may share memory.
"""

from __future__ import annotations

import copy
import enum
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import torch

from framejit.backends.fuse.graph.node import values_in
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.not_fusable import NeedsGradients, NotFusable
from framejit.backends.fuse.plan.plan_functions import count_exactly
from framejit.backends.fuse.sizes.symbolic_size import concrete
from framejit.backends.fuse.training.recorder import TrainingRecorder
from framejit.backends.fuse.training.segments import NO_STAGES, Segment, needed_segments
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


class Results:
    """The results of a recorded forward. Made while recording: a tensor that was recorded with other strides than
    eager's is copied."""

    def __init__(
        self, recorder: TrainingRecorder, inputs: Sequence[torch.Tensor], returned: Sequence[Any], shown: Sequence[Any],
        tied: Sequence[int]
    ) -> None:
        """`returned`: fakes and constants. `shown`: the fakes that capture has of them, with eager's strides. `tied`:
        the positions of inputs that are made of others once they are written, to autograd."""
        self.inputs, self.returned, self.shown = inputs, returned, shown
        self.given: list[Any] = []
        """What the plan gives, as it is given."""
        self.roots: list[Any] = []
        """The results of the plan, as tensors that autograd knows."""
        self.passed_on: dict[int, int] = {}
        """Results that are inputs: their positions, and those of the inputs."""
        self.places: dict[int, int] = {}
        """Where the plan gives a result that is neither input nor view."""
        self.views: dict[int, View] = {}
        """Results that are views, by their positions; behind all results, views that are none, which others have as a
        base."""
        self._recorder = recorder
        self._known: dict[int, int] = {}
        """Where the plan gives tensors, by the ids of fakes."""
        tensors = {position: fake for position, fake in enumerate(returned) if isinstance(fake, torch.Tensor)}
        memory = Counter([
            recorder.known(fake).storage
            for fake in {id(fake): fake for fake in (*inputs, *tensors.values())}.values()
        ])
        for position, value in enumerate(returned):
            if position not in tensors:
                self.places[position] = self._give(value, value)
        self.tied = {self._give(inputs[position], inputs[position]): position for position in tied}
        """Inputs that are written and come out of nodes of ours then: their places among what the plan gives, though it
        does not give them, and their positions."""
        aliases = []
        for position, fake in tensors.items():
            value = recorder.known(fake)
            place = next((place for place, other in enumerate(inputs) if other is fake), None)
            if place is not None:
                self.passed_on[position] = place
            elif value is value.storage.first or not fake._is_view() and memory[value.storage] == 1:
                self.places[position] = self._give_root(fake, shown[position].stride() != fake.stride())
            else:
                aliases.append(position)
        self._fakes: dict[int, Any] = dict(enumerate(returned))
        """By position, with those of views that are no results."""
        for position in aliases:
            self.views[position] = self._view(position)
        self.writes = [
            (place, root._version) for place, root in enumerate(self.roots)
            if isinstance(root, torch.Tensor) and not root.is_inference() and root._version and place not in self.tied
        ]
        """Of what is written in place before it is given: the place, and how many writes autograd has counted."""
        self.differentiable_views = [position for position in aliases if returned[position].requires_grad]
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

    def differentiable(self) -> list[int]:
        """The places of what gradients may come to."""
        return [*self.autograd_roots(self.inputs, self.returned)]

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

    def check(self) -> None:
        """Raises NeedsGradients where a view that is made again is not what eager's is; NotFusable where that may be
        for symbolic sizes."""
        refused = NeedsGradients if self._recorder.graph.conditions is None else NotFusable
        for position, view in self.views.items():
            base = _base(view, self.inputs, self.roots, self._fakes)
            try:
                again = view.made(base)
                laid_out = self.view(position, self.inputs, self.given, {})
            except Exception as e:
                raise refused(f"a result is a view that can't be made again: {type(e).__name__}") from e
            expected = self._fakes[position]
            if expected.requires_grad and expected._base is not base:
                raise NeedsGradients("results share memory, and are no views to autograd")
            shown = self.shown[position] if position < len(self.shown) else expected
            if _facts(again, base) != _facts(expected, base) or _place(laid_out) != _place(shown):
                raise refused("a result is a view that the operations which make it again make otherwise")

    def view(
        self, position: int, inputs: Sequence[torch.Tensor], given: Sequence[Any], views: dict[int, torch.Tensor]
    ) -> torch.Tensor:
        """A result that is a view, for these inputs and what the plan gave. `views`: those made already, by their
        positions; it is added to them."""
        if position not in views:
            view = self.views[position]
            if view.base is Base.VIEW:
                self.view(view.place, inputs, given, views)
            views[position] = view.made(_base(view, inputs, given, views))
        return views[position]

    def _give(self, given: Any, root: Any) -> int:
        self.given.append(given)
        self.roots.append(root)
        return len(self.given) - 1

    def _give_root(self, fake: torch.Tensor, laid_out: bool) -> int:
        """Where the plan gives a tensor that is no view, if asked for without gaps in its memory."""
        if id(fake) not in self._known:
            with torch.no_grad():
                given = fake.clone(memory_format=torch.contiguous_format) if laid_out else fake
            self._known[id(fake)] = self._give(given, fake)
        return self._known[id(fake)]

    def _view(self, position: int) -> View:
        steps = []
        fake = self._fakes[position]
        value = self._recorder.known(fake)
        root, apart = value.storage.first, self._recorder.counted_apart
        base = self._recorder.known(fake._base) if fake._base is not None else root
        data = None
        if value in apart and value.base is not None:
            value, data = value.base, fake._version
        while value is not root and value is not base and value not in apart:
            node = value.maker
            if (
                node is None
                or not node.args
                or not isinstance(node.args[0], Value)
                or node.args[0].storage is not value.storage
            ):
                raise NeedsGradients("a result is a view, made by an operation that more than its tensor goes into")
            if next(values_in((node.args[1:], node.kwargs)), None) is not None:
                raise NeedsGradients("a result is a view whose place other tensors say")
            number = None if isinstance(node.result, Value) else [*node.results].index(value)
            steps.append(Step(node.operation, node.args[1:], dict(node.kwargs), number))
            value = node.args[0]
        steps.reverse()
        for place, other in enumerate(self.inputs):
            if self._recorder.known(other) is value:
                return View(Base.INPUT, place, steps, data)
        if value is not root:
            return View(Base.VIEW, self._position(value.fake), steps, data)
        laid_out = position < len(self.shown) and self.shown[position].stride() != fake.stride()
        return View(Base.GIVEN, self._give_root(root.fake, laid_out), steps, data)

    def _position(self, fake: torch.Tensor) -> int:
        """Where a view is that others have as a base: among the results, or behind them."""
        for position, other in self._fakes.items():
            if other is fake:
                return position
        position = len(self._fakes)
        self._fakes[position] = fake
        self.views[position] = self._view(position)
        return position


def _base(
    view: View, inputs: Sequence[torch.Tensor], given: Sequence[Any], views: Mapping[int, torch.Tensor]
) -> torch.Tensor:
    """What a view is made of: views by their positions."""
    if view.base is Base.VIEW:
        return views[view.place]
    base: torch.Tensor = (inputs if view.base is Base.INPUT else given)[view.place]
    return base


def _facts(view: torch.Tensor, base: torch.Tensor) -> tuple[Any, ...]:
    """What autograd and programs know of a view."""
    creation = torch._C._autograd._get_creation_meta(view) if view._is_view() else None
    return *_place(view), view.requires_grad, view.is_leaf, view._is_view(), view._base is base, creation


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride()
