"""Autograd's graph of a forward, divided into segments: operations that lead to the same results. Each segment becomes
one node of autograd.

So gradients meet where they meet in eager. A result that others are made of can be asked for its gradient and can have
hooks, and results that have nothing in common go backwards one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import field
from graphlib import TopologicalSorter
from typing import Any, Final

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge, get_gradient_edge

from framejit.backends.fuse.not_fusable import NeedsGradients
from framejit.environment.hook_handles import remove_hook
from framejit.late_dataclass import dataclass

MOST: Final = 32
"""The most segments that a graph is divided into where each has a compiled backward of its own."""

NO_STAGES: Final[Mapping[Any, int]] = {}

Edge = tuple[Any, int]
"""A tensor as autograd knows it: the node that it came out of, and its number among that node's outputs."""


@dataclass
class Segment:
    """Operations that lead to the same results, without leading through other results."""

    results: list[int]
    """Which results it gives, by their positions."""
    outputs: list[Edge]
    """What gradients come to: its results, and behind them what it gives to other segments."""
    borders: list[Edge] = field(default_factory=list)
    """What it takes from segments before it."""
    is_view: bool = False
    """Whether its results are views, which are made again outside of nodes of ours."""
    keeps: bool = False
    """Whether eager keeps tensors for its backward, so that there is no second one without `retain_graph`."""
    kept: set[int] = field(default_factory=set)
    """The storages of these, by their addresses."""
    leaves: set[Any] = field(default_factory=set)
    """The nodes where gradients of inputs end that come straight from its operations."""
    stage: int = 0
    """The stage of the backward that it belongs to."""
    has_function: bool = False
    """Whether a torch.autograd.Function is among its operations, which runs on zeros where no gradient comes."""


def segments_of(
    results: Sequence[torch.Tensor], ends: Set[Any] = frozenset(), stages: Mapping[Any, int] = NO_STAGES
) -> list[Segment]:
    """The segments that give these results, each behind those that it takes from. `ends`: nodes that are none of theirs
    any more, as leaves' are not. `stages`: by nodes that inputs come out of, the stage of the backward at whose end
    their gradients are there; stages are segments of their own. Raises NeedsGradients for too many."""
    places = {edge_of(tensor): position for position, tensor in enumerate(results)}
    nodes = nodes_of(results, ends)
    stage_of = _stages(nodes, stages)
    leads_to: dict[Any, set[int]] = {node: set() for node in nodes}
    for (node, _), position in places.items():
        leads_to[node].add(position)
    for node in reversed(nodes):
        for edge in _edges(node, ends):
            if edge not in places:
                leads_to[edge[0]] |= leads_to[node]
    numbers: dict[tuple[frozenset[int], int], int] = {}
    number_of = {
        node: numbers.setdefault((frozenset(leads_to[node]), stage_of[node]), len(numbers)) for node in nodes
    }
    segments = [Segment([], [], stage=stage) for _, stage in numbers]
    for edge, position in places.items():
        segments[number_of[edge[0]]].outputs.append(edge)
        segments[number_of[edge[0]]].results.append(position)
    for node, number in number_of.items():
        segments[number].has_function |= isinstance(node, BackwardCFunction)
        segments[number].leaves.update(
            before for before, _ in node.next_functions if before is not None and is_end(before, ends)
        )
        for tensors in _kept_by(node):
            segments[number].keeps = True
            segments[number].kept.update(tensor.untyped_storage()._cdata for tensor in tensors)
    before: dict[int, set[int]] = {number: set() for number in range(len(segments))}
    for node in nodes:
        number = number_of[node]
        for edge in _edges(node, ends):
            origin = number_of[edge[0]]
            if origin == number:
                continue
            before[number].add(origin)
            if edge not in segments[number].borders:
                segments[number].borders.append(edge)
            if edge not in segments[origin].outputs:
                segments[origin].outputs.append(edge)
    return [segments[number] for number in TopologicalSorter(before).static_order()]


def needed_segments(
    results: Sequence[torch.Tensor], views: Sequence[torch.Tensor], ends: Set[Any] = frozenset(),
    stages: Mapping[Any, int] = NO_STAGES,
) -> list[Segment]:
    """The segments that give these results, and those of results that are views where another segment takes these. What
    leads from a tensor to a view of it goes as the view is made again. Views are numbered behind the results. `ends`
    and `stages`: as for `segments_of`. Raises NeedsGradients for what can't be divided."""
    needed: list[Segment] = []
    taken: set[Edge] = set()
    for segment in reversed(segments_of([*results, *views], ends, stages)):
        if taken.isdisjoint(segment.outputs) and all(number >= len(results) for number in segment.results):
            continue
        needed.append(segment)
        segment.is_view = bool(segment.results) and segment.results[0] >= len(results)
        if not segment.is_view:
            taken.update(segment.borders)
    return needed[::-1]


def check_apart(segments: Sequence[Segment]) -> None:
    """Raises NeedsGradients where segments can't have backwards of their own."""
    count = sum(not segment.is_view for segment in segments)
    if count > MOST:
        raise NeedsGradients(
            f"gradients meet at {count} places, as results depend on each other; at most {MOST} nodes are made of a "
            "graph"
        )


def gradients(
    segment: Segment, tangents: Sequence[torch.Tensor | None], wanted: Sequence[torch.Tensor | GradientEdge],
    differentiable: bool = False
) -> list[torch.Tensor | None]:
    """The gradients of leaves, and behind them of what the segment takes from others, for gradients of its outputs;
    what other segments add is not in them.

    `tangents`: for each output, or None; where all are, each node is told that no gradient comes, as eager does, and a
    torch.autograd.Function may have some nevertheless. `differentiable`: whether the gradients have gradients.
    """
    ended = [*segment.borders]
    if all(tangent is None for tangent in tangents):
        tangents = [_zeros(edge) for edge in segment.outputs]
        ended += segment.outputs
    # autograd does not go to where nothing is wanted: not beyond the borders to what only other segments lead to
    own = [place for place, end in enumerate(wanted) if _node_behind(end) in segment.leaves]
    ends: list[Any] = [*(wanted[place] for place in own), *(GradientEdge(*edge) for edge in segment.borders)]
    found: list[torch.Tensor | None] = [None] * len(wanted)
    if not ends:
        return found
    given = [(GradientEdge(*edge), tangent) for edge, tangent in zip(segment.outputs, tangents) if tangent is not None]
    with _ending_at(ended, segment.borders):
        made = torch.autograd.grad(
            [edge for edge, _ in given],
            ends,
            [tangent for _, tangent in given],
            allow_unused=True,
            retain_graph=True,
            create_graph=differentiable,
        )
    for place, gradient in zip(own, made):
        found[place] = gradient
    return [*found, *made[len(own) :]]


def _node_behind(end: torch.Tensor | GradientEdge) -> Any:
    """The node at which a gradient ends."""
    return (get_gradient_edge(end) if isinstance(end, torch.Tensor) else end).node


@contextmanager
def _ending_at(ended: Sequence[Edge], borders: Sequence[Edge]) -> Iterator[None]:
    """Lets no gradient through the nodes that `ended` come out of, nor have a torch.autograd.Function beyond the
    borders give one where none comes to it: what it gives for zeros need not be zeros."""
    nodes = dict.fromkeys(node for node, _ in ended)
    beyond = dict.fromkeys(node for node, _ in borders)
    for node in (waiting := [*beyond]):
        following = {before: None for before, _ in node.next_functions if before is not None and before not in beyond}
        beyond |= following
        waiting += following
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(remove_hook, node.register_prehook(lambda given: (None,) * len(given)))
        for node in beyond:
            if isinstance(node, BackwardCFunction):
                stack.callback(remove_hook, node.register_hook(lambda made, _: (None,) * len(made)))
        yield


def _zeros(edge: Edge) -> torch.Tensor:
    """A gradient for what a node gives."""
    node, output = edge
    like = node._input_metadata[output]
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device)


def _kept_by(node: Any) -> Iterator[Sequence[torch.Tensor]]:
    """What a node keeps for its backward, of each of its attributes: none where it does not say what it kept."""
    if isinstance(node, BackwardCFunction):
        if node.saved_tensors:
            yield [tensor for tensor in node.saved_tensors if isinstance(tensor, torch.Tensor)]
        return
    for name in dir(node):
        if name.startswith("_raw_saved_"):
            try:
                kept = getattr(node, name.removeprefix("_raw"), node)
            except RuntimeError:  # it was written since: eager's backward raises, too
                kept = node
            if kept is not None:
                yield [tensor for tensor in (kept if isinstance(kept, tuple) else (kept,)) if torch.is_tensor(tensor)]


def edge_of(tensor: torch.Tensor) -> Edge:
    """What autograd knows a tensor as that is no leaf."""
    return tensor.grad_fn, tensor.output_nr


def _edges(node: Any, ends: Set[Any]) -> Iterator[Edge]:
    """What a node took that is no leaf, nor comes out of one of `ends`."""
    return (
        (before, number)
        for before, number in node.next_functions
        if before is not None and not is_end(before, ends)
    )


def is_end(node: Any, ends: Set[Any]) -> bool:
    """Whether it is a leaf's, or one of `ends`."""
    return not node.next_functions or node in ends


def by_node(stages: Mapping[int, int], inputs: Sequence[torch.Tensor]) -> dict[Any, int]:
    """The stages by the nodes of autograd that inputs come out of."""
    return {get_gradient_edge(inputs[position]).node: stage for position, stage in stages.items()}


def _stages(nodes: Sequence[Any], stages: Mapping[Any, int]) -> dict[Any, int]:
    """The stage of each node: the first at whose end a gradient is there that goes through it."""
    last = max(stages.values(), default=0)
    found = dict(stages)
    for node in nodes:
        found[node] = min((found[before] for before, _ in node.next_functions if before in found), default=last)
    return found


def nodes_of(results: Sequence[torch.Tensor], ends: Set[Any] = frozenset()) -> list[Any]:
    """All nodes that lead to results, each behind those that it took from. `ends`: as for `segments_of`."""
    found: dict[Any, None] = {}
    for root in [tensor.grad_fn for tensor in results]:
        waiting = [(root, _edges(root, ends))]
        on_the_way = {root}
        while waiting:
            node, rest = waiting[-1]
            following = next((edge[0] for edge in rest if edge[0] not in found and edge[0] not in on_the_way), None)
            if following is not None:
                on_the_way.add(following)
                waiting.append((following, _edges(following, ends)))
            else:
                found.setdefault(node)
                waiting.pop()
    return [*found]
