"""Forward and backward of a captured graph in one recorded graph.

The captured graph's nodes are run on fakes with autograd on, and autograd's own nodes are run backwards from there,
while a dispatch mode below autograd writes down what arrives. So the gradient formulas are eager's, whatever they are,
and so is what they refer to.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from itertools import compress
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import fx
from torch.autograd.graph import GradientEdge
from torch.utils._python_dispatch import _disable_current_modes

from framejit.backends.fuse.autograd_nodes.backward import Given
from framejit.backends.fuse.autograd_nodes.gradient_edges import gradient_edges
from framejit.backends.fuse.autograd_nodes.leaf_order import ends_in_order
from framejit.backends.fuse.autograd_nodes.results import Base, Results
from framejit.backends.fuse.autograd_nodes.segments import Edge, Segment, by_node, check_apart, gradients
from framejit.backends.fuse.graph.entrances import Entrance
from framejit.backends.fuse.graph.extract import extracted
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.origin import UNKNOWN, Origin
from framejit.backends.fuse.graph.passes.functionalise import functionalise
from framejit.backends.fuse.graph.passes.pass_context import Context
from framejit.backends.fuse.graph.passes.philox import drawings, with_random_numbers_of_kernels
from framejit.backends.fuse.graph.record import Recorder, Run
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.lowering.accepted import accepts
from framejit.backends.fuse.lowering.whole import keeps
from framejit.backends.fuse.not_fusable import NeedsGradients, NotFusable
from framejit.backends.fuse.thread_state import restored_thread_state
from framejit.backends.fuse.training.buckets import Buckets, stages_of
from framejit.backends.fuse.training.channels_last import channels_last
from framejit.backends.fuse.training.decompositions import DECOMPOSITIONS
from framejit.backends.fuse.training.joining import joined
from framejit.backends.fuse.training.recorded_results import RecordedResults
from framejit.backends.fuse.training.recorder import TrainingRecorder
from framejit.backends.fuse.training.traced_function import TracedFunction
from framejit.backends.graph_identity import SAME_RANDOM_NUMBERS
from framejit.backends.may_raise import may_warn, operation_name
from framejit.backends.opaque_call import FunctionCall, TransformCall
from framejit.fakes.arguments import tensors_in
from framejit.fakes.data_sizes import is_of_data
from framejit.fakes.light_torch import light
from framejit.fakes.python_decompositions import python_decompositions
from framejit.late_dataclass import dataclass
from framejit.symbols.conditions import Conditions

NO_UNITS: Final[Mapping[fx.Node, int]] = MappingProxyType({})
UNCHECKED_PARTS: Final = frozenset(("one_hot",))
"""Composite operations that raise for numbers; of them only parts arrive below autograd."""
KEEPING: Final = frozenset(("mkldnn_rnn_layer",))
"""Operations that ask the thread whether gradients are wanted, and leave undefined what their backward takes if not, as
below autograd; nor do fakes know how much they keep. The first run would find that out, and ATen would do all others,
but the first run of a graph that writes or draws random numbers is the program's own: it can't be taken back."""

Rank = tuple[float, float, float]
"""Gradients come first to the input of the least."""


@dataclass(frozen=True)
class SegmentBackward:
    """The backward of a segment, in a joint graph."""

    segment: int
    tangents: list[Value]
    """The gradients that come in."""
    gradients: list[Value | None]
    """The gradients that go out, if there are any: for each input, and behind them for each border of the segment."""


@dataclass(frozen=True)
class JointGraph:
    """A forward and the backward of some of its segments in one graph without writes but those into inputs at the
    end."""

    graph: Graph
    """Its inputs are those of the forward, and behind them gradients that come in. Backward operations stand behind
    those of the forward."""
    inputs: list[Value]
    outputs: list[Any]
    """What the forward plan gives."""
    backwards: list[SegmentBackward]
    copied: dict[Value, Value]
    """What eager's backward looks at where this one looks at a copy of it in another memory layout."""

    def contents(self) -> dict[Value, Value]:
        """The values that written inputs hold at the end, each with its input."""
        return {
            node.args[1]: node.args[0]
            for node in self.graph.nodes
            if node.writes and isinstance(node.args[1], Value) and node.args[0] in self.inputs
        }

    def numbers(self, values: Iterable[Value]) -> list[int]:
        """The numbers of inputs, and of results of forward operations; the same for each backward of one forward."""
        known = {value: number for number, value in reversed([*enumerate(self._forward_values())])}
        return [known[value] for value in values]

    def values(self, numbers: Iterable[int]) -> list[Value]:
        """The inputs and results of these numbers."""
        known = self._forward_values()
        return [known[number] for number in numbers]

    def _forward_values(self) -> list[Value]:
        return [
            *self.inputs,
            *(value for node in self.graph.nodes if not node.origin.is_backward for value in node.results),
        ]


class Recorded:
    """The recorded forward of a captured graph, ready to record the backward of its segments for whichever outputs
    gradients come to."""

    def __init__(
        self, gm: fx.GraphModule, entrances: Sequence[Entrance], conditions: Conditions | None = None,
        buckets: Buckets | None = None, joins: bool = False, unit_of: Mapping[fx.Node, int] = NO_UNITS
    ) -> None:
        """`entrances`: of the inputs. `conditions`: take down what is asked of symbolic sizes. `buckets`: which
        gradients are wanted before the backward is over. `joins`: whether segments are joined that lead to a loss.
        `unit_of`: the unit alike of each captured node that is part of one. Raises NotFusable for what can't be written
        down, or must be seen by autograd operation by operation."""
        run = _ForwardRun(gm, entrances, conditions, unit_of)
        with restored_thread_state(), light():
            self.graph = run.run()
        self.recorder, self.inputs, self.results = run.recorder, run.fakes, run.results
        self.n_inputs = len(self.inputs)
        """Of the whole graph, as all positions that are asked for are."""
        self.needed, self._ends = run.needed, run.ends
        self.drawing = [] if gm.meta.get(SAME_RANDOM_NUMBERS) else [node for node, _ in drawings(self.graph)]
        """The operations in whose place kernels make random numbers, in order."""
        self.differentiable = self.results.differentiable()
        """Where the plan gives what gradients may come to."""
        changed = {value.storage for node in self.graph.nodes for value in node.writes}
        self.written = [place for place, fake in enumerate(self.inputs) if self.recorder.value(fake).storage in changed]
        """The positions of inputs that are written."""
        self._refuse(changed)
        returned = self.results.returned
        roots = [*self.results.autograd_roots(self.inputs, returned).values(), *self.results.views_among(returned)]
        self._roots = roots
        self.stages = {} if buckets is None else stages_of(buckets, self.inputs, roots)
        """The stage of the backward at whose end the gradient of an input is there, by its position."""
        stages = by_node(self.stages, self.inputs)
        with light():  # what nodes of autograd keep is detached fakes
            self.nodes = self.results.segments(self.inputs, returned, self._ends, stages)
        """The segments of which each is a node of autograd."""
        # such an input may be written by the next part of a program, and a number between two parts is rarely a loss
        joins = joins and not self.results.tied and all(self.inputs[place].is_leaf for place in self.unkept())
        self.joined = joined(self.nodes, self._is_loss, self._position) if joins else None
        self.segments = self.nodes if self.joined is None else self.joined.stages
        """Those of which each has a backward."""
        self.order = [*range(len(self.nodes))] if self.joined is None else self.joined.order
        """The numbers of the nodes, in the order in which they are made."""
        check_apart(self.segments)
        if any(
            node.target is torch.autograd.grad or isinstance(node.target, TransformCall) for node in gm.graph.nodes
        ):
            self._check_asked()
        for segment in self.nodes:
            if segment.is_view:
                self.view_positions(segment)
        with _on_fakes(self.graph), light():
            self.results.check()
        self.like = [self._like(segment) for segment in self.segments]
        """For each output of each segment what gradients that come to it look like; None where none come."""

    def positions(self, found: Iterable[int]) -> list[int]:
        """The positions in the whole graph of inputs of the one that was recorded."""
        return [*found]

    def leaves_of(self, segment: Segment) -> list[int]:
        """The positions of the inputs that gradients go to straight from a segment."""
        ends = self._ends_of_inputs
        return sorted(self.positions(ends[leaf] for leaf in segment.leaves if leaf in ends))

    def arrival(self, inputs: Sequence[int]) -> list[int]:
        """The places of some inputs, in the order in which gradients come to these in eager."""
        ranks = self.ranks
        return sorted(range(len(inputs)), key=lambda place: ranks[inputs[place]])

    @cached_property
    def ranks(self) -> Sequence[Rank]:
        """For each input of the whole graph what tells when gradients come to it."""
        ends = self._ends_of_inputs
        with light():
            order = {
                ends[end]: place for place, end in enumerate(ends_in_order(self._roots, self._ends)) if end in ends
            }
        return self.spread_ranks([(order.get(place, 0), 0, 0) for place in range(len(self.inputs))])

    def spread_ranks(self, ranks: Sequence[Rank]) -> Sequence[Rank]:
        """Of the inputs of what was recorded, for each of the whole graph's."""
        return ranks

    @cached_property
    def _ends_of_inputs(self) -> dict[Any, int]:
        places = [place for place, each in enumerate(self.inputs) if each.requires_grad]
        with light():
            edges = gradient_edges([self.inputs[place] for place in places])
        return {edge.node: place for edge, place in zip(edges, places)}

    def plain_results(self) -> Results:
        """Where the results of the whole graph come from."""
        return self.results.plain()

    def whole(self, recorded: Sequence[SegmentBackward]) -> tuple[Graph, list[int]]:
        """A graph of its own of what was recorded, which returns the gradients of backwards behind the results; and the
        positions of the gradients that come in to these."""
        raw = self.graph
        outputs = [*raw.outputs, *(gradient for backward in recorded for gradient in backward.gradients)]
        made = extracted(raw, raw.inputs, raw.names, raw.nodes, outputs, raw.counted_writes)
        return made, [raw.inputs.index(tangent) for backward in recorded for tangent in backward.tangents]

    def unkept(self) -> list[int]:
        """The positions, among the inputs of what was recorded, of those that eager's autograd keeps for none of its
        nodes: the program may write into these before the backward, and nothing differs."""
        kept = {storage for segment in self.nodes for storage in segment.kept}
        return [place for place, fake in enumerate(self.inputs) if fake.untyped_storage()._cdata not in kept]

    def _like(self, segment: Segment) -> list[Any]:
        if segment.is_view:
            return [None] * len(segment.outputs)
        results = [self.results.given[self.differentiable[number]] for number in segment.results]
        return results + [None] * (len(segment.outputs) - len(results))

    def _is_loss(self, number: int) -> bool:
        """Whether a result is a single number, which a backward may begin at."""
        if number >= len(self.differentiable):
            return False
        given = self.results.given[self.differentiable[number]]
        return given.dim() == 0 and given.is_floating_point()

    def _position(self, number: int) -> float:
        """Where a result stands among those of the graph, or else behind them."""
        if number >= len(self.differentiable):
            return self.results.differentiable_views[number - len(self.differentiable)]
        places = self.results.places.items()
        return min((at for at, place in places if place == self.differentiable[number]), default=math.inf)

    def _refuse(self, changed: set[Any]) -> None:
        """Raises NeedsGradients for what autograd knows more of than nodes of ours can say. `changed`: storages that
        are written."""
        if any(may_warn(node.operation, *node.fake_arguments()) for node in self.graph.nodes):
            raise NeedsGradients("an operation may warn, which the program's line is to be told of")
        if any(node.operation._opname in KEEPING for node in self.graph.nodes):
            raise NeedsGradients("an operation keeps for its backward what only its library knows")
        if any(fake._is_view() for fake in self.results.roots if isinstance(fake, torch.Tensor)):
            raise NeedsGradients("a result is a view of what is not known")
        if any(self.results.roots[place].is_leaf for place in self.differentiable):
            raise NeedsGradients("a result that is made inside asks for gradients of its own")
        if not all(_has_history(self.results.returned[place]) for place in self.results.differentiable_views):
            raise NeedsGradients("a view asks for gradients of its own")

    def _check_asked(self) -> None:
        """Raises NeedsGradients where a graph that asks for gradients may be divided otherwise when it is run again:
        the formulas of some look at numbers, which fakes have not, and take others then."""
        views = self.results.differentiable_views
        if sum(not segment.is_view for segment in self.nodes) > 1 or any(
            self.results.views[position].base is Base.GIVEN for position in views
        ):
            raise NeedsGradients("it gives several results that lead to gradients that captured code asks for")

    def usual(self, segment: int) -> Given:
        """Gradients that come to all outputs of a segment, and lie as these do."""
        return tuple((place, like.stride()) for place, like in enumerate(self.like[segment]) if like is not None)

    def view_positions(self, segment: Segment) -> list[int]:
        """Where the views stand that a segment of views gives, as `Results` counts them: its results, and what other
        segments take."""
        results = self.results
        positions = [results.differentiable_views[number - len(self.differentiable)] for number in segment.results]
        return positions + [results.position_of(edge) for edge in segment.outputs[len(positions) :]]

    def forward(self) -> list[Any]:
        """The operations of the forward."""
        return [node.operation for node in self.graph.nodes if not node.origin.is_backward]

    def joint(self) -> JointGraph:
        """The graph with the backward of all segments, for gradients that come to all outputs."""
        recorded = []
        # what a segment hands to others is known from what these hand back
        for number in reversed([number for number, segment in enumerate(self.segments) if not segment.is_view]):
            backward, found = self._backward(number, self.usual(number))
            for edge, gradient in zip(self.segments[number].borders, found):
                self._hands_back(edge, gradient)
            recorded.append(backward)
        return self._joined(recorded)

    def joint_of(self, segment: int, given: Given) -> JointGraph:
        """The graph with the backward of one segment for these gradients."""
        return self._joined([self._backward(segment, given)[0]])

    def _hands_back(self, edge: Edge, gradient: torch.Tensor | None) -> None:
        """Note what the gradient of a border looks like, where the segment that it comes out of does not know that
        yet."""
        for segment, like in zip(self.segments, self.like):
            if edge in segment.outputs:
                place = segment.outputs.index(edge)
                like[place] = gradient if like[place] is None else like[place]

    def _joined(self, recorded: Sequence[SegmentBackward]) -> JointGraph:
        (graph, incoming), n_results = self.whole(recorded), len(self.graph.outputs)
        if self.drawing:
            graph = with_random_numbers_of_kernels(graph)
        graph, copied = channels_last(functionalise(graph, Context(None, ())))
        tangents = iter([graph.inputs[position] for position in incoming])
        leaving = iter(graph.outputs[n_results:])
        backwards = [
            SegmentBackward(
                backward.segment,
                [next(tangents) for _ in backward.tangents],
                [next(leaving) for _ in range(self.n_inputs + len(backward.gradients) - len(self.inputs))],
            )
            for backward in recorded
        ]
        return JointGraph(graph, graph.inputs[: self.n_inputs], graph.outputs[:n_results], backwards, copied)

    def _backward(self, number: int, given: Given) -> tuple[SegmentBackward, list[torch.Tensor | None]]:
        """Record the backward of a segment. With it, the fakes of the gradients of its borders."""
        leaves = [needed for needed in self.needed if needed is not None]
        graph, recorder, segment, like = self.graph, self.recorder, self.segments[number], self.like[number]
        tangents: list[Any] = [None] * len(segment.outputs)
        with restored_thread_state(), light(), torch._C._DisableAutocast():
            with _on_fakes(graph):
                for place, strides in given:
                    tangents[place] = torch.empty_strided(
                        like[place].shape, strides, dtype=like[place].dtype, device=like[place].device
                    )
            incoming = [recorder.value(tangents[place]) for place, _ in given]
            graph.names += [f"tangent{len(graph.inputs) - len(self.inputs) + place}" for place in range(len(incoming))]
            graph.inputs += incoming
            recorder.is_backward = True
            try:
                with _recording(recorder), torch.autograd.set_multithreading_enabled(False), torch.enable_grad():
                    found = gradients(segment, tangents, leaves)
            except NotFusable:
                raise
            except Exception as e:
                # what cannot be done with symbolic sizes may be done with known ones
                raise (NeedsGradients if graph.conditions is None else NotFusable)(
                    f"its backward on fakes raises {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
                ) from e
            finally:
                recorder.is_backward = False
        views = {result.storage for _, result in recorder.resolved}
        to_leaves = [fake for fake in found[: len(leaves)] if fake is not None and fake.is_complex()]
        if any(recorder.known(fake).storage in views for fake in to_leaves):
            raise NeedsGradients("a gradient is only a view as conjugate or negative")
        of_leaves, of_borders = iter(found[: len(leaves)]), found[len(leaves) :]
        outgoing = [None if needed is None else next(of_leaves) for needed in self.needed] + of_borders
        known = {*graph.inputs, *graph.constants}
        if any(value.maker is None and value not in known for node in graph.nodes for value in node.values()):
            raise NeedsGradients("autograd works with a tensor that was not seen to be made")
        return SegmentBackward(
            number, incoming, [None if fake is None else recorder.known(fake) for fake in outgoing]
        ), of_borders


def _has_history(view: torch.Tensor) -> bool:
    """Whether autograd knows what a view was made of. Raises NeedsGradients where it refuses to say: of one of several
    views that one operation made, or that was made without gradients, once its base was written in place."""
    try:
        return view.grad_fn is not None
    except RuntimeError as refusal:
        raise NeedsGradients("a result is a view that autograd has lost the history of") from refusal


class _ForwardRun(Run):
    """Runs the captured graph with autograd on."""

    recorder: _JointRecorder
    like_shown: dict[fx.Node, torch.Tensor]
    """Where sizes are symbolic, what capture says of results, so that what is asked of these sizes is asked of ours."""

    def __init__(
        self, gm: fx.GraphModule, entrances: Sequence[Entrance], conditions: Conditions | None,
        unit_of: Mapping[fx.Node, int]
    ) -> None:
        super().__init__(gm, keeps, conditions)
        self.entrances, self.unit_of = entrances, unit_of
        self.needed: list[GradientEdge | None] = []
        """Of each input what autograd is asked for to have its gradient, if that is wanted. Torch makes a view of a
        leaf to say it, which is none of the graph's."""
        self.ends: set[Any] = set()
        """The nodes that inputs come out of which are no leaves: such may be written in place."""

    def make_recorder(self) -> _JointRecorder:
        return _JointRecorder(self.graph)

    @contextmanager
    def recording(self) -> Iterator[None]:
        with _recording(self.recorder):
            yield

    def met_gradients(self) -> None:
        pass

    def _carry_out(self, node: fx.Node) -> None:
        around = self.recorder.unit
        self.recorder.unit = self.unit_of.get(node, around)  # of what a node runs inside it is that of the node
        try:
            super()._carry_out(node)
        finally:
            self.recorder.unit = around

    def call(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        if operation_name(node.target) in UNCHECKED_PARTS:
            with torch._C._AutoDispatchBelowAutograd():  # so that it arrives whole
                return super().call(node, args, kwargs)
        with self.recorder.asked() if node.target is torch.autograd.grad else nullcontext():
            return super().call(node, args, kwargs)

    def traced(self, call: FunctionCall, args: Sequence[Any]) -> Any:
        """The result on fakes of an `autograd.Function`, whose operations are recorded."""
        return call.form(iter(TracedFunction.apply(call, self.run_inside, *(args[place] for place in call.tensors))))

    def apart(self, fakes: list[torch.Tensor]) -> list[torch.Tensor]:
        """Leaves in place of the inputs' fakes: what is behind them is none of the graph's."""
        self.fakes = []
        for fake, entrance in zip(fakes, self.entrances, strict=True):
            with self.mode, torch.inference_mode(False):
                shape, strides, (offset,) = map(self._sizes, (fake.shape, fake.stride(), [fake.storage_offset()]))
                made = torch.empty_strided(shape, strides, dtype=fake.dtype, device=fake.device)
                if offset:  # views of it count from the beginning of its storage
                    storage = torch.empty(
                        offset + made.untyped_storage().nbytes() // made.itemsize, dtype=fake.dtype, device=fake.device
                    )
                    made.set_(storage.untyped_storage(), offset, shape, strides)
                made = entrance.made(made)
            if made.grad_fn is not None:
                self.ends.add(made.grad_fn)
            self.fakes.append(made)
        differentiable = [entrance is not Entrance.CONSTANT for entrance in self.entrances]
        edges = iter(gradient_edges([*compress(self.fakes, differentiable)]))
        self.needed += [next(edges) if each else None for each in differentiable]
        self.like_shown = {}
        if self.conditions is not None:
            (output,) = [node for node in self.gm.graph.nodes if node.op == "output"]
            with self.mode, torch.no_grad():
                for node in output.all_input_nodes:
                    shown = node.meta.get("val", node.meta.get("example_value"))
                    if not isinstance(shown, torch.Tensor):
                        continue
                    sizes = self._sizes(shown.shape)
                    if not any(map(is_of_data, sizes)):  # how much a slice leaves is known to the part that slices
                        self.like_shown[node] = torch.empty_strided(
                            sizes, self._sizes(shown.stride()), dtype=shown.dtype, device=shown.device
                        )
        return self.fakes

    def outputs(self, value: Any) -> list[Any]:
        returned = self.returned(value)
        shown = [self._shown(item, own) if isinstance(item, fx.Node) else own for own, item in zip(returned, value)]
        tied = [
            position
            for position, fake in enumerate(self.fakes)
            if fake.grad_fn is not None and fake.grad_fn not in self.ends
        ]
        self.results = RecordedResults(self.recorder, self.fakes, returned, shown, tied)
        # an input that was written is there anyway
        given = [None if place in self.results.tied else item for place, item in enumerate(self.results.given)]
        return [self.recorder.known(item) if isinstance(item, torch.Tensor) else item for item in given]

    def _shown(self, node: fx.Node, fake: Any) -> Any:
        """What capture says of a result, where that fills its memory in order: the strides that eager gives it."""
        shown = node.meta.get("val", node.meta.get("example_value"))
        if not isinstance(fake, torch.Tensor) or not isinstance(shown, torch.Tensor):
            return fake
        if self.conditions is not None and node not in self.like_shown and shown.is_contiguous():
            with _disable_current_modes(), self.mode, torch.no_grad():
                return torch.empty(fake.shape, dtype=fake.dtype, device=fake.device)
        shown = self.like_shown.get(node, fake if self.conditions is not None else shown)
        return shown if shown.is_contiguous() else fake


@contextmanager
def _on_fakes(graph: Graph) -> Iterator[None]:
    """Fakes of the graph's are operated on here."""
    with graph.fake_mode, python_decompositions() if graph.conditions is not None else nullcontext():
        yield


@contextmanager
def _recording(recorder: Recorder) -> Iterator[None]:
    with _on_fakes(recorder.graph), recorder:
        yield


class _JointRecorder(TrainingRecorder):
    """Writes down operations below autograd, those of the backward with the lines of the forward operations that they
    belong to."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._inside = False
        """Whether what arrives is part of a decomposition."""
        self._numbers: list[int] = []
        """The number of autograd's first node of each line, in order."""
        self._origins: list[tuple[Origin, int | None]] = []
        """Of the forward operations that these nodes were made for, with their units."""
        self.unit: int | None = None
        """The unit of what arrives, if it is part of one."""
        self.unit_of: dict[Node, int] = {}
        """The units of what was written down."""

    def carry_out(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.is_backward:
            node = torch._C._current_autograd_node()
            forward, self.unit = (UNKNOWN, None) if node is None else self._origin_of(node._sequence_nr())
            self.origin = replace(forward, is_backward=True)
        # of the node that was made last
        elif (number := torch._C._autograd._get_sequence_nr() - 1) > (self._numbers[-1] if self._numbers else -1):
            self._numbers.append(number)
            self._origins.append((self.origin, self.unit))
        decomposition = DECOMPOSITIONS.get(func)
        if decomposition is None or self._inside or self.is_missing(func, args) or self._is_refused(func, args, kwargs):
            return super().carry_out(func, args, kwargs)
        self._inside = True
        try:
            with self:
                result = decomposition(*args, **kwargs)
        finally:
            self._inside = False
        return super().carry_out(func, args, kwargs) if result is NotImplemented else result

    def _is_refused(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether ATen refuses the dtypes of an operation's tensors, of which fakes know nothing: what it consists of
        would go well. (Norms of half precision with parameters of single precision: on CPUs they work.) Where a
        forward works, its backward does; it is given statistics here that may have another dtype than ATen's."""
        given = tensors_in((*args, *kwargs.values()))
        if self.is_backward or len({fake.dtype for fake in given if fake.is_floating_point()}) < 2:
            return False
        node = Node(func, *self.arguments(args, kwargs), None, self.origin)
        try:
            return not accepts(node)
        except NotFusable:  # that depends on a size
            return False
        finally:
            node.detach()

    def _write_down(self, *written: Any) -> None:
        super()._write_down(*written)
        if self.unit is not None:
            self.unit_of[self.graph.nodes[-1]] = self.unit

    def _origin_of(self, number: int) -> tuple[Origin, int | None]:
        """The origin and the unit of the forward operation that autograd made the node of this number for."""
        place = bisect_right(self._numbers, number) - 1
        return self._origins[place] if place >= 0 else (UNKNOWN, None)

    def _with_parts(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], casts: Any) -> Any:
        """What a composite operation consists of, where it arrives as one: in inference mode, and in what autograd's
        formulas call."""
        with self:
            return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
