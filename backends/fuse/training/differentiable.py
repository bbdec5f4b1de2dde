"""A graph that gradients are wanted of: its forward is one plan, the backward of each of its segments another, behind a
node of autograd."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.autograd.graph import get_gradient_edge

from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.cache.plan_key import SymbolicSizes
from framejit.backends.fuse.graph.entrances import Entrance
from framejit.backends.fuse.graph.record import check_inputs
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.not_fusable import NeedsGradients, NotFusable
from framejit.backends.fuse.plan.plan_functions import count_back
from framejit.backends.fuse.sizes.by_size import holds
from framejit.backends.fuse.sizes.symbolic_size import concrete
from framejit.backends.fuse.thread_state import default_dtype, restore, restored_thread_state, thread_state
from framejit.backends.fuse.training.backward import Backward, SymbolicBackward, is_permuted, order_of, strides_in
from framejit.backends.fuse.training.buckets import Buckets, by_node
from framejit.backends.fuse.training.half import Compiles, Half, Sizes, sizes_now
from framejit.backends.fuse.training.joint import Given, Recorded
from framejit.backends.fuse.training.partition import BackwardPart, parted
from framejit.backends.fuse.training.second_run import Call, Contents, RandomState, SecondRun
from framejit.backends.fuse.training.segments import Edge, Segment, gradients
from framejit.backends.fuse.training.tangents import take, usual_references
from framejit.backends.graph_identity import ACTIVATION_MEMORY
from framejit.config import config
from framejit.environment.signal_handlers import SignalsWait
from framejit.events import warn
from framejit.symbols.conditions import Condition

Sources = Mapping[Value, tuple[bool, int]]
"""Where values are found when a graph runs: whether among its inputs, or else in what the forward plan gives, and the
position there."""


@dataclass
class Fate:
    """How a graph is run, whatever the sizes are."""

    runs_as_aten: bool = False
    """Whether autograd is to see each operation: gradients of gradients were asked for, or an operation gives what its
    fake does not."""


class Differentiable:
    """A captured graph that gradients are wanted of, compiled: takes its inputs and gives the tuple of its outputs, as
    `gm.forward` does.

    Where the program has hooks on saved tensors, which are to see those that eager saves, `gm.forward` runs.
    """

    def __init__(
        self, gm: fx.GraphModule, examples: Sequence[torch.Tensor], compiles: Compiles,
        accounts: Sequence[CompiledGraph], symbolic_sizes: SymbolicSizes | None = None, buckets: Buckets | None = None,
    ) -> None:
        """Raises NotFusable where the graph has to run as ATen."""
        self.buckets = buckets
        self.gm, self.eager, self.accounts, self.symbolic_sizes = gm, gm.forward, accounts, symbolic_sizes
        self.torch_state = thread_state()
        """Torch's state of the thread, which the recording depends on."""
        self.default_dtype = torch.get_default_dtype()
        self.entrances = [Entrance.of(example) for example in examples]
        self.recorded = recorded = Recorded(
            gm, self.entrances, None if symbolic_sizes is None else symbolic_sizes.conditions, buckets
        )
        self.second_run = SecondRun(gm.forward, recorded, self.torch_state)
        check_inputs(recorded.graph, examples)
        self.results = recorded.results.at(sizes_now(symbolic_sizes))
        partition = parted(recorded.joint(), share=gm.meta.get(ACTIVATION_MEMORY, 1.0))
        joint = partition.joint
        self.kept, self.computed_again = partition.kept_by_line(), partition.computed_again_by_line()
        self._forward = Half(partition.forward, partition.forward_nodes, compiles, None, symbolic_sizes)
        self.fate = Fate()
        sources = {value: (True, position) for position, value in enumerate(joint.inputs)}
        sources.update(
            (value, (False, position))
            for position, value in enumerate([*joint.outputs, *partition.made()])
            if isinstance(value, Value)
        )
        sources.update(
            (content, (True, joint.inputs.index(value))) for content, value in joint.contents().items()
        )
        self.segments: list[CompiledSegment | Segment] = []
        """All segments; one whose results are all views stays as it was recorded."""
        for number, segment in enumerate(recorded.segments):
            part = partition.backwards.get(number)
            made = segment if part is None else CompiledSegment(self, number, part, sources, compiles)
            self.segments.append(made)
        differentiable = {
            position for segment in self.segments if isinstance(segment, CompiledSegment) for position in segment.inputs
        }
        # what a result is a view of leads to that view, if the graph is run again
        differentiable.update(self.results.viewed_inputs())
        self.differentiable = [position in differentiable for position in range(len(joint.inputs))]
        """Whether gradients go to an input, for each of the inputs."""

    def at(self, sizes: Sizes) -> Differentiable:
        """A copy for other numbers in the place of the symbolic sizes."""
        made = copy.copy(self)
        made.results = self.recorded.results.at(sizes)
        made._forward = self._forward.at(sizes)
        made.segments = [
            segment if isinstance(segment, Segment) else segment.at(made, sizes) for segment in self.segments
        ]
        return made

    def assumed(self) -> tuple[Condition, ...]:
        """The conditions that sizes must meet."""
        halves = [self._forward, *(each.half() for each in self.segments if isinstance(each, CompiledSegment))]
        noted = () if self.symbolic_sizes is None else self.symbolic_sizes.conditions
        return tuple(dict.fromkeys([*noted, *(condition for half in halves for condition in half.assumed)]))

    def recorded_for(self, sizes: Sizes) -> tuple[Recorded, SymbolicSizes]:
        """The graph recorded anew, so that what is asked of sizes is asked of these, and what was asked before goes
        without saying. Raises NeedsGradients where the forward is not the same then."""
        assert self.symbolic_sizes is not None
        conditions, symbols = self.symbolic_sizes.conditions.with_hints(sizes)
        with restored_thread_state():  # a backward may run in any
            restore(self.torch_state)
            again = Recorded(self.gm, self.entrances, conditions, self.buckets)
            again.joint()
        if again.forward() != self.recorded.forward():
            raise NeedsGradients("its forward consists of other operations with other sizes")
        return again, SymbolicSizes(tuple(symbols[symbol] for symbol in self.symbolic_sizes.symbols), conditions)

    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        trial = self._forward.trial
        if not trial.is_over and self._forward.is_repeatable:
            with torch.no_grad():
                self._forward.try_out(inputs)
            self.fate.runs_as_aten = bool(trial.differences)
        if (
            self.fate.runs_as_aten
            or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
            or self._writes_reach_others(inputs)
            or any(inputs[position]._is_view() or _is_root(inputs[position]) for position in self.results.tied.values())
        ):
            return self.eager(*inputs)
        random, contents = self.second_run.random_state(), self.second_run.contents(inputs)
        with torch.no_grad():
            made = [*self._forward.run(inputs)]
        for place, position in self.results.tied.items():
            made[place] = inputs[position]
        for place, writes in self.results.writes:
            for _ in range(writes - made[place]._version):
                torch._C._increment_version([made[place]])
        if torch.is_grad_enabled():
            views = self._tie(random, contents, inputs, made)
        else:  # the program switches gradients on inside
            with torch.enable_grad():
                views = self._tie(random, contents, inputs, made)
        return self._outputs(inputs, made, views)

    def _outputs(
        self, inputs: Sequence[torch.Tensor], made: Sequence[Any], views: dict[int, torch.Tensor]
    ) -> tuple[Any, ...]:
        """The results, where the plan has given what it gives, and some views have been made."""
        results = self.results
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

    def _tie(
        self, random: RandomState | None, contents: Contents, inputs: Sequence[torch.Tensor], made: list[Any]
    ) -> dict[int, torch.Tensor]:
        """Give results nodes of autograd. Gives the views that other results are made of, by their positions."""
        call = Call(inputs, self.differentiable, random, contents)
        views: dict[int, torch.Tensor] = {}
        crossing: dict[Edge, torch.Tensor] = {}
        results = self.results
        n_roots = len(self.recorded.differentiable)
        for segment in self.segments:
            if isinstance(segment, Segment):
                for edge, number in zip(segment.outputs, segment.results):
                    position = results.differentiable_views[number - n_roots]
                    crossing[edge] = results.view(position, inputs, made, views)
                continue
            taken = [
                *[(call.inputs if position in segment.before else inputs)[position] for position in segment.inputs],
                *[crossing[edge] for edge in segment.borders],
                *[inputs[position] for position in segment.anew],
            ]
            given = Compiled.apply(segment, call, inputs, made, *taken)
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
        """The state of the graph as `framejit.inspect` names it: `compiled`, or `eager` where it runs as ATen."""
        return "eager" if self.fate.runs_as_aten else "compiled"

    def graphs(self) -> Sequence[CompiledGraph]:
        """The accounts of forward and backwards."""
        return self.accounts


class CompiledSegment:
    """A segment with its backward, compiled: what one node of autograd needs to know."""

    def __init__(
        self, graph: Differentiable, number: int, part: BackwardPart, sources: Sources, compiles: Compiles
    ) -> None:
        """`sources`: where each tensor that is kept comes from. Raises NeedsGradients where one comes out of a later
        node of autograd."""
        recorded = graph.recorded
        segment, self.like = recorded.segments[number], recorded.like[number]
        self.graph, self.number, self.compiles = graph, number, compiles
        self.kept = [part.joint.number(value) for value in part.saved]
        self.saved = [sources[value] for value in part.saved]
        """Where each tensor that is kept comes from: whether it is an input, or else given by the forward plan, and its
        position there."""
        self.watched = self._watched(segment.kept)
        """Where the tensors come from that eager keeps besides and the program can write into: its backward looks
        whether it has."""
        self.keeps = bool(self.saved) or segment.keeps
        """Whether what is kept has to be there still."""
        self.symbolic_usual = recorded.usual(number)
        """The gradients that usually come, with symbolic sizes."""
        self.places = [place for place, _ in self.symbolic_usual]
        """Which of the segment's outputs gradients come to."""
        self.outputs = [segment.outputs[place] for place in self.places]
        self.results = [recorded.differentiable[number] for number in segment.results]
        """Where the forward plan gives the results."""
        self.n_results = len(segment.results)
        behind = graph.results_behind(number)
        if any(not is_input and position in behind for is_input, position in self.saved):
            raise NeedsGradients("its backward looks at a result that others lead to")
        found = part.backward.gradients
        n_inputs = len(recorded.inputs)
        self.inputs = [position for position, gradient in enumerate(found[:n_inputs]) if gradient is not None]
        """The inputs that gradients go to."""
        handed_back = [place for place, gradient in enumerate(found[n_inputs:]) if gradient is not None]
        self.borders = [segment.borders[place] for place in handed_back]
        """The values of other segments that gradients go to."""
        self.leaving = [*self.inputs, *(n_inputs + place for place in handed_back)]
        """Which of the joint graph's gradients these are."""
        self.n_leaving = len(self.leaving)
        tied = recorded.results.tied
        self.written = [place for place in self.results if place in tied]
        """Where the results stand that are inputs, written in place."""
        own = {tied[place] for place in self.written}
        self.before = {position for position in tied.values() if position not in own}
        """The inputs that other segments write: this one takes what they were."""
        self.anew = [position for position in own if position not in self.inputs]
        """The inputs that are written, with nothing left of what they were."""
        self.unneeded = [None] * len(self.anew)
        if not self.leaving:
            raise NeedsGradients("no gradient goes from a result to what it was made of")
        self.usual_references = usual_references(Compiled.apply)
        self._usual = Backward(part, self.leaving, compiles, graph.symbolic_sizes)
        self._unusual: list[SymbolicBackward] = []
        """What was compiled for gradients that came otherwise, where sizes are symbolic."""
        self._lock = threading.Lock()
        self._have(sizes_now(graph.symbolic_sizes))

    def _watched(self, kept: Set[int]) -> list[tuple[bool, int]]:
        """`kept`: the addresses of the storages that eager keeps. What the program checkpoints is computed again in
        eager, too, so that nobody looks at what became of it."""
        recorded = self.graph.recorded
        if any(node.origin.checkpoint for node in recorded.graph.nodes):
            return []
        behind = self.graph.results_behind(self.number)
        roots = recorded.results.roots
        inputs = [place for place, fake in enumerate(recorded.inputs) if fake.untyped_storage()._cdata in kept]
        given = [
            place
            for place, root in enumerate(roots)
            if place not in recorded.results.tied
            and place not in behind
            and isinstance(root, torch.Tensor)
            and root.untyped_storage()._cdata in kept
        ]
        watched = [*((True, place) for place in inputs), *((False, place) for place in given)]
        return [each for each in watched if each not in self.saved]

    def _have(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.usual: Given = concrete(self.symbolic_usual, sizes)
        self.others = [
            (concrete(tuple(tensor.shape), sizes), (0,) * tensor.dim(), tensor.dtype, tensor.device)
            for tensor in self.like[self.n_results :]
            if tensor is not None
        ]
        """What is given to other segments, as autograd is to see it."""
        self._backwards = {self.usual: self._usual.at(sizes)}
        """By the outputs that gradients came to, and how these lay."""

    def at(self, graph: Differentiable, sizes: Sizes) -> CompiledSegment:
        """A copy of the segment, in the graph for other sizes."""
        made = copy.copy(self)
        made.graph = graph
        made._have(sizes)
        return made

    def half(self) -> Half:
        """The backward for gradients that come as usual."""
        return self._usual.half

    def given(self, made: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """The outputs of the segment's node of autograd: its results, and behind them stand-ins for tensors inside of
        the plan that other segments take."""
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
        if torch.get_default_dtype() is not self.graph.default_dtype:
            with default_dtype(self.graph.default_dtype):  # what is computed again is what it was
                return self._backward(saved, tangents)
        return self._backward(saved, tangents)

    def _backward(self, saved: list[torch.Tensor], tangents: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        given = tuple(
            (place, tangent.stride() if is_permuted(tangent, strides) else strides)
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

    def _another(self, given: Given) -> Backward:
        """The backward for gradients of these outputs only, or for some that lie otherwise. Where that one would look
        at what is not kept, it is the one for gradients that lie as usual, and then for all outputs."""
        with SignalsWait(), self._lock:
            if given not in self._backwards:
                self._backwards[given] = self._possible(given) or self._backwards[self.usual]
            return self._backwards[given]

    def _possible(self, given: Given) -> Backward | None:
        strides = dict(self.usual)
        for each in (given, tuple((place, strides[place]) for place, _ in given)):
            try:
                return self._compiled(each) if self.graph.symbolic_sizes is None else self._compiled_symbolic(each)
            except NotFusable:
                continue
            except Exception as e:  # in the midst of the program's backward
                if config.debug:
                    raise
                warn(
                    "a backward for gradients that come otherwise than usual could not be compiled, and the usual one "
                    f"runs: {type(e).__name__}: {e}"
                )
        return None

    def _compiled(self, given: Given) -> Backward:
        part = parted(self.graph.recorded.joint_of(self.number, given), self.kept).backwards[self.number]
        return Backward(part, self.leaving, self.compiles, None)

    def _compiled_symbolic(self, given: Given) -> Backward:
        """The backward for gradients that came in an unusual form, where sizes are symbolic: one that was made for
        other sizes will do if these are like them."""
        usual = dict(self.usual)
        orders = tuple((place, None if strides == usual[place] else order_of(strides)) for place, strides in given)
        values = tuple(self.sizes.values())
        for known in self._unusual:
            sizes = dict(zip(known.symbols, values))
            if known.orders == orders and all(holds(condition, sizes) for condition in known.conditions):
                return known.backward.at(sizes)
        recorded, symbolic_sizes = self.graph.recorded_for(self.sizes)
        symbolic_usual, like = dict(recorded.usual(self.number)), recorded.like[self.number]
        coming = tuple(
            (place, symbolic_usual[place] if order is None else strides_in(order, like[place].shape))
            for place, order in orders
        )
        part = parted(recorded.joint_of(self.number, coming), self.kept).backwards[self.number]
        made = Backward(part, self.leaving, self.compiles, symbolic_sizes)
        conditions = tuple(dict.fromkeys([*symbolic_sizes.conditions, *made.half.assumed]))
        self._unusual.append(SymbolicBackward(orders, symbolic_sizes.symbols, conditions, made))
        return made

    def _zeros(self, number: int) -> torch.Tensor:
        """A gradient of zeros for an output that none came to."""
        place, strides = self.usual[number]
        like = self.like[place]
        shape = concrete(tuple(like.shape), self.sizes)
        return torch.empty_strided(shape, strides, dtype=like.dtype, device=like.device).zero_()


class Compiled(torch.autograd.Function):
    """The node of autograd for one segment: its forward runs nothing (`made` has what the plan gave), its backward is
    the segment's compiled one."""

    @staticmethod
    def forward(
        ctx: Any, segment: CompiledSegment, call: Call, inputs: Sequence[torch.Tensor], made: Sequence[Any],
        *taken: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.segment, ctx.call = segment, call
        ctx.save_for_backward(
            *[(inputs if is_input else made)[place] for is_input, place in segment.saved],
            *[(inputs if is_input else made)[place] for is_input, place in segment.watched],
        )
        ctx.set_materialize_grads(False)
        written = [made[place] for place in segment.written]
        count_back(written, [1] * len(written))  # which autograd is about to count itself
        ctx.mark_dirty(*written)
        return segment.given(made)

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        segment: CompiledSegment = ctx.segment
        # What was kept may be gone, as after another backward: an operation of eager's that keeps nothing does not mind
        # either.
        if all(tangent is None for tangent in tangents):
            found: list[torch.Tensor | None] = [None] * segment.n_leaving
        else:
            call, saved = ctx.call, _given_up(ctx)[: len(segment.saved)] if segment.keeps else []
            if torch.is_grad_enabled():
                found = _differentiable_gradients(call, segment, tangents)
            else:
                found = segment.backward(saved, [*tangents])
        return None, None, None, None, *found, *segment.unneeded


def _is_root(tensor: torch.Tensor) -> bool:
    """Whether eager refuses to write it where gradients are wanted."""
    return tensor.is_leaf and tensor.requires_grad


def _given_up(ctx: Any) -> list[torch.Tensor]:
    """What was kept for the backward. After it, in eager as here, autograd lets go of that; unless the graph is
    retained, it does so now, and of what the graph would be run again with."""
    saved = [*ctx.saved_tensors]
    ctx.maybe_clear_saved_tensors()
    if not torch._C._autograd._get_current_graph_task_keep_graph():
        ctx.call = None
    return saved


def _differentiable_gradients(
    call: Call, segment: CompiledSegment, tangents: Sequence[torch.Tensor | None]
) -> list[torch.Tensor | None]:
    """Gradients that have gradients of their own: the graph is run again as ATen, where autograd sees each operation.
    Later calls run so from the start.

    Raises RuntimeError where inputs were written since the first run.
    """
    graph = segment.graph
    graph.fate.runs_as_aten = True
    inputs = graph.second_run.inputs(call)
    # before the graph writes into them
    ends = {tensor.grad_fn for tensor in inputs if tensor.requires_grad}
    stages = by_node(graph.recorded.stages, inputs)
    wanted = [get_gradient_edge(inputs[position]) for position in segment.inputs]
    outputs = graph.second_run.outputs(call, inputs)
    again = graph.recorded.results.segments(inputs, outputs, ends, stages)[segment.number]
    by_place: list[torch.Tensor | None] = [None] * len(again.outputs)
    for place, tangent in zip(segment.places, tangents):
        by_place[place] = tangent
    found = gradients(again, by_place, wanted, differentiable=True)
    n_inputs = len(graph.recorded.inputs)
    return [
        *found[: len(segment.inputs)],
        *(found[len(segment.inputs) + place - n_inputs] for place in segment.leaving[len(segment.inputs) :]),
    ]
