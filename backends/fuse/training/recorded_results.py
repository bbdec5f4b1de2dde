"""The results of a graph that gradients are wanted of, found while its forward is recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from framejit.backends.fuse.autograd_nodes.results import Base, Results, Step, View, base_of
from framejit.backends.fuse.autograd_nodes.segments import Edge, edge_of
from framejit.backends.fuse.graph.node import values_in
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.not_fusable import NeedsGradients, NotFusable
from framejit.backends.fuse.sizes.symbolic_size import with_sizes
from framejit.backends.fuse.training.recorder import TrainingRecorder


class RecordedResults(Results):
    """The results of a recorded forward. Made while recording: a tensor that was recorded with other strides than
    eager's is copied."""

    def __init__(
        self, recorder: TrainingRecorder, inputs: Sequence[torch.Tensor], returned: Sequence[Any], shown: Sequence[Any],
        tied: Sequence[int]
    ) -> None:
        """`returned`: fakes and constants. `shown`: the fakes that capture has of them, with eager's strides. `tied`:
        the positions of inputs that are made of others once they are written, to autograd."""
        self.inputs, self.returned, self.shown = inputs, returned, shown
        super().__init__(len(returned), {}, {}, {}, {}, [], [])
        self.given: list[Any] = []
        """What the plan gives, as it is given."""
        self.roots: list[Any] = []
        """The results of the plan, as tensors that autograd knows."""
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
        self.differentiable_views = [position for position in aliases if returned[position].requires_grad]

    def plain(self) -> Results:
        """Where the results come from, and nothing of how that was found."""
        views = {
            position: replace(
                view, steps=[replace(s, args=with_sizes(s.args), kwargs=with_sizes(s.kwargs)) for s in view.steps]
            )
            for position, view in self.views.items()
        }
        return Results(
            self.n_returned, self.passed_on, self.places, views, self.tied, self.writes, self.differentiable_views
        )

    def differentiable(self) -> list[int]:
        """The places of what gradients may come to."""
        return [*self.autograd_roots(self.inputs, self.returned)]

    def check(self) -> None:
        """Raises NeedsGradients where a view that is made again is not what eager's is; NotFusable where that may be
        for symbolic sizes."""
        refused = NeedsGradients if self._recorder.graph.conditions is None else NotFusable
        for position, view in self.views.items():
            base = base_of(view, self.inputs, self.roots, self._fakes)
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

    def position_of(self, edge: Edge) -> int:
        """Where a view is that segments hand on, by what autograd knows it as: among the results, or behind them as
        others of what one operation made (`chunk`) are. Raises NeedsGradients where it was not seen to be made."""
        for node in self._recorder.graph.nodes:
            for value in node.results:
                if value.base is not None and value.fake.requires_grad and _is_known_as(value.fake, edge):
                    return self._position(value.fake)
        raise NeedsGradients("a view leads to other results that was not seen to be made")

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
            own = fake._base
            if own is not None and not own._is_view() and value is base and self._is_alone(own):
                return View(Base.GIVEN, self._give_root(own, False), steps, data)
            return View(Base.VIEW, self._position(value.fake), steps, data)
        laid_out = position < len(self.shown) and self.shown[position].stride() != fake.stride()
        return View(Base.GIVEN, self._give_root(root.fake, laid_out), steps, data)

    def _is_alone(self, base: torch.Tensor) -> bool:
        """Whether the program sees memory as this tensor and views of it only. What lies first in it may be another
        one, of which autograd does not have this as a view (`aten::_unsafe_view`, behind the product of a linear
        layer)."""
        storage = self._recorder.known(base).storage
        seen = [fake for fake in (*self.inputs, *self.returned) if isinstance(fake, torch.Tensor)]
        return all(
            fake is base or fake._base is base for fake in seen if self._recorder.known(fake).storage is storage
        )

    def _position(self, fake: torch.Tensor) -> int:
        """Where a view is that others have as a base: among the results, or behind them."""
        for position, other in self._fakes.items():
            if other is fake:
                return position
        position = len(self._fakes)
        self._fakes[position] = fake
        self.views[position] = self._view(position)
        return position


def _is_known_as(fake: torch.Tensor, edge: Edge) -> bool:
    try:
        return edge_of(fake) == edge
    except RuntimeError:  # its base was written: autograd says no more of it
        return False


def _facts(view: torch.Tensor, base: torch.Tensor) -> tuple[Any, ...]:
    """What autograd and programs know of a view."""
    creation = torch._C._autograd._get_creation_meta(view) if view._is_view() else None
    return *_place(view), view.requires_grad, view.is_leaf, view._is_view(), view._base is base, creation


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride()
