"""A graph that gradients are wanted of, made ready to run: what was recorded of it, parted and compiled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx

from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.account.telling import tell_divided
from framejit.backends.fuse.autograd_nodes.backward import Backward, Given, Outgoing
from framejit.backends.fuse.autograd_nodes.differentiable import Differentiable, OtherBackwards
from framejit.backends.fuse.autograd_nodes.half import CompiledHalf, Half, Sizes, sizes_now
from framejit.backends.fuse.autograd_nodes.node_watch import can_watch
from framejit.backends.fuse.autograd_nodes.segment_nodes import CompiledSegment, Like, SegmentNode, ViewSegment
from framejit.backends.fuse.autograd_nodes.segments import Edge, Segment
from framejit.backends.fuse.cache.plan_key import SymbolicSizes
from framejit.backends.fuse.graph.entrances import Entrance
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.record import check_inputs
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.lowering.library_results import other_results
from framejit.backends.fuse.not_fusable import NeedsGradients, NotFusable
from framejit.backends.fuse.sizes.by_size import holds
from framejit.backends.fuse.sizes.symbolic_size import as_sizes
from framejit.backends.fuse.thread_state import restore, restored_thread_state, thread_state
from framejit.backends.fuse.training.assemble_joined import joined_nodes, whole_backward
from framejit.backends.fuse.training.buckets import Buckets
from framejit.backends.fuse.training.joint import Recorded
from framejit.backends.fuse.training.keeping import is_lowered
from framejit.backends.fuse.training.kept_by_eager import results_behind, watched
from framejit.backends.fuse.training.partition import BackwardPart, Partition, parted
from framejit.backends.fuse.training.recorded_layers import recorded_layers
from framejit.backends.fuse.training.what_is_looked_at import second_run_of
from framejit.backends.graph_identity import ACTIVATION_MEMORY
from framejit.config import config
from framejit.environment.signal_handlers import SignalsWait
from framejit.events import warn
from framejit.guards.saved_tensor_hooks import without_saved_tensor_hooks
from framejit.late_dataclass import dataclass
from framejit.symbols.conditions import Condition
from framejit.symbols.expression import Symbol

Compiles = Callable[[Graph, int | None, SymbolicSizes | None], Callable[[], CompiledHalf]]
"""Begins to compile a graph, given the number of the segment whose backward it is, and the sizes that are symbolic;
what it gives ends that."""


Divide = Callable[[], Differentiable]
"""Compiles a graph again, with a backward for each of its segments."""


def assembled(
    gm: fx.GraphModule, entrances: Sequence[Entrance], compiles: Compiles, accounts: Sequence[CompiledGraph],
    symbolic_sizes: SymbolicSizes | None = None, buckets: Buckets | None = None, divide: Divide | None = None,
    examples: Sequence[torch.Tensor] | None = None, apart: str = "",
) -> Differentiable:
    """Record, part and compile a graph. `accounts`: of forward and backwards, to which those are added that `compiles`
    meets. `divide`: what compiles it otherwise where segments that lead to a loss are joined; None if they are not to
    be. `examples`: inputs, to be looked at where they were not before. `apart`: as `Differentiable` has it, where that
    is known before. Raises NotFusable where the graph has to run as ATen."""
    made = _Assembly(gm, entrances, compiles, symbolic_sizes, buckets, divide, examples)
    try:
        return made.made(accounts, apart)
    except NeedsGradients as e:
        if made.recorded.joined is None:
            raise
        # of its own each segment may have a backward where all together have none
        return _Assembly(gm, entrances, compiles, symbolic_sizes, buckets, None).made(accounts, str(e))


class _Assembly:
    """What the parts of one graph are made of."""

    def __init__(
        self, gm: fx.GraphModule, entrances: Sequence[Entrance], compiles: Compiles,
        symbolic_sizes: SymbolicSizes | None, buckets: Buckets | None, divide: Divide | None,
        examples: Sequence[torch.Tensor] | None = None,
    ) -> None:
        """`examples`: as `assembled` has them."""
        self.gm, self.compiles, self.symbolic_sizes, self.buckets = gm, compiles, symbolic_sizes, buckets
        self.torch_state, self.default_dtype = thread_state(), torch.get_default_dtype()
        self.entrances, self.divide = entrances, divide
        conditions = None if symbolic_sizes is None else symbolic_sizes.conditions
        joins = divide is not None and can_watch()
        layers = None
        if conditions is None and buckets is None and examples is not None:
            layers = recorded_layers(gm, examples, entrances, joins)
        self.recorded = layers or Recorded(gm, entrances, conditions, buckets, joins)
        if layers is None and examples is not None:
            check_inputs(self.recorded.graph, examples)
        self.second_run = second_run_of(self.recorded, gm, self.torch_state)

    def made(self, accounts: Sequence[CompiledGraph], apart: str = "") -> Differentiable:
        """`apart`: as `Differentiable` has it. Raises NotFusable."""
        recorded = self.recorded
        partition = parted(recorded.joint(), share=self.gm.meta.get(ACTIVATION_MEMORY, 1.0))
        numbers, sources = _numbers([*recorded.nodes, *recorded.segments]), _sources(partition)
        segments: list[SegmentNode | ViewSegment] = []
        if recorded.joined is not None:
            segments = joined_nodes(recorded, partition, sources, numbers)
        # its kernels are compiled while the backward is lowered
        forward = begun_half(
            partition.forward, partition.forward_nodes, self.compiles, None, self.symbolic_sizes,
            len(partition.joint.outputs),
        )
        kept: dict[int, list[int]] = {}
        whole = None
        if recorded.joined is not None:
            whole = whole_backward(recorded, partition, sources, numbers, self._backward_of)
        for number, segment in enumerate(recorded.segments if recorded.joined is None else ()):
            part = partition.backwards.get(number)
            if part is None:
                outputs = [numbers[edge] for edge in segment.outputs]
                segments.append(ViewSegment(outputs, recorded.view_positions(segment)))
            else:
                kept[number] = part.joint.numbers(part.saved)
                segments.append(self._segment(number, part, sources, numbers))
        half = forward()
        # writing kernels assumes something of sizes
        conditions = () if self.symbolic_sizes is None else self.symbolic_sizes.conditions.taken()
        return Differentiable(
            self.gm.forward, accounts, self.torch_state, self.default_dtype, recorded.n_inputs,
            recorded.written, recorded.stages, conditions, recorded.plain_results(), self.second_run, half, segments,
            whole, RecordedBackwards(self, kept), partition.kept_by_line(), partition.computed_again_by_line(), apart,
        )

    def _segment(
        self, number: int, part: BackwardPart, sources: dict[Value, tuple[bool, int]], numbers: dict[Edge, int]
    ) -> CompiledSegment:
        """`sources`: where values are found when the graph runs: whether among its inputs, or else in what the forward
        plan gives, and the position there. Raises NeedsGradients where one comes out of a later node of autograd."""
        recorded = self.recorded
        segment, like, tied = recorded.segments[number], recorded.like[number], recorded.results.tied
        saved = [sources[value] for value in part.saved]
        behind = results_behind(recorded, number)
        if any(not is_input and position in behind for is_input, position in saved):
            raise NeedsGradients("its backward looks at a result that others lead to")
        usual, n_inputs, found = recorded.usual(number), recorded.n_inputs, part.backward.gradients
        inputs = [position for position, gradient in enumerate(found[:n_inputs]) if gradient is not None]
        handed_back = [place for place, gradient in enumerate(found[n_inputs:]) if gradient is not None]
        leaving = [*inputs, *(n_inputs + place for place in handed_back)]
        if not leaving:
            raise NeedsGradients("no gradient goes from a result to what it was made of")
        results = [recorded.differentiable[number] for number in segment.results]
        written = [place for place in results if place in tied]
        own = {tied[place] for place in written}
        return CompiledSegment(
            number, saved, watched(recorded, number, saved), bool(saved) or segment.keeps,
            segment.has_function,
            [None if each is None else Like(as_sizes(each.shape), each.dtype, each.device) for each in like],
            [place for place, _ in usual], [numbers[segment.outputs[place]] for place, _ in usual],
            [numbers[segment.borders[place]] for place in handed_back], results, inputs,
            recorded.arrival(inputs), leaving, written,
            frozenset(position for position in tied.values() if position not in own),
            [position for position in own if position not in inputs],
            tuple((place, as_sizes(strides)) for place, strides in usual), self._backward_of(part, leaving),
        )

    def _backward_of(self, part: BackwardPart, leaving: Sequence[int]) -> Backward:
        return backward_of(part, leaving, self.compiles, self.symbolic_sizes)

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


def _numbers(segments: Sequence[Segment]) -> dict[Edge, int]:
    """A number for each tensor that segments give or take."""
    edges = [edge for segment in segments for edge in (*segment.outputs, *segment.borders)]
    return {edge: number for number, edge in enumerate(dict.fromkeys(edges))}


def _sources(partition: Partition) -> dict[Value, tuple[bool, int]]:
    joint = partition.joint
    sources = {value: (True, position) for position, value in enumerate(joint.inputs)}
    sources.update(
        (value, (False, position))
        for position, value in enumerate([*joint.outputs, *partition.made()])
        if isinstance(value, Value)
    )
    sources.update((content, (True, joint.inputs.index(value))) for content, value in joint.contents().items())
    return sources


def begun_half(
    graph: Callable[[], Graph], nodes: Sequence[Node], compiles: Compiles, segment: int | None,
    symbolic_sizes: SymbolicSizes | None, n_seen: int | None = None,
) -> Callable[[], Half]:
    """Begin to compile a half, whose graph `graph` gives; what is given ends that.

    segment: The number of the segment whose backward it is.
    n_seen: How many of the results are the program's, the others being kept for backwards; None for all.
    """
    is_repeatable = not any(node.ordered or node.writes for node in nodes)
    compiled = compiles(graph(), segment, symbolic_sizes)
    others = partial(other_results, nodes, is_lowered)
    return lambda: Half(
        graph, is_repeatable, compiled(), sizes_now(symbolic_sizes), n_seen=n_seen, other_results=others
    )


def backward_of(
    part: BackwardPart, leaving: Sequence[int], compiles: Compiles, symbolic_sizes: SymbolicSizes | None
) -> Backward:
    """Compile the backward of a segment. `leaving`: which gradients go out."""
    gradients = [part.backward.gradients[place] for place in leaving]
    order = {
        value: place for place, value in enumerate(dict.fromkeys(value for value in gradients if value is not None))
    }
    tangents = [value.storage for value in part.backward.tangents]
    outgoing = Outgoing(
        [None if value is None else order[value] for value in gradients],
        frozenset(place for value, place in order.items() if value.storage.first is value),
        [
            place
            for value, place in order.items()
            if value.base is not None and value.numel() < value.storage.first.numel()
        ],
        {place: tangents.index(value.storage) for value, place in order.items() if value.storage in tangents},
        frozenset(place for value, place in order.items() if value in part.backward.tangents),
    )
    half = begun_half(part.graph, part.nodes, compiles, part.backward.segment, symbolic_sizes)
    return Backward(half(), outgoing, [as_sizes(value.strides) for value in part.backward.tangents])


@dataclass(frozen=True)
class SymbolicBackward:
    """A backward of a segment for gradients that come otherwise than usual, and for all sizes that meet conditions."""

    segment: int
    orders: tuple[tuple[int, tuple[int, ...] | None], ...]
    """The outputs that gradients come to, by their places, and how the dimensions of these lie in memory; None for as
    usual."""
    symbols: tuple[Symbol, ...]
    conditions: tuple[Condition, ...]
    backward: Backward


class RecordedBackwards(OtherBackwards):
    """Compiles backwards of segments for gradients that come otherwise than usual. `kept`: by segment, the numbers of
    what is kept for its backward."""

    def __init__(self, assembly: _Assembly, kept: dict[int, list[int]]) -> None:
        super().__init__()
        self._assembly, self._kept = assembly, kept
        self._lock = threading.Lock()
        self._symbolic: list[SymbolicBackward] = []

    def divided(self, graph: Differentiable) -> Callable[..., tuple[Any, ...]]:
        """Compiled when it is first asked for. With symbolic sizes, which would have to meet other conditions, and
        where that fails, it is the operations."""
        with SignalsWait(), without_saved_tensor_hooks(), self._lock:
            if self.divided_graph is None:
                self.divided_graph = self._compiled_divided(graph)
                self.tell()
            return self.divided_graph

    def _compiled_divided(self, graph: Differentiable) -> Callable[..., tuple[Any, ...]]:
        made, account = self._assembly, graph.accounts[0]
        if made.divide is None or made.symbolic_sizes is not None:
            tell_divided(account, "sizes are left open")
            return graph.as_aten
        try:
            with restored_thread_state():
                restore(made.torch_state)
                divided = made.divide()
        except NotFusable as e:
            tell_divided(account, str(e))
            return graph.as_aten
        except Exception as e:  # in the midst of the program
            if config.debug:
                raise
            warn(
                "a graph could not be compiled with a backward for each of its results, and runs as ATen: "
                f"{type(e).__name__}: {e}"
            )
            return graph.as_aten
        tell_divided(account, "")
        graph.accounts = divided.accounts
        return divided

    def find(self, segment: CompiledSegment, given: Given) -> Backward:
        """The backward for these gradients. Where that one would look at what is not kept, it is the one for gradients
        that lie as usual, and then for all outputs."""
        found = self._possible(segment, given)
        self.note(segment, given, found)
        return found

    def _possible(self, segment: CompiledSegment, given: Given) -> Backward:
        strides = dict(segment.usual)
        for each in (given, tuple((place, strides[place]) for place, _ in given)):
            try:
                return self._compiled(segment, each) if not segment.sizes else self._compiled_symbolic(segment, each)
            except NotFusable:
                continue
            except Exception as e:  # in the midst of the program's backward
                if config.debug:
                    raise
                warn(
                    "a backward for gradients that come otherwise than usual could not be compiled, and the usual one "
                    f"runs: {type(e).__name__}: {e}"
                )
        return segment.usual_backward()

    def _compiled(self, segment: CompiledSegment, given: Given) -> Backward:
        made = self._assembly
        part = parted(made.recorded.joint_of(segment.number, given), self._kept[segment.number])
        return backward_of(part.backwards[segment.number], segment.leaving, made.compiles, None)

    def _compiled_symbolic(self, segment: CompiledSegment, given: Given) -> Backward:
        """Where sizes are symbolic: one that was made for other sizes will do if these are like them."""
        usual, number, made = dict(segment.usual), segment.number, self._assembly
        orders = tuple((place, None if strides == usual[place] else _order_of(strides)) for place, strides in given)
        values = tuple(segment.sizes.values())
        for known in self._symbolic:
            sizes = dict(zip(known.symbols, values))
            is_like = known.segment == number and known.orders == orders
            if is_like and all(holds(each, sizes) for each in known.conditions):
                return known.backward.at(sizes)
        recorded, symbolic_sizes = made.recorded_for(segment.sizes)
        symbolic_usual, like = dict(recorded.usual(number)), recorded.like[number]
        coming = tuple(
            (place, symbolic_usual[place] if order is None else _strides_in(order, like[place].shape))
            for place, order in orders
        )
        part = parted(recorded.joint_of(number, coming), self._kept[number]).backwards[number]
        backward = backward_of(part, segment.leaving, made.compiles, symbolic_sizes)
        conditions = tuple(dict.fromkeys([*symbolic_sizes.conditions.taken(), *backward.half.compiled.conditions]))
        self._symbolic.append(SymbolicBackward(number, orders, symbolic_sizes.symbols, conditions, backward))
        return backward


def _order_of(strides: Sequence[int]) -> tuple[int, ...]:
    """The dimensions as they lie in memory, the outermost first."""
    return tuple(sorted(range(len(strides)), key=lambda dim: (-strides[dim], dim)))


def _strides_in(order: Sequence[int], shape: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of a tensor that fills its memory, with its dimensions in this order."""
    strides: list[Any] = [1] * len(order)
    for outer, inner in zip(order[-2::-1], order[:0:-1]):
        strides[outer] = strides[inner] * shape[inner]
    return tuple(strides)
