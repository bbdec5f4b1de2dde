"""A graph that gradients are wanted of: its forward is one plan, the backward of each of its segments another, behind a
node of autograd. All that is needed to run it, whoever found that out: `assemble.py`, or another process."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import get_gradient_edge

from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.plan.plan_functions import count_back
from framejit.backends.fuse.sizes.symbolic_size import concrete
from framejit.backends.fuse.thread_state import default_dtype
from framejit.backends.fuse.training.backward import Backward, Given, is_permuted
from framejit.backends.fuse.training.half import Half, Sizes
from framejit.backends.fuse.training.results import Results
from framejit.backends.fuse.training.second_run import (
    Call,
    Contents,
    RandomState,
    SecondRun,
    outside_of_transforms,
)
from framejit.backends.fuse.training.segments import by_node, gradients
from framejit.backends.fuse.training.tangents import take, usual_references
from framejit.environment.signal_handlers import SignalsWait
from framejit.late_dataclass import dataclass
from framejit.symbols.conditions import Condition


@dataclass
class Fate:
    """How a graph is run, whatever the sizes are."""

    runs_as_aten: bool = False
    """Whether autograd is to see each operation: gradients of gradients were asked for, or an operation gives what its
    fake does not."""


class OtherBackwards:
    """Has backwards of segments for gradients that come otherwise than usual."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, Given], Backward] = {}
        """Those that were made, by the segment's number and the gradients, where sizes are known."""
        self.tell: Callable[[], None] = lambda: None
        """Called where there is another."""

    def find(self, segment: CompiledSegment, given: Given) -> Backward | None:
        """The backward for these; None where they are to be worked out by running the graph again."""
        raise NotImplementedError

    def note(self, segment: CompiledSegment, given: Given, found: Backward) -> None:
        """Have it known."""
        if not segment.sizes:
            self.known[segment.number, given] = found
            self.tell()


@dataclass(eq=False)
class Differentiable:
    """A captured graph that gradients are wanted of, compiled: takes its inputs and gives the tuple of its outputs, as
    `gm.forward` does.

    Where the program has hooks on saved tensors, which are to see those that eager saves, `gm.forward` runs.
    """

    eager: Callable[..., tuple[Any, ...]]
    accounts: Sequence[CompiledGraph]
    torch_state: tuple[Any, ...]
    """Torch's state of the thread, which the recording depends on."""
    default_dtype: torch.dtype
    n_inputs: int
    n_roots: int
    """How many tensors the plan gives that gradients may come to."""
    written: Sequence[int]
    """The positions of inputs that are written."""
    stages: Mapping[int, int]
    """The stage of the backward at whose end the gradient of an input is there, by its position; empty for one."""
    noted: tuple[Condition, ...]
    """What was asked of symbolic sizes before plans were made."""
    symbolic_results: Results
    second_run: SecondRun
    forward: Half
    segments: Sequence[CompiledSegment | ViewSegment]
    others: OtherBackwards
    kept: Sequence[tuple[str, int]]
    """The lines of the program whose values are kept for the backward, and their bytes."""
    computed_again: Sequence[tuple[str, int]]
    """The lines of which the backward computes operations again, and how many."""
    fate: Fate = field(default_factory=Fate)

    def __post_init__(self) -> None:
        self.results = self.symbolic_results.at(self.forward.sizes)
        self.segments = [segment.at(self, self.forward.sizes) for segment in self.segments]
        differentiable = {
            position for segment in self.segments if isinstance(segment, CompiledSegment) for position in segment.inputs
        }
        # what a result is a view of leads to that view, if the graph is run again
        differentiable.update(self.results.viewed_inputs())
        self.differentiable = [position in differentiable for position in range(self.n_inputs)]
        """Whether gradients go to an input, for each of the inputs."""

    def at(self, sizes: Sizes) -> Differentiable:
        """A copy for other numbers in the place of the symbolic sizes."""
        made = copy.copy(self)
        made.results = self.symbolic_results.at(sizes)
        made.forward = self.forward.at(sizes)
        made.segments = [segment.at(made, sizes) for segment in self.segments]
        return made

    def assumed(self) -> tuple[Condition, ...]:
        """The conditions that sizes must meet."""
        halves = [self.forward, *(each.half() for each in self.segments if isinstance(each, CompiledSegment))]
        of_halves = (condition for half in halves for condition in half.compiled.conditions)
        return tuple(dict.fromkeys([*self.noted, *of_halves]))

    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        trial = self.forward.trial
        if not trial.is_over and self.forward.is_repeatable:
            with torch.no_grad():
                self.forward.try_out(inputs)
            self.fate.runs_as_aten = bool(trial.differences)
        if (
            self.fate.runs_as_aten
            or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
            or self._writes_reach_others(inputs)
            or any(inputs[position]._is_view() or _is_root(inputs[position]) for position in self.results.tied.values())
        ):
            return self.as_aten(*inputs)
        random, contents = self.second_run.random_state(), self.second_run.contents(inputs)
        with torch.no_grad():
            made = [*self.forward.run(inputs)]
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

    def as_aten(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        """Run operation by operation, each of which autograd sees, with the random numbers that kernels make; but not
        what the program checkpoints, which draws by ATen now, and again in its backward."""
        run = self.second_run
        return run.by_aten(inputs)[0] if run.eager == self.eager else self.eager(*inputs)

    def _outputs(
        self, inputs: Sequence[torch.Tensor], made: Sequence[Any], views: dict[int, torch.Tensor]
    ) -> tuple[Any, ...]:
        """The results, where the plan has given what it gives, and some views have been made."""
        results = self.results
        outputs = []
        for position in range(results.n_returned):
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
        crossing: dict[int, torch.Tensor] = {}
        results = self.results
        for segment in self.segments:
            if isinstance(segment, ViewSegment):
                for edge, number in zip(segment.outputs, segment.results):
                    position = results.differentiable_views[number - self.n_roots]
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

    def _writes_reach_others(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether an input that is written shares memory with another: each was recorded as if it were alone."""
        written = self.written
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


@dataclass(eq=False)
class ViewSegment:
    """A segment whose results are all views, which are made outside of nodes of ours."""

    outputs: Sequence[int]
    """The numbers of what it gives, as segments count what crosses between them."""
    results: Sequence[int]
    """Which results it gives, by their numbers."""

    def at(self, graph: Differentiable, sizes: Sizes) -> ViewSegment:
        """The same, whatever the sizes are."""
        return self


class Like(NamedTuple):
    """What a gradient looks like, but for its strides."""

    shape: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(eq=False)
class CompiledSegment:
    """A segment with its backward, compiled: what one node of autograd needs to know. It is run once `at` has said for
    which sizes."""

    number: int
    saved: Sequence[tuple[bool, int]]
    """Where each tensor that is kept comes from: whether it is an input, or else given by the forward plan, and its
    position there."""
    watched: Sequence[tuple[bool, int]]
    """Where the tensors come from that eager keeps besides and the program can write into: its backward looks whether
    it has."""
    keeps: bool
    """Whether what is kept has to be there still."""
    like: Sequence[Like | None]
    """For each output what gradients that come to it look like; None where none come."""
    symbolic_usual: Given
    """The gradients that usually come, with symbolic sizes."""
    outputs: Sequence[int]
    """The numbers of those that gradients come to, as segments count what crosses between them."""
    borders: Sequence[int]
    """The same of what other segments give and gradients go to."""
    results: Sequence[int]
    """Where the forward plan gives the results."""
    inputs: Sequence[int]
    """The inputs that gradients go to."""
    leaving: Sequence[int]
    """Which of the joint graph's gradients go out."""
    written: Sequence[int]
    """Where the results stand that are inputs, written in place."""
    before: frozenset[int]
    """The inputs that other segments write: this one takes what they were."""
    anew: Sequence[int]
    """The inputs that are written, with nothing left of what they were."""
    symbolic_backward: Backward
    """The backward for gradients that come as usual, whatever the sizes are."""

    graph: Differentiable = field(init=False, repr=False)
    sizes: Sizes = field(init=False)
    usual: Given = field(init=False)
    others: list[tuple[Any, ...]] = field(init=False)
    """What is given to other segments, as autograd is to see it."""
    _usual: Backward = field(init=False)
    _backwards: dict[Given, Backward | None] = field(init=False)
    """By the outputs that gradients came to, and how these lay; None where the graph is run again for them."""

    def __post_init__(self) -> None:
        self.places = [place for place, _ in self.symbolic_usual]
        """Which of the segment's outputs gradients come to."""
        self.n_leaving = len(self.leaving)
        self.unneeded = [None] * len(self.anew)
        self.usual_references = usual_references(Compiled.apply)
        self._lock = threading.Lock()

    def at(self, graph: Differentiable, sizes: Sizes) -> CompiledSegment:
        """A copy of the segment, in the graph for other sizes."""
        made = copy.copy(self)
        made.graph, made.sizes = graph, sizes
        made.usual = concrete(self.symbolic_usual, sizes)
        made.others = [
            (concrete(tensor.shape, sizes), (0,) * len(tensor.shape), tensor.dtype, tensor.device)
            for tensor in self.like[len(self.results) :]
            if tensor is not None
        ]
        usual = self.symbolic_backward
        made._usual = usual if usual.half.sizes == sizes else usual.at(sizes)
        made._backwards = {made.usual: made._usual}
        return made

    def half(self) -> Half:
        """The backward for gradients that come as usual."""
        return self.symbolic_backward.half

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
        """The gradients that go out. Those of outputs to which none came do not take part, so that an input only they
        depend on has none.

        Both lists are emptied, so that what nobody else holds goes after its last use.
        """
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
                return _by_running_again(call, self, tangents, differentiable=False)
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
        with SignalsWait(), self._lock:
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
            found: Sequence[torch.Tensor | None] = [None] * segment.n_leaving
        else:
            call, saved = ctx.call, _given_up(ctx)[: len(segment.saved)] if segment.keeps else []
            if torch.is_grad_enabled():
                segment.graph.fate.runs_as_aten = True
                found = _by_running_again(call, segment, tangents, differentiable=True)
            elif any(tangent is not None and not torch._C._has_storage(tangent) for tangent in tangents):
                # vmap's batches of gradients have no memory that kernels could read
                with torch.enable_grad():
                    found = _by_running_again(call, segment, tangents, differentiable=False)
            else:
                found = segment.backward(call, saved, [*tangents])
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


def _by_running_again(
    call: Call, segment: CompiledSegment, tangents: Sequence[torch.Tensor | None], differentiable: bool
) -> list[torch.Tensor | None]:
    """Gradients, which may have gradients of their own: the graph is run again as ATen, where autograd sees each
    operation. Later calls run so from the start where gradients of gradients were asked for.

    Raises RuntimeError where inputs were written since the first run.
    """
    graph = segment.graph
    with outside_of_transforms():
        inputs = graph.second_run.inputs(call)
        # before the graph writes into them
        ends = {tensor.grad_fn for tensor in inputs if tensor.requires_grad}
        stages = by_node(graph.stages, inputs)
        wanted = [get_gradient_edge(inputs[position]) for position in segment.inputs]
        outputs = graph.second_run.outputs(call, inputs)
    again = graph.results.segments(inputs, outputs, ends, stages)[segment.number]
    by_place: list[torch.Tensor | None] = [None] * len(again.outputs)
    for place, tangent in zip(segment.places, tangents):
        by_place[place] = tangent
    found = gradients(again, by_place, wanted, differentiable)
    return [
        *found[: len(segment.inputs)],
        *(found[len(segment.inputs) + place - graph.n_inputs] for place in segment.leaving[len(segment.inputs) :]),
    ]
