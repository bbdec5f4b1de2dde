"""A graph that gradients are wanted of as plain data and back: all that `Differentiable` needs, a `KeptPlan` for each
half, and the half's operations for when ATen is to run it."""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch

from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.account.telling import tell_found
from framejit.backends.fuse.autograd_nodes.backward import Backward, Outgoing
from framejit.backends.fuse.autograd_nodes.differentiable import Differentiable, OtherBackwards
from framejit.backends.fuse.autograd_nodes.half import CompiledHalf, Half, Trial
from framejit.backends.fuse.autograd_nodes.node_watch import can_watch
from framejit.backends.fuse.autograd_nodes.results import Base, Results, Step, View
from framejit.backends.fuse.autograd_nodes.second_run import SecondRun
from framejit.backends.fuse.autograd_nodes.segment_nodes import CompiledSegment, Like, SegmentNode, ViewSegment
from framejit.backends.fuse.autograd_nodes.whole_backward import JoinedSegment, Stage, WholeBackward
from framejit.backends.fuse.cache.graph_record import read_graph, written_graph
from framejit.backends.fuse.cache.kept_plan import operation_of, read_kept
from framejit.backends.fuse.cache.plan_cache import find_record
from framejit.backends.fuse.cache.plan_key import NotCacheable
from framejit.backends.fuse.cache.value_record import ValueReader, ValueWriter
from framejit.backends.fuse.plan.symbolic_plan import SizedPlans


class TrainingWriter(ValueWriter):
    """The parts of a graph as plain data. Each raises NotCacheable for what can't be written."""

    def __init__(self) -> None:
        super().__init__(())

    def graph(self, graph: Differentiable) -> list[Any]:
        """The graph, but for what came to be known while it ran."""
        run = graph.second_run
        return [
            self.value(graph.torch_state), self.value(graph.default_dtype), graph.n_inputs,
            [*graph.written], self.results(graph.results),
            [[*map(str, run.devices)], *map(sorted, (run.written, run.looked_at, run.unkept)), run.draws],
            self.half(graph.forward),
            [self.segment(each) for each in graph.segments], self.whole(graph.symbolic_whole), [*graph.kept],
            [*graph.computed_again], graph.apart,
        ]

    def whole(self, whole: WholeBackward | None) -> list[Any]:
        """The backward from a loss; nothing where there is none."""
        if whole is None:
            return []
        stages = [
            [*map(list, (stage.saved, stage.tangents, stage.inputs, stage.handed_on)), self.backward(backward)]
            for stage in whole.stages
            for backward in [stage.symbolic_backward]
        ]
        return [whole.loss, stages]

    def results(self, results: Results) -> list[Any]:
        views = [
            [position, view.base.name, view.place, [*map(self.step, view.steps)], view.data]
            for position, view in results.views.items()
        ]
        return [
            results.n_returned, results.passed_on, results.places, views, results.tied, results.writes,
            results.differentiable_views,
        ]

    def step(self, step: Step) -> list[Any]:
        return [step.operation.name(), self.value(step.args), self.value(step.kwargs), step.number]

    def half(self, half: Half) -> list[Any]:
        if half.compiled.kept is None:
            raise NotCacheable("its graph is compiled for this process only")
        return [half.compiled.kept.written(), half.is_repeatable, marshal.dumps(written_graph(half.graph(), ()))]

    def backward(self, backward: Backward) -> list[Any]:
        """A backward of a segment."""
        out = backward.outgoing
        outgoing = [out.places, sorted(out.alone), out.pieces, out.parts, sorted(out.passed)]
        return [self.half(backward.half), outgoing, [*backward.strides]]

    def segment(self, segment: SegmentNode | ViewSegment) -> list[Any]:
        if isinstance(segment, ViewSegment):
            return [[*segment.outputs], [*segment.views]]
        common = [
            segment.number, [*segment.saved], [*segment.watched], segment.keeps, segment.has_function,
            [None if like is None else [*map(self.value, like)] for like in segment.like],
            *map(list, (segment.places, segment.outputs, segment.borders, segment.results, segment.inputs)),
            [*segment.arrival], [*segment.leaving], [*segment.written], sorted(segment.before), [*segment.anew],
        ]
        if isinstance(segment, JoinedSegment):
            return [common, segment.stage, [*segment.owned], segment.is_loss]
        assert isinstance(segment, CompiledSegment)
        return [common, segment.symbolic_usual, self.backward(segment.symbolic_backward), None, None]


class TrainingReader(ValueReader):
    """The parts that a `TrainingWriter` wrote."""

    def __init__(self, account: CompiledGraph, module: Any) -> None:
        """`account`: of the graph that `module` has the operations of."""
        super().__init__(None)
        self._account, self._module = account, module
        self._of_backwards: dict[int, CompiledGraph] = {}

    def graph(self, data: Sequence[Any], learnt: Sequence[Trial], others: OtherBackwards) -> Differentiable:
        """The graph, with what is known of each half's first run. Raises NotCacheable where a plan is gone or not for
        this process, BadRecord, and whatever data that is none leads to."""
        state, dtype, n_inputs, written, results, run, forward, segments, whole, kept, again, apart = data
        trials = chain(learnt, iter(Trial, None))  # of the rest nothing is known
        devices, changed, looked_at, unkept, draws = run
        eager = self._module.forward
        torch_state = self.value(state)
        second_run = SecondRun(
            eager, torch_state, tuple(map(torch.device, devices)), frozenset(changed), frozenset(looked_at), draws,
            frozenset(unkept),
        )
        half = self.half(forward, self._account, next(trials))
        parts = [self.segment(each, trials) for each in segments]
        from_loss = self.whole(whole, trials) if whole else None
        made = Differentiable(
            eager, [self._account, *self._of_backwards.values()], torch_state, self.value(dtype), n_inputs,
            written, {}, (), self.results(results), second_run, half, parts, from_loss, others, kept, again, apart,
        )
        made.fate.runs_as_aten = half.is_repeatable and bool(half.trial.differences)
        return made

    def results(self, data: list[Any]) -> Results:
        n_returned, passed_on, places, views, tied, writes, differentiable_views = data
        read = {
            position: View(Base[base], place, [*map(self.step, steps)], counted)
            for position, base, place, steps, counted in views
        }
        return Results(n_returned, passed_on, places, read, tied, writes, differentiable_views)

    def step(self, data: list[Any]) -> Step:
        name, args, kwargs, number = data
        return Step(operation_of(name), self.value(args), self.value(kwargs), number)

    def half(self, data: list[Any], account: CompiledGraph, trial: Trial) -> Half:
        text, is_repeatable, graph = data
        kept = read_kept(text)
        with torch.no_grad(), torch._C._DisableAutocast():
            key = kept.key_now()
            found = None if key is None else find_record(key, account)
            if found is None:
                raise NotCacheable("the plan of a half is not in the cache, or not for this process")
            tell_found(account, found.record)
            plans = SizedPlans(found.record.parts, found.launches, account.name)
            compiled = CompiledHalf(plans.plan_for, found.conditions, kept)
            return Half(
                lambda: read_graph(marshal.loads(graph), kept.tensors(), None), is_repeatable, compiled, {}, trial
            )

    def backward(self, data: list[Any], segment: int, trial: Trial) -> Backward:
        """A backward of the segment of this number."""
        if segment not in self._of_backwards:
            self._of_backwards[segment] = self._account.of_backward(len(self._of_backwards))
        half, (places, alone, pieces, parts, passed), strides = data
        outgoing = Outgoing(places, frozenset(alone), pieces, parts, frozenset(passed))
        return Backward(self.half(half, self._of_backwards[segment], trial), outgoing, strides)

    def segment(self, data: list[Any], trials: Iterator[Trial]) -> SegmentNode | ViewSegment:
        if len(data) == 2:
            return ViewSegment(*data)
        number, saved, watched, keeps, has_function, like, *rest, before, anew = data[0]
        likes = [None if each is None else Like(*map(self.value, each)) for each in like]
        common = [number, saved, watched, keeps, has_function, likes, *rest, frozenset(before), anew]
        if len(data) == 4:
            return JoinedSegment(*common, *data[1:])
        return CompiledSegment(*common, *[data[1], self.backward(data[2], number, next(trials))])

    def whole(self, data: list[Any], trials: Iterator[Trial]) -> WholeBackward:
        """The backward from a loss."""
        loss, stages = data
        if not can_watch():
            raise NotCacheable("hooks on nodes of autograd can't be seen in this process")
        read = []
        for number, (saved, tangents, inputs, handed_on, backward) in enumerate(stages):
            read.append(Stage(saved, tangents, inputs, handed_on, self.backward(backward, number, next(trials))))
        return WholeBackward(loss, read)
