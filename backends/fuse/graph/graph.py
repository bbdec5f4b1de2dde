"""The graph itself: inputs, constants, operations in order, outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

import torch

from framejit.backends.fuse.graph.computation import Computation, Result
from framejit.backends.fuse.graph.node import Node, map_values, values_in
from framejit.backends.fuse.graph.value import Storage, Value
from framejit.late_dataclass import dataclass
from framejit.symbols.conditions import Conditions


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor that is known when the graph is made."""

    tensor: torch.Tensor
    literal: bool = False
    """Whether it is made of numbers of the program, and never changes; else it is an attribute of the module, and
    somebody may write into it."""
    made: Result | None = None
    """How it was computed from frozen weights, if it was; then it has memory of its own."""


@dataclass(frozen=True, eq=False)
class HiddenBase:
    """A tensor that the graph makes and does not return, but that autograd knows outputs to be views of. Outputs with
    the same base have the same object."""

    dtype: torch.dtype
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]


@dataclass(frozen=True)
class HiddenView:
    """How an output is a view of a hidden base."""

    base: HiddenBase
    before: Any
    """How many bytes before the output's first element in memory the base's first one lies."""
    creation: int | None
    """What autograd allows to be done to it, as a number of its `CreationMeta`."""


@dataclass(eq=False)
class Graph:
    """Operations on values, each value made once, before it is used. Changed through its methods, which keep users and
    makers right.

    A graph inside a node (`Node.parts`) may use the values that are known where the node stands, besides its own
    inputs. All constants are the outermost graph's.
    """

    inputs: list[Value] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """The names of the inputs."""
    constants: dict[Value, Constant] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    """What it returns: values and plain objects."""
    views: dict[int, int | None] = field(default_factory=dict)
    """For autograd these outputs, by their position, are views of what they share memory with: in-place writes to one
    are written to the other. With each, what autograd allows to be done to it, as in `HiddenView`; None where autograd
    has no say."""
    hidden_views: dict[int, HiddenView] = field(default_factory=dict)
    """The outputs, by their position, that autograd has as views of what is neither an input nor an output."""
    counted_apart: dict[int, int] = field(default_factory=dict)
    """The outputs, by their position, whose writes autograd does not count as ones of what they share memory with:
    `x.data`, and what is made of it. Those with the same number share a counter."""
    counted_writes: dict[int, int] = field(default_factory=dict)
    """How often, for autograd, each input (by its position) is written into, where that is known: a write to `x.data`
    is none to `x`."""
    versions: dict[int, int] = field(default_factory=dict)
    """How many writes autograd has counted of these outputs, by their position: of what the graph makes and writes
    into."""
    own_inputs: frozenset[int] | None = None
    """Where calls give up the inputs, so that each is let go of after its last use: the positions of those that nobody
    else holds by then, as a rule. None where callers keep them."""
    norms: list[Computation] = field(default_factory=list)
    """What would take batch norms into the weights before them: those that gave something have taken them."""
    fake_mode: Any = None
    """The mode of its values' fakes."""
    conditions: Conditions | None = None
    """What was asked of symbolic sizes; None where no size is symbolic."""

    # ---- questions ----

    def returned(self) -> Iterator[Value]:
        """The values among the outputs."""
        return values_in(self.outputs)

    def all_nodes(self) -> Iterator[Node]:
        """The nodes, and those of the graphs inside of them, each behind its parts."""
        for node in self.nodes:
            for part in node.parts:
                yield from part.all_nodes()
            yield node

    def written(self) -> set[Storage]:
        """The storages that something is written into."""
        return {value.storage for node in self.nodes for value in node.writes}

    def described_outputs(self) -> set[int]:
        """The positions of the outputs of which autograd knows more than that they are new tensors."""
        return {*self.views, *self.hidden_views, *self.counted_apart, *self.versions}

    # ---- changes ----

    def constant(self, value: Value, constant: Constant) -> Value:
        """Have a value as a constant."""
        self.constants[value] = constant
        return value

    def append(self, node: Node) -> Node:
        """Add a node behind all others."""
        self.nodes.append(node)
        return node

    def replace_uses(self, old: Value, new: Value) -> None:
        """Have another value in all places where `old` is used or returned."""
        if old is new:
            return
        for node in [*old.users]:
            node.replace(old, new)
        self.outputs = [map_values(output, lambda value: new if value is old else value) for output in self.outputs]
        for node in new.users:
            for value in node.results:
                if value.base is old:
                    value.base = new

    def rewrite(self, instead: Callable[[Node], Iterable[Node] | None]) -> bool:
        """Put in place of each node, in order, those that a function gives for it; None leaves it. Says whether
        anything changed.

        What is put in must make, or have been put in place of by `replace_uses`, all that is used of what is taken out.
        """
        kept: list[Node] = []
        changed = False
        for node in self.nodes:
            made = instead(node)
            if made is None:
                kept.append(node)
                continue
            changed = True
            made = [*made]
            if node not in made:
                node.detach()
            kept += made
        self.nodes = kept
        return changed

    def remove(self, nodes: Iterable[Node]) -> None:
        """Take out nodes whose results nobody uses."""
        gone = set(nodes)
        for node in gone:
            node.detach()
        used = [value for node in gone for value in node.results if value.users or value in {*self.returned()}]
        if used:
            raise ValueError(f"{used[0]} is still in use")
        self.nodes = [node for node in self.nodes if node not in gone]

    def expand(self, wanted: Callable[[Node], bool]) -> None:
        """Put in place of composite operations what they consist of, where `wanted` says so, in the graphs inside of
        others too."""

        def instead(node: Node) -> list[Node] | None:
            if not node.parts:
                return None
            if not wanted(node):
                for part in node.parts:
                    part.expand(wanted)
                return None
            made = []
            for inner in self._opened(node):
                made += instead(inner) or [inner]
            return made

        self.rewrite(instead)

    def _opened(self, node: Node) -> Sequence[Node]:
        """The nodes that a composite operation consists of, with their results for its own: to be put in its place."""
        (part,) = node.parts
        made, node.parts = part.nodes, ()
        (outcome,) = part.outputs
        for own, inner in zip(values_in((node.result,)), values_in((outcome,)), strict=True):
            if own in node.results:
                self.replace_uses(own, inner)
        node.detach()
        return made
