"""A graph that gradients are wanted of: its forward is one plan, the backward of each of its segments another, behind a
node of autograd. All that is needed to run it, whoever found that out: `assemble.py`, or another process."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch

from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.autograd_nodes.backward import Backward, Given
from framejit.backends.fuse.autograd_nodes.half import Half, Sizes
from framejit.backends.fuse.autograd_nodes.leaf_order import have_hooks, one_by_one
from framejit.backends.fuse.autograd_nodes.node_watch import Watch, leaf
from framejit.backends.fuse.autograd_nodes.results import Results
from framejit.backends.fuse.autograd_nodes.second_run import Call, Contents, RandomState, SecondRun
from framejit.backends.fuse.autograd_nodes.segment_nodes import CompiledSegment, SegmentNode, ViewSegment, tie
from framejit.backends.fuse.autograd_nodes.small_graphs import CALLS, choose
from framejit.backends.fuse.autograd_nodes.through_results import shown
from framejit.backends.fuse.autograd_nodes.whole_backward import JoinedSegment, WholeBackward
from framejit.late_dataclass import dataclass
from framejit.symbols.conditions import Condition


@dataclass
class Fate:
    """How a graph is run, whatever the sizes are."""

    runs_as_aten: bool = False
    """Whether autograd is to see each operation: gradients of gradients were asked for, an operation gives what its
    fake does not, or ATen is the quicker."""
    is_divided: bool = False
    """Whether each segment is to have a backward of its own: gradients were asked for at results that lead to the
    loss."""
    in_doubt: bool = True
    """Whether no backward has come from the loss alone yet."""


class OtherBackwards:
    """Has backwards of segments for gradients that come otherwise than usual."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, Given], Backward] = {}
        """Those that were made, by the segment's number and the gradients, where sizes are known."""
        self.divided_graph: Callable[..., tuple[Any, ...]] | None = None
        """What `divided` gave."""
        self.tell: Callable[[], None] = lambda: None
        """Called where there is another."""

    def find(self, segment: CompiledSegment, given: Given) -> Backward | None:
        """The backward for these; None where they are to be worked out by running the graph again."""
        raise NotImplementedError

    def divided(self, graph: Differentiable) -> Callable[..., tuple[Any, ...]]:
        """A joined graph with a backward for each segment instead."""
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
    written: Sequence[int]
    """The positions of inputs that are written."""
    stages: Mapping[int, int]
    """The stage of the backward at whose end the gradient of an input is there, by its position; empty for one."""
    noted: tuple[Condition, ...]
    """What was asked of symbolic sizes before plans were made."""
    symbolic_results: Results
    second_run: SecondRun
    forward: Half
    segments: Sequence[SegmentNode | ViewSegment]
    symbolic_whole: WholeBackward | None
    """The backward from the loss, where no segment has one of its own."""
    others: OtherBackwards
    kept: Sequence[tuple[str, int]]
    """The lines of the program whose values are kept for the backward, and their bytes."""
    computed_again: Sequence[tuple[str, int]]
    """The lines of which the backward computes operations again, and how many."""
    apart: str
    """Why each segment has a backward of its own, of a graph that was to have one from the loss; empty elsewhere."""
    fate: Fate = field(default_factory=Fate)

    def __post_init__(self) -> None:
        self.calls = 0
        """Those that were counted: the first few."""
        self.compiled_ns: int | None = None
        self.eager_ns: int | None = None
        """What forward and backward took, compiled and as ATen's operations, where that was measured."""
        self.results = self.symbolic_results.at(self.forward.sizes)
        self._have(self.forward.sizes)
        differentiable = {
            position for segment in self.segments if isinstance(segment, SegmentNode) for position in segment.inputs
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
        made._have(sizes)
        return made

    def _have(self, sizes: Sizes) -> None:
        self.segments = [segment.at(self, sizes) for segment in self.segments]
        self.whole = None if self.symbolic_whole is None else self.symbolic_whole.at(sizes)

    def halves(self) -> list[Half]:
        """The halves that every call may run, in order."""
        backwards = [each.symbolic_backward for each in self.segments if isinstance(each, CompiledSegment)]
        if self.symbolic_whole is not None:
            backwards += [stage.symbolic_backward for stage in self.symbolic_whole.stages]
        return [self.forward, *(backward.half for backward in backwards)]

    def assumed(self) -> tuple[Condition, ...]:
        """The conditions that sizes must meet."""
        of_halves = (condition for half in self.halves() for condition in half.compiled.conditions)
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
        if self.fate.is_divided:
            return self.others.divided(self)(*inputs)
        if self.calls <= CALLS:
            self.calls += 1
            if self.calls == CALLS:
                choose(self, self._by_plan, inputs)
        return self._by_plan(*inputs)

    def _by_plan(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        random = self.second_run.random_state()
        contents = self.second_run.contents(inputs, self.fate.in_doubt)
        is_enabled = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # a context takes two microseconds
        try:
            made = [*self.forward.run(inputs)]
        finally:
            torch._C._set_grad_enabled(is_enabled)
        for place, position in self.results.tied.items():
            made[place] = inputs[position]
        for place, writes in self.results.writes:
            for _ in range(writes - made[place]._version):
                torch._C._increment_version([made[place]])
        if is_enabled:
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
        watched: tuple[list[torch.Tensor], list[torch.Tensor]] = [], []
        results = self.results
        for segment in self.segments:
            if isinstance(segment, ViewSegment):
                for edge, position in zip(segment.outputs, segment.views):
                    crossing[edge] = results.view(position, inputs, made, views)
                    watched[1].append(crossing[edge])
                    if not self.written:
                        call.shown[edge] = shown(crossing[edge])
                continue
            from_inputs = [
                (call.inputs if position in segment.before else inputs)[position] for position in segment.inputs
            ]
            if have_hooks(from_inputs):
                from_inputs = one_by_one(from_inputs, segment.arrival)
            taken = [
                *from_inputs,
                *[crossing[edge] for edge in segment.borders],
                *[inputs[position] for position in segment.anew],
            ]
            if isinstance(segment, JoinedSegment) and segment.is_loss:
                call.watch = Watch(*watched)
                taken.append(leaf())
            given = tie(segment, call, inputs, made, *taken)
            watched[0].append(given[0])
            crossing.update(zip(segment.outputs, given))
            if not self.written:
                for edge, tensor in zip(segment.outputs, given[: len(segment.results)]):
                    call.shown[edge] = shown(tensor)
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


def _is_root(tensor: torch.Tensor) -> bool:
    """Whether eager refuses to write it where gradients are wanted."""
    return tensor.is_leaf and tensor.requires_grad
