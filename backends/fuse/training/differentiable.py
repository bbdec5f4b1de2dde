"""A graph that gradients are wanted of: its forward is one plan, the backward of each of its segments another, behind a
node of autograd."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx

from framejit import _native
from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.errors import NeedsGradients
from framejit.backends.fuse.graph.execute import execute
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.thread_state import AUTOCAST_DEVICES
from framejit.backends.fuse.training.joint import Given, Recorded
from framejit.backends.fuse.training.partition import BackwardPart, parted
from framejit.backends.fuse.training.segments import Edge, Segment, gradients
from framejit.backends.fuse.training.tangents import take, usual_references
from framejit.fakes.dropped_warnings import without_warnings

Runs = Callable[..., Any]
"""Takes the inputs of a graph as arguments, and gives the tuple of its outputs."""
Sources = Mapping[Value, tuple[bool, int]]
"""Where values are found when a graph runs: whether among its inputs, or else in what the forward plan gives, and the
position there."""
Compiles = Callable[[Graph, Runs, int | None], _native.Plan]
"""Compiles a graph. Given what to run in the place of a plan that can't be run for the inputs, and the number of the
segment whose backward it is."""


class Differentiable:
    """A captured graph that gradients are wanted of, compiled: takes its inputs and gives the tuple of its outputs, as
    `gm.forward` does.

    Where the program has hooks on saved tensors, which are to see those that eager saves, `gm.forward` runs.
    """

    def __init__(
        self, gm: fx.GraphModule, examples: Sequence[torch.Tensor], compiles: Compiles,
        accounts: Sequence[CompiledGraph],
    ) -> None:
        """Raises NotFusable where the graph has to run as ATen."""
        self.eager, self.accounts = gm.forward, accounts
        self.recorded = recorded = Recorded(gm, examples)
        partition = parted(recorded.joint())
        joint = partition.joint
        self._forward = _Half(partition.forward, partition.forward_nodes, compiles, None)
        self.runs_as_aten = False
        """Whether autograd is to see each operation: gradients of gradients were asked for, or an operation gives what
        its fake does not."""
        sources = {value: (True, position) for position, value in enumerate(joint.inputs)}
        sources.update(
            (value, (False, position))
            for position, value in enumerate([*joint.outputs, *partition.made()])
            if isinstance(value, Value)
        )
        self.segments: list[CompiledSegment | Segment] = []
        """Those whose results are views as they are."""
        for number, segment in enumerate(recorded.segments):
            part = partition.backwards.get(number)
            made = segment if part is None else CompiledSegment(self, number, part, sources, compiles)
            self.segments.append(made)

    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        if not self._forward.is_tried and self._forward.is_repeatable:
            with torch.no_grad():
                self._forward.try_out(inputs)
            self.runs_as_aten = bool(self._forward.differences)
        if (
            self.runs_as_aten
            or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
            or self._writes_reach_others(inputs)
        ):
            return self.eager(*inputs)
        with torch.no_grad():
            made = [*self._forward.run(inputs)]
        call = Call(self, inputs)
        if torch.is_grad_enabled():
            views = self._tie(call, inputs, made)
        else:  # the program switches gradients on inside
            with torch.enable_grad():
                views = self._tie(call, inputs, made)
        return self._outputs(inputs, made, views)

    def _outputs(
        self, inputs: Sequence[torch.Tensor], made: Sequence[Any], views: dict[int, torch.Tensor]
    ) -> tuple[Any, ...]:
        """The results, where the plan has given what it gives, and some views have been made."""
        results = self.recorded.results
        outputs = []
        for position in range(len(results.returned)):
            place = results.places.get(position)
            if place is not None:
                outputs.append(made[place])
            elif position in results.passed_on:
                outputs.append(inputs[results.passed_on[position]])
            elif position in views:
                outputs.append(views[position])
            else:
                outputs.append(results.view(position, inputs, made, views))
        return tuple(outputs)

    def _tie(self, call: Call, inputs: Sequence[torch.Tensor], made: list[Any]) -> dict[int, torch.Tensor]:
        """Give results nodes of autograd. Gives the views that other results are made of, by their positions."""
        views: dict[int, torch.Tensor] = {}
        crossing: dict[Edge, torch.Tensor] = {}
        results = self.recorded.results
        n_roots = len(self.recorded.differentiable)
        for segment in self.segments:
            if isinstance(segment, Segment):
                for edge, number in zip(segment.outputs, segment.results):
                    position = results.differentiable_views[number - n_roots]
                    crossing[edge] = results.view(position, inputs, made, views)
                continue
            taken = [*[inputs[position] for position in segment.inputs], *[crossing[edge] for edge in segment.borders]]
            given = Compiled.apply(segment, call, made, *taken)
            crossing.update(zip(segment.outputs, given))
            for place, tensor in zip(segment.results, given):
                made[place] = tensor
        return views

    def results_behind(self, number: int) -> set[int]:
        """Where the forward plan gives the results of segments behind this one."""
        behind = self.recorded.segments[number + 1 :]
        results = [number for segment in behind if not segment.is_view for number in segment.results]
        return {self.recorded.differentiable[number] for number in results}

    def _writes_reach_others(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether an input that is written shares memory with another: each was recorded as if it were alone."""
        written = self.recorded.written
        if not written:
            return False
        storages = Counter([tensor.untyped_storage()._cdata for tensor in inputs])
        return any(storages[inputs[position].untyped_storage()._cdata] > 1 for position in written)

    @property
    def state(self) -> str:
        """What runs, as of other graphs that were compiled."""
        return "eager" if self.runs_as_aten else "compiled"

    def graphs(self) -> Sequence[CompiledGraph]:
        """The accounts of forward and backwards."""
        return self.accounts

    def is_repeatable(self) -> bool:
        """Whether running the forward once more gives the same, and changes nothing."""
        return self._forward.is_repeatable


class CompiledSegment:
    """A segment with its backward, compiled: what one node of autograd needs to know."""

    def __init__(
        self, graph: Differentiable, number: int, part: BackwardPart, sources: Sources, compiles: Compiles
    ) -> None:
        """`sources`: where each tensor that is kept comes from. Raises NeedsGradients where one comes out of a later
        node of autograd."""
        recorded = graph.recorded
        segment, like = recorded.segments[number], recorded.like[number]
        self.graph, self.number, self.compiles = graph, number, compiles
        self.kept = [part.joint.number(value) for value in part.saved]
        self.saved = [sources[value] for value in part.saved]
        """Where each tensor that is kept comes from: whether it is an input, or else given by the forward plan, and its
        position there."""
        self.keeps = bool(self.saved) or segment.keeps
        """Whether what is kept has to be there still."""
        self.usual = recorded.usual(number)
        self.places = [place for place, _ in self.usual]
        """Which of the segment's outputs gradients come to."""
        self.outputs = [segment.outputs[place] for place in self.places]
        self.results = [recorded.differentiable[number] for number in segment.results]
        """Where the forward plan gives the results."""
        self.others = [
            (tensor.shape, (0,) * tensor.dim(), tensor.dtype, tensor.device)
            for tensor in like[len(segment.results) :]
            if tensor is not None
        ]
        """What is given to other segments, as autograd is to see it."""
        behind = graph.results_behind(number)
        if any(not is_input and position in behind for is_input, position in self.saved):
            raise NeedsGradients("its backward looks at a result that others lead to")
        found = part.backward.gradients
        n_inputs = len(recorded.inputs)
        self.inputs = [position for position, gradient in enumerate(found[:n_inputs]) if gradient is not None]
        """The inputs that gradients go to."""
        handed_back = [place for place, gradient in enumerate(found[n_inputs:]) if gradient is not None]
        self.borders = [segment.borders[place] for place in handed_back]
        """What of other segments gradients go to."""
        self.leaving = [*self.inputs, *(n_inputs + place for place in handed_back)]
        """Which of the joint graph's gradients these are."""
        if not self.leaving:
            raise NeedsGradients("no gradient goes from a result to what it was made of")
        self.usual_references = usual_references(Compiled.apply)
        self._backwards = {self.usual: _Backward(part, self.leaving, compiles)}
        """By the outputs that gradients came to, and how these lay."""
        self._lock = threading.Lock()

    def given(self, made: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """What the node gives: results, and behind them what stands for tensors inside of the plan that other segments
        take."""
        others = [
            torch.empty_strided(shape, strides, dtype=dtype, device=device)
            for shape, strides, dtype, device in self.others
        ]
        return (*[made[place] for place in self.results], *others)

    def backward(self, saved: list[torch.Tensor], tangents: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The gradients that go out. Those of outputs to which none came do not take part, so that an input only they
        depend on has none.

        Both lists are emptied, so that what nobody else holds goes after its last use.
        """
        given = tuple(
            (place, tangent.stride() if _is_permuted(tangent, strides) else strides)
            for (place, strides), tangent in zip(self.usual, tangents)
            if tangent is not None
        )
        backward = self._backwards.get(given)
        if backward is None:
            backward = self._another(given)
        take(tangents, self.usual_references)
        if len(backward.strides) == len(tangents):
            came = [self._zeros(place) if tangent is None else tangent for place, tangent in enumerate(tangents)]
        else:
            came = [tangent for tangent in tangents if tangent is not None]
        tangents.clear()
        return backward(saved, came)

    def _another(self, given: Given) -> _Backward:
        """The backward for gradients of these outputs only, or for some that lie otherwise. Where that one would look
        at what is not kept, it is the one for gradients that lie as usual, and then for all outputs."""
        with self._lock:
            if given not in self._backwards:
                self._backwards[given] = self._possible(given) or self._backwards[self.usual]
            return self._backwards[given]

    def _possible(self, given: Given) -> _Backward | None:
        strides = dict(self.usual)
        for each in (given, tuple((place, strides[place]) for place, _ in given)):
            try:
                part = parted(self.graph.recorded.joint_of(self.number, each), self.kept).backwards[self.number]
            except NeedsGradients:
                continue
            return _Backward(part, self.leaving, self.compiles)
        return None

    def _zeros(self, number: int) -> torch.Tensor:
        """A gradient of zeros for an output that none came to."""
        place, strides = self.usual[number]
        like = self.graph.recorded.like[self.number][place]
        return torch.empty_strided(like.shape, strides, dtype=like.dtype, device=like.device).zero_()


class Call:
    """One run of a graph, as its nodes of autograd know it."""

    __slots__ = ("graph", "inputs", "versions")

    def __init__(self, graph: Differentiable, inputs: Sequence[torch.Tensor]) -> None:
        self.graph = graph
        # Inputs that eager's autograd would let go of may go: they are wanted again only for gradients of gradients.
        self.inputs = [weakref.ref(tensor) for tensor in inputs]
        self.versions = [_version(tensor) for tensor in inputs]


def _is_permuted(tensor: torch.Tensor, strides: Sequence[int]) -> bool:
    """Whether a gradient fills its memory in another order than what it is the gradient of; gradients of an input then
    lie so, too."""
    return tensor.stride() != strides and _is_dense(tensor)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill their memory, each in a place of its own."""
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != step:
            return False
        step *= size
    return tensor.numel() > 0


class _Backward:
    """A compiled backward."""

    def __init__(self, part: BackwardPart, leaving: Sequence[int], compiles: Compiles) -> None:
        """`leaving`: which gradients go out."""
        gradients = [part.backward.gradients[place] for place in leaving]
        order = {
            value: place for place, value in enumerate(dict.fromkeys(value for value in gradients if value is not None))
        }
        self.places = [None if value is None else order[value] for value in gradients]
        """Where each gradient stands among the results."""
        self.alone = frozenset(place for value, place in order.items() if value.storage.first is value)
        """The results that in eager lie in memory of their own, as gradients show. From the first run of the plan on,
        those that it puts elsewhere."""
        self.pieces = [
            place
            for value, place in order.items()
            if value.base is not None and value.numel() < value.storage.first.numel()
        ]
        """The results that are pieces of longer memory. In eager they are views, which keeps autograd from adding to
        them in place."""
        self.is_planned = False
        tangents = [value.storage for value in part.backward.tangents]
        self.parts = {
            place: tangents.index(value.storage) for value, place in order.items() if value.storage in tangents
        }
        """The results that are parts of gradients that came in, with the positions of these."""
        self.passed = {place for value, place in order.items() if value in part.backward.tangents}
        """The results that are gradients as they came in."""
        self.passed_on = {self.parts[place] for place in self.passed}
        self.strides = [value.strides for value in part.backward.tangents]
        self.half = _Half(part.graph, part.nodes, compiles, part.backward.segment)

    def __call__(self, saved: list[torch.Tensor], tangents: list[torch.Tensor]) -> list[torch.Tensor | None]:
        """Empties both lists."""
        # What is a part of a gradient that came in is, in eager, no part of a copy of it.
        copied = {
            position: tangent if position in self.passed_on else None  # else it is not held besides its copy
            for position, (tangent, strides) in enumerate(zip(tangents, self.strides))
            if tangent.stride() != strides
        }
        saved += [
            _laid_out(tangent, self.strides[position]) if position in copied else tangent
            for position, tangent in enumerate(tangents)
        ]
        tangents.clear()
        by_plan = self.half.is_tried or self.half.is_repeatable
        results = self.half.run(saved)
        gradients = [*results]
        for place in self.pieces:
            gradients[place] = gradients[place].view_as(gradients[place])
        for place in self.alone:
            gradients[place] = _alone(gradients[place])
        if by_plan and not self.is_planned:
            self.alone = frozenset(place for place in self.alone if gradients[place] is not results[place])
            self.is_planned = True
        for place, position in self.parts.items():
            if position in copied:
                gradients[place] = copied[position] if place in self.passed else gradients[place].clone()
        return [None if place is None else gradients[place] for place in self.places]


def _laid_out(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A gradient in the memory layout of what it is the gradient of."""
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in memory that is no longer than it."""
    return (
        tensor
        if tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size() or not _is_dense(tensor)
        else tensor.clone()
    )


class _Half:
    """Forward or backward, compiled. The first run is done by ATen, operation by operation, and looks whether each
    gives what it gave on fakes: what a library keeps for its own backward need not. Where one does not, all later runs
    are done so."""

    def __init__(
        self, graph: Callable[[], Graph], nodes: Sequence[Node], compiles: Compiles, segment: int | None
    ) -> None:
        """`segment`: the number of the segment whose backward it is."""
        self.graph = graph
        self.is_repeatable = not any(node.ordered or node.writes for node in nodes)
        """Whether running it once more gives the same, and changes nothing."""
        self.recorded: Graph | None = None
        self.plan = compiles(graph(), self.as_aten, segment)
        self.is_tried = False
        self.differences: list[str] = []

    def as_aten(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        """Run it without a plan."""
        if self.recorded is None:
            self.recorded = self.graph()
        return execute(self.recorded, inputs)

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Run it with autocast off: what that converts stands in the graph. A list of inputs is emptied: each goes
        after its last use."""
        if any(map(torch.is_autocast_enabled, AUTOCAST_DEVICES)):
            with torch._C._DisableAutocast():
                return self._run(inputs)
        return self._run(inputs)

    def try_out(self, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Run it by ATen for the first time. Where that is besides the program's own run, what it warns of is
        dropped."""
        self.is_tried = True
        with torch._C._DisableAutocast(), without_warnings() if self.is_repeatable else nullcontext():
            return execute(self.graph(), inputs, self.differences)

    def _run(self, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        if not self.is_tried:
            results = self.try_out(inputs)
            if not self.is_repeatable:
                return results
        if self.differences:
            return self.as_aten(*inputs)
        return self.plan.consume(inputs) if isinstance(inputs, list) else self.plan(*inputs)


class Compiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, segment: CompiledSegment, call: Call, made: Sequence[Any], *taken: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.segment, ctx.call = segment, call
        ctx.save_for_backward(*[call.inputs[place]() if is_input else made[place] for is_input, place in segment.saved])
        ctx.set_materialize_grads(False)
        return segment.given(made)

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        segment: CompiledSegment = ctx.segment
        # What was kept may be gone, as after another backward: an operation of eager's that keeps nothing does not mind
        # either.
        if all(tangent is None for tangent in tangents):
            found: list[torch.Tensor | None] = [None] * (len(segment.inputs) + len(segment.borders))
        elif torch.is_grad_enabled():
            found = _differentiable_gradients(ctx.call, segment, tangents)
        else:
            found = segment.backward(_given_up(ctx) if segment.keeps else [], [*tangents])
        return None, None, None, *found


def _given_up(ctx: Any) -> list[torch.Tensor]:
    """What was kept for the backward. After it, in eager as here, autograd lets go of that; unless the graph is
    retained, it does so now."""
    saved = [*ctx.saved_tensors]
    ctx.maybe_clear_saved_tensors()
    return saved


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _differentiable_gradients(
    call: Call, segment: CompiledSegment, tangents: Sequence[torch.Tensor | None]
) -> list[torch.Tensor | None]:
    """Gradients that have gradients of their own: the graph is run again as ATen, where autograd sees each operation.
    Later calls run so from the start.

    Raises RuntimeError where that would not give what the first run gave.
    """
    graph, inputs = call.graph, [tensor for reference in call.inputs if (tensor := reference()) is not None]
    graph.runs_as_aten = True
    if len(inputs) < len(call.inputs):
        raise RuntimeError(
            "gradients of gradients were asked for, and an input of the graph they lead through is gone, so that it "
            "can't be run again to find them. "
            "framejit runs this graph as ATen from now on: repeat the step"
        )
    if not graph.is_repeatable():
        raise RuntimeError(
            "gradients of gradients were asked for, and the graph they lead through drew random numbers, so that it "
            "can't be run again to find them. "
            "framejit runs this graph as ATen from now on: repeat the step"
        )
    if call.versions != [_version(tensor) for tensor in inputs]:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: an input "
            "of a compiled graph, "
            "which is run again because gradients of gradients were asked for"
        )
    outputs = graph.eager(*inputs)
    again = graph.recorded.results.segments(outputs)[segment.number]
    by_place: list[torch.Tensor | None] = [None] * len(again.outputs)
    for place, tangent in zip(segment.places, tangents):
        by_place[place] = tangent
    found = gradients(again, by_place, [inputs[position] for position in segment.inputs], differentiable=True)
    n_inputs = len(graph.recorded.inputs)
    return [
        *found[: len(segment.inputs)],
        *(found[len(segment.inputs) + place - n_inputs] for place in segment.leaving[len(segment.inputs) :]),
    ]
