"""What a graph that gradients are wanted of gives: what its forward plan gives, inputs, and views of either.

Views are made outside of autograd's nodes, each call anew by the operations that eager makes them by. So autograd knows
what they are views of, gradients go through them as in eager, and results may share memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from framejit.backends.fuse.errors import NeedsGradients
from framejit.backends.fuse.graph.node import values_in
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.training.recorder import TrainingRecorder
from framejit.backends.fuse.training.segments import Segment, needed_segments


@dataclass(frozen=True)
class Step:
    """An operation that makes a view."""

    operation: torch._ops.OpOverload
    args: tuple[Any, ...]
    """What follows the tensor."""
    kwargs: dict[str, Any]
    number: int | None
    """Which of several views is meant."""


@dataclass(frozen=True)
class View:
    """A result that is a view."""

    is_of_input: bool
    place: int
    """Which input it is a view of, or which tensor that the plan gives."""
    steps: list[Step]

    def of(self, inputs: Sequence[torch.Tensor], given: Sequence[Any]) -> torch.Tensor:
        """The view, for these inputs and what the plan gave."""
        return self.made(inputs[self.place] if self.is_of_input else given[self.place])

    def made(self, base: torch.Tensor) -> torch.Tensor:
        """The view of a tensor."""
        for step in self.steps:
            made = step.operation(base, *step.args, **step.kwargs)
            base = made if step.number is None else made[step.number]
        return base


class Results:
    """The results of a recorded forward. Made while recording: a tensor that was recorded with other strides than
    eager's is copied."""

    def __init__(
        self, recorder: TrainingRecorder, inputs: Sequence[torch.Tensor], returned: Sequence[Any], shown: Sequence[Any]
    ) -> None:
        """`returned`: fakes and constants. `shown`: the fakes that capture has of them, with eager's strides."""
        self.inputs, self.returned, self.shown = inputs, returned, shown
        self.given: list[Any] = []
        """What the plan gives, as it is given."""
        self.roots: list[Any] = []
        """The same, as autograd knows it."""
        self.passed_on: dict[int, int] = {}
        """Results that are inputs: their positions, and those of the inputs."""
        self.places: dict[int, int] = {}
        """Where the plan gives a result that is neither input nor view."""
        self.views: dict[int, View] = {}
        """Results that are views, by their positions."""
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
        for position in aliases:
            self.views[position] = self._view(position, recorder.known(returned[position]))
        self.differentiable_views = [position for position in self.views if returned[position].requires_grad]
        """Of views those that gradients may come to."""

    def differentiable(self) -> list[int]:
        """The places of what gradients may come to."""
        return [*self.autograd_roots(self.returned)]

    def autograd_roots(self, outputs: Sequence[Any]) -> dict[int, torch.Tensor]:
        """Of results that autograd has seen each operation of, what gradients may come to: tensors, and what views are
        views of. By the places where the plan gives them, in order."""
        found = {
            place: outputs[position]
            for position, place in self.places.items()
            if isinstance(outputs[position], torch.Tensor) and outputs[position].requires_grad
        }
        for position, view in self.views.items():
            base = outputs[position]._base
            if not view.is_of_input and outputs[position].requires_grad and base is not None:
                found.setdefault(view.place, base)
        return dict(sorted(found.items()))

    def segments(self, outputs: Sequence[Any]) -> list[Segment]:
        """The segments of autograd's graph of results, where autograd has seen each operation. The roots are numbered
        in the order of `differentiable`, and behind them differentiable views."""
        views = [outputs[position] for position in self.differentiable_views]
        return needed_segments([*self.autograd_roots(outputs).values()], views)

    def written(self, changed: set[Any]) -> list[int]:
        """The places of what the plan gives and other results are views of, where one of these storages is its own."""
        of = {view.place for view in self.views.values() if not view.is_of_input}
        return [place for place in of if self._recorder.known(self.roots[place]).storage in changed]

    def check(self) -> None:
        """Raises NeedsGradients where a view that is made again is not what eager's is."""
        for position, view in self.views.items():
            base = self.inputs[view.place] if view.is_of_input else self.roots[view.place]
            given = base if view.is_of_input else self.given[view.place]
            try:
                again, laid_out = view.made(base), view.made(given)
            except Exception as e:
                raise NeedsGradients(f"a result is a view that can't be made again: {type(e).__name__}") from e
            expected = self.returned[position]
            if expected.requires_grad and expected._base is not base:
                raise NeedsGradients("results share memory, and are no views to autograd")
            if _facts(again, base) != _facts(expected, base) or _place(laid_out) != _place(self.shown[position]):
                raise NeedsGradients("a result is a view that the operations which make it again make otherwise")

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

    def _view(self, position: int, value: Value) -> View:
        steps = []
        root = value.storage.first
        while value is not root:
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
        for place, fake in enumerate(self.inputs):
            if self._recorder.known(fake) is root:
                return View(True, place, steps)
        laid_out = self.shown[position].stride() != self.returned[position].stride()
        return View(False, self._give_root(root.fake, laid_out), steps)


def _facts(view: torch.Tensor, base: torch.Tensor) -> tuple[Any, ...]:
    """What autograd and programs know of a view."""
    creation = torch._C._autograd._get_creation_meta(view) if view._is_view() else None
    return *_place(view), view.requires_grad, view.is_leaf, view._is_view(), view._base is base, creation


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride()
