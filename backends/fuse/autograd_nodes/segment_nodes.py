"""The nodes of autograd that a graph is tied with, one for each segment of it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from framejit.backends.fuse.autograd_nodes.backward import Backward, Given, is_permuted
from framejit.backends.fuse.autograd_nodes.gradient_edges import gradient_edges
from framejit.backends.fuse.autograd_nodes.half import Sizes
from framejit.backends.fuse.autograd_nodes.second_run import Call, outside_of_transforms
from framejit.backends.fuse.autograd_nodes.segments import Edge, Segment, by_node, gradients
from framejit.backends.fuse.autograd_nodes.tangents import take, usual_references
from framejit.backends.fuse.autograd_nodes.through_results import through_results
from framejit.backends.fuse.plan.plan_functions import count_back
from framejit.backends.fuse.sizes.symbolic_size import concrete
from framejit.backends.fuse.thread_state import default_dtype
from framejit.environment.signal_handlers import SignalsWait
from framejit.guards.saved_tensor_hooks import without_saved_tensor_hooks
from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from framejit.backends.fuse.autograd_nodes.differentiable import Differentiable


@dataclass(eq=False)
class ViewSegment:
    """A segment whose results are all views, which are made outside of nodes of ours."""

    outputs: Sequence[int]
    """The numbers of what it gives, as segments count what crosses between them."""
    views: Sequence[int]
    """The positions of these, as `Results` counts views."""

    def at(self, graph: Differentiable, sizes: Sizes) -> ViewSegment:
        """The same, whatever the sizes are."""
        return self


class Like(NamedTuple):
    """What a gradient looks like, but for its strides."""

    shape: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(eq=False)
class SegmentNode:
    """A segment as its node of autograd knows it. It is run once `at` has said for which sizes."""

    number: int
    saved: Sequence[tuple[bool, int]]
    """Where each tensor that is kept comes from: whether it is an input, or else given by the forward plan, and its
    position there."""
    watched: Sequence[tuple[bool, int]]
    """Where the tensors come from that eager keeps besides and the program can write into: its backward looks whether
    it has."""
    keeps: bool
    """Whether what is kept has to be there still."""
    has_function: bool
    """Whether a torch.autograd.Function is among its operations, which runs on zeros where no gradient comes."""
    like: Sequence[Like | None]
    """For each output what gradients that come to it look like; None where none come."""
    places: Sequence[int]
    """Which of the segment's outputs gradients come to."""
    outputs: Sequence[int]
    """The numbers of those that gradients come to, as segments count what crosses between them."""
    borders: Sequence[int]
    """The same of what other segments give and gradients go to."""
    results: Sequence[int]
    """Where the forward plan gives the results."""
    inputs: Sequence[int]
    """The inputs that gradients go to."""
    arrival: Sequence[int]
    """The places of these, in the order in which eager's gradients come to them."""
    leaving: Sequence[int]
    """Which of the segment's gradients go out: those of inputs by their positions, and of borders by their places
    behind all inputs."""
    written: Sequence[int]
    """Where the results stand that are inputs, written in place."""
    before: frozenset[int]
    """The inputs that other segments write: this one takes what they were."""
    anew: Sequence[int]
    """The inputs that are written, with nothing left of what they were."""

    graph: Differentiable = field(init=False, repr=False)
    sizes: Sizes = field(init=False)
    others: list[tuple[Any, ...]] = field(init=False)
    """What is given to other segments, as autograd is to see it."""

    def __post_init__(self) -> None:
        self.unneeded: list[None] = [None] * len(self.anew)

    def at(self, graph: Differentiable, sizes: Sizes) -> Self:
        """A copy of the segment, in the graph for other sizes."""
        made = copy.copy(self)
        made.graph, made.sizes = graph, sizes
        made.others = [
            (concrete(tensor.shape, sizes), (0,) * len(tensor.shape), tensor.dtype, tensor.device)
            for tensor in self.like[len(self.results) :]
            if tensor is not None
        ]
        return made

    def given(self, made: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """The outputs of the segment's node of autograd: its results, and behind them stand-ins for tensors inside of
        the plan that other segments take."""
        others = [
            torch.empty_strided(shape, strides, dtype=dtype, device=device)
            for shape, strides, dtype, device in self.others
        ]
        return (*[made[place] for place in self.results], *others)

    def backward(
        self, call: Call, saved: list[torch.Tensor], tangents: list[torch.Tensor | None]
    ) -> Sequence[torch.Tensor | None]:
        """The gradients that go out. Both lists are emptied, so that what nobody else holds goes after its last use."""
        raise NotImplementedError

    def none_came(self, ctx: Any) -> Sequence[torch.Tensor | None]:
        """What goes out where no gradient came. What was kept may be gone, as after another backward: an operation of
        eager's that keeps nothing does not mind either."""
        if not self.has_function or ctx.call is None:
            return [None] * len(self.leaving)
        call = ctx.call
        if self.keeps:
            given_up(ctx)
        with torch.enable_grad():
            return by_running_again(call, self, [None] * len(self.places), differentiable=False)


@dataclass(eq=False)
class CompiledSegment(SegmentNode):
    """A segment whose backward is compiled."""

    symbolic_usual: Given
    """The gradients that usually come, with symbolic sizes."""
    symbolic_backward: Backward
    """The backward for gradients that come as usual, whatever the sizes are."""

    usual: Given = field(init=False)
    _usual: Backward = field(init=False)
    _backwards: dict[Given, Backward | None] = field(init=False)
    """By the outputs that gradients came to, and how these lay; None where the graph is run again for them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.usual_references = usual_references(Compiled.apply)
        self._lock = threading.Lock()

    def at(self, graph: Differentiable, sizes: Sizes) -> CompiledSegment:
        """A copy of the segment, in the graph for other sizes."""
        made = super().at(graph, sizes)
        made.usual = concrete(self.symbolic_usual, sizes)
        usual = self.symbolic_backward
        made._usual = usual if usual.half.sizes == sizes else usual.at(sizes)
        made._backwards = {made.usual: made._usual}
        return made

    def backward(
        self, call: Call, saved: list[torch.Tensor], tangents: list[torch.Tensor | None]
    ) -> Sequence[torch.Tensor | None]:
        """As said of `SegmentNode`. Gradients of outputs to which none came do not take part, so that an input only
        they depend on has none."""
        if torch.get_default_dtype() is not self.graph.default_dtype:
            with default_dtype(self.graph.default_dtype):  # what is computed again is what it was
                return self._backward(call, saved, tangents)
        return self._backward(call, saved, tangents)

    def _backward(
        self, call: Call, saved: list[torch.Tensor], tangents: list[torch.Tensor | None]
    ) -> Sequence[torch.Tensor | None]:
        given = tuple(
            (place, tangent.stride() if is_permuted(tangent, strides) else strides)
            for (place, strides), tangent in zip(self.usual, tangents)
            if tangent is not None
        )
        backward = self._backwards[given] if given in self._backwards else self._another(given)
        if backward is None and not self.graph.second_run.is_spoiled(call):
            with torch.enable_grad():
                return by_running_again(call, self, tangents, differentiable=False)
        backward = backward or self._usual
        take(tangents, self.usual_references)
        if len(backward.strides) == len(tangents):
            came = [self._zeros(place) if tangent is None else tangent for place, tangent in enumerate(tangents)]
        else:
            came = [tangent for tangent in tangents if tangent is not None]
        tangents.clear()
        return backward(saved, came)

    def _another(self, given: Given) -> Backward | None:
        """The backward for gradients of these outputs only, or for some that lie otherwise."""
        with SignalsWait(), without_saved_tensor_hooks(), self._lock:
            if given not in self._backwards:
                self._backwards[given] = self.graph.others.find(self, given)
            return self._backwards[given]

    def usual_backward(self) -> Backward:
        """The backward for gradients that come as usual, for the sizes now."""
        return self._usual

    def _zeros(self, number: int) -> torch.Tensor:
        """A gradient of zeros for an output that none came to."""
        place, strides = self.usual[number]
        like = self.like[place]
        assert like is not None
        return torch.empty_strided(
            concrete(like.shape, self.sizes), strides, dtype=like.dtype, device=like.device
        ).zero_()


class Compiled(torch.autograd.Function):
    """The node of autograd for one segment: its forward runs nothing (`made` has what the plan gave), its backward is
    the segment's compiled one."""

    @staticmethod
    def forward(
        ctx: Any, segment: SegmentNode, call: Call, inputs: Sequence[torch.Tensor], made: Sequence[Any],
        *taken: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.segment, ctx.call = segment, call
        ctx.save_for_backward(
            *[(inputs if is_input else made)[place] for is_input, place in segment.saved],
            *[(inputs if is_input else made)[place] for is_input, place in segment.watched],
        )
        ctx.set_materialize_grads(False)
        if segment.written:
            written = [made[place] for place in segment.written]
            count_back(written, [1] * len(written))  # which autograd is about to count itself
            ctx.mark_dirty(*written)
        return segment.given(made)

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        segment: SegmentNode = ctx.segment
        if all(tangent is None for tangent in tangents):
            found = segment.none_came(ctx)
        else:
            call, saved = ctx.call, given_up(ctx)[: len(segment.saved)] if segment.keeps else []
            if torch.is_grad_enabled():
                segment.graph.fate.runs_as_aten = True
                found = by_running_again(call, segment, tangents, differentiable=True)
            elif any(tangent is not None and not torch._C._has_storage(tangent) for tangent in tangents):
                # vmap's batches of gradients have no memory that kernels could read
                with torch.enable_grad():
                    found = by_running_again(call, segment, tangents, differentiable=False)
            else:
                found = segment.backward(call, saved, [*tangents])
        return None, None, None, None, *found, *segment.unneeded


tie: Callable[..., tuple[torch.Tensor, ...]] = super(torch.autograd.Function, Compiled).apply
"""Makes a node, given what `Compiled.forward` takes. That of `Function` binds and unwraps arguments besides, for
transforms of `torch.func`, which no graph is compiled for."""


def given_up(ctx: Any) -> list[torch.Tensor]:
    """What was kept for the backward. After it, in eager as here, autograd lets go of that; unless the graph is
    retained, it does so now, and of what the graph would be run again with."""
    saved = [*ctx.saved_tensors]
    ctx.maybe_clear_saved_tensors()
    if not torch._C._autograd._get_current_graph_task_keep_graph():
        ctx.call = None
    return saved


def by_running_again(
    call: Call, segment: SegmentNode, tangents: Sequence[torch.Tensor | None], differentiable: bool
) -> list[torch.Tensor | None]:
    """Gradients, which may have gradients of their own: the graph is run again as ATen, where autograd sees each
    operation. Later calls run so from the start where gradients of gradients were asked for.

    Raises RuntimeError where inputs were written since the first run.
    """
    graph = segment.graph
    segments, edges, inputs = _run_again(call, graph)
    again, wanted = segments[segment.number], [edges[position] for position in segment.inputs]

    def compute(tangents: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        by_place: list[torch.Tensor | None] = [None] * len(again.outputs)
        for place, tangent in zip(segment.places, tangents):
            by_place[place] = tangent
        found = gradients(again, by_place, wanted, differentiable)
        return [
            *found[: len(segment.inputs)],
            *(found[len(segment.inputs) + place - graph.n_inputs] for place in segment.leaving[len(segment.inputs) :]),
        ]

    results = _shown_results(call, segment, segments) if differentiable else []
    if not results:
        return compute(tangents)
    return through_results(compute, tangents, [inputs[position] for position in edges], results)


def _shown_results(
    call: Call, segment: SegmentNode, segments: Sequence[Segment]
) -> list[tuple[Edge, torch.Tensor]]:
    """The results that a segment and those before it give, as autograd knows them in the graph that was run again; with
    those of the first run, where the program still has them."""
    found = []
    for each, again in zip(segment.graph.segments[: segment.number + 1], segments):
        places = each.places if isinstance(each, SegmentNode) else range(len(each.outputs))
        for number, place in zip(each.outputs, places):
            tensor = call.shown[number].now() if number in call.shown else None
            if tensor is not None:
                found.append((again.outputs[place], tensor))
    return found


def _run_again(
    call: Call, graph: Differentiable
) -> tuple[list[Segment], dict[int, GradientEdge], list[torch.Tensor]]:
    """The segments of the graph run again, where gradients of inputs end, by the positions of these, and the inputs.
    Other nodes of the same backward are given the same."""
    task = torch._C._current_graph_task_id()
    if call.again is not None and call.again[0] == task:
        return call.again[1:]
    with outside_of_transforms():
        inputs = graph.second_run.inputs(call)
        # before the graph writes into them
        ends = {tensor.grad_fn for tensor in inputs if tensor.requires_grad}
        stages = by_node(graph.stages, inputs)
        places = [place for place, tensor in enumerate(inputs) if tensor.requires_grad]
        edges = dict(zip(places, gradient_edges([inputs[place] for place in places])))
        outputs = graph.second_run.outputs(call, inputs)
        call.held = [get_gradient_edge(root) for root in graph.results.autograd_roots(inputs, outputs).values()]
    segments = graph.results.segments(inputs, outputs, ends, stages)
    call.again = task, segments, edges, inputs
    torch.autograd.Variable._execution_engine.queue_callback(call.forget_again)
    return segments, edges, inputs
