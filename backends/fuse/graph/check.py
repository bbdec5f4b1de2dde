"""The rules of graphs. Checked in tests between all passes, and under `config.debug`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node, values_in, written_arguments
from framejit.backends.fuse.graph.value import Storage, Value
from framejit.fakes.light_torch import light
from framejit.symbols.sym_node import expression_of


class BrokenGraph(Exception):
    """A graph that is none; says which rule it breaks."""


def check(graph: Graph) -> None:
    """Raise BrokenGraph unless

    - each value is made once, by the operation that says so, or is an input or constant, and is used only after that;
    - users are those that use it;
    - a view lies in its base's storage, and what is no view of anything known has a storage of its own;
    - each write that a schema tells, or that is done inside, is an edge of the operation;
    - names, views and counted writes are those of inputs and outputs that exist;
    - the metadata of values are those of their fakes.
    """
    _Checker(graph).run()


class _Checker:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses: dict[Value, set[Node]] = {}

    def run(self) -> None:
        graph = self.graph
        defined: dict[Value, None] = {}
        storages: dict[Storage, Value] = {}
        if len(graph.names) != len(graph.inputs):
            raise BrokenGraph(f"{len(graph.inputs)} inputs have {len(graph.names)} names")
        for value in (*graph.inputs, *graph.constants):
            if value.maker is not None:
                raise BrokenGraph(f"an input or constant is made by {value.maker.operation}")
            self._define(value, defined, storages, "the graph")
        for value, constant in graph.constants.items():
            if constant.tensor.shape != value.shape or constant.tensor.dtype != value.dtype:
                raise BrokenGraph(
                    f"a constant of {constant.tensor.dtype} {tuple(constant.tensor.shape)} stands for {value.dtype} "
                    f"{value.shape}"
                )
        self._block(graph, defined, storages)
        if not all(
            0 <= position < len(graph.outputs) and isinstance(graph.outputs[position], Value)
            for position in graph.described_outputs()
        ):
            raise BrokenGraph("an output that is no tensor is said to be a view, or written")
        if not all(0 <= position < len(graph.inputs) for position in graph.counted_writes):
            raise BrokenGraph("writes are counted of an input that there is not")
        for value in defined:
            if {*value.users} != self.uses.get(value, set()):
                raise BrokenGraph(f"the users of {value} are not those that use it")

    def _block(self, graph: Graph, defined: dict[Value, None], storages: dict[Storage, Value]) -> None:
        for node in graph.nodes:
            for value in node.values():
                if value not in defined:
                    raise BrokenGraph(f"{node.operation} uses a value before it is made, or one that nobody makes")
                self.uses.setdefault(value, set()).add(node)
            self._parts(node, defined, storages)
            self._writes(node)
            self._results(node, defined, storages)
        for value in graph.returned():
            if value not in defined:
                raise BrokenGraph("a value is returned that nobody makes")

    def _parts(self, node: Node, defined: dict[Value, None], storages: dict[Storage, Value]) -> None:
        for part in node.parts:
            if part.constants:
                raise BrokenGraph(f"a graph inside of {node.operation} has constants of its own")
            inside, known = {**defined}, {**storages}
            for value in part.inputs:
                self._define(value, inside, known, f"a graph inside of {node.operation}")
            self._block(part, inside, known)
            for value in inside:
                if value not in defined and {*value.users} != self.uses.get(value, set()):
                    raise BrokenGraph(f"the users of {value} are not those that use it")

    def _writes(self, node: Node) -> None:
        told = {value.storage for value in node.writes}
        inside = {value.storage for part in node.parts for inner in part.nodes for value in inner.writes}
        missing = {value.storage for value in written_arguments(node.operation, node.args, node.kwargs)} | {
            value.storage for value in node.values() if value.storage in inside
        }
        if not missing <= told:
            raise BrokenGraph(f"{node.operation} writes what it does not say")
        if not all(value in {*node.values()} for value in node.writes):
            raise BrokenGraph(f"{node.operation} is said to write what it does not take")

    def _results(self, node: Node, defined: dict[Value, None], storages: dict[Storage, Value]) -> None:
        given = {*node.values()}
        if {*values_in((node.result,))} - given != {*node.results}:
            raise BrokenGraph(f"the results of {node.operation} are not those that it returns")
        for value in node.results:
            if value.maker is not node:
                raise BrokenGraph(
                    f"a result of {node.operation} is said to be made by "
                    f"{value.maker.operation if value.maker else 'nobody'}"
                )
            self._define(value, defined, storages, str(node.operation))

    def _define(self, value: Value, defined: dict[Value, None], storages: dict[Storage, Value], maker: str) -> None:
        if value in defined:
            raise BrokenGraph(f"a value that {maker} makes was made before")
        known = storages.get(value.storage)
        if value.base is None:
            if known is not None:
                raise BrokenGraph(f"what {maker} makes lies in the storage of another value, and is no view of one")
        elif value.base not in defined:
            raise BrokenGraph(f"what {maker} makes is a view of a value that is not known")
        elif value.base.storage is not value.storage:
            raise BrokenGraph(f"what {maker} makes is a view, but lies in another storage than its base")
        for what, own, fakes in _metadata(value):
            if own != fakes:
                raise BrokenGraph(f"what {maker} makes has {what} {own}, but its fake has {fakes}")
        defined[value] = None
        storages.setdefault(value.storage, value)


def _metadata(value: Value) -> Iterator[tuple[str, Any, Any]]:
    fake = value.fake
    yield "dtype", value.dtype, fake.dtype
    yield "device", value.device, fake.device
    yield "sizes", _plain(value.shape), _plain(fake.shape)
    # an average over images has others told for its dimensions of one element, once it is known (`as_strided_`)
    several = [dim for dim, size in enumerate(_plain(value.shape)) if size != 1]
    own, fakes = (tuple(_plain(strides)[dim] for dim in several) for strides in (value.strides, fake.stride()))
    yield "strides", own, fakes
    yield "offset", _plain((value.offset,)), _plain((fake.storage_offset(),))


def _plain(sizes: Any) -> tuple[Any, ...]:
    """Sizes that can be compared without asking anything of symbolic ones."""
    return tuple(expression_of(size) if isinstance(size, torch.SymInt) else size for size in sizes)


class ResultsChecker:
    """Asks the operations of graphs again, on fakes, whether they give what their results are said to be. Of a graph
    that several passes rewrite, each node is asked where it, or one of its values, is not as it was."""

    def __init__(self) -> None:
        self._asked: dict[Node, tuple[Any, ...]] = {}

    def check(self, graph: Graph) -> None:
        """Raise BrokenGraph where an operation gives fakes of other metadata than its results have, for a graph
        without symbolic sizes."""
        if graph.conditions is not None:
            return
        with light(), torch._C._DisableAutocast(), torch._C._AutoDispatchBelowAutograd(), graph.fake_mode:
            for node in graph.nodes:
                if not node.results or node.parts or node.operation._schema.is_mutable:
                    continue
                state = _state(node)
                before = self._asked.get(node, ())
                if len(before) != len(state) or any(was is not now for was, now in zip(before, state)):
                    _ask(node)
                    self._asked[node] = state


def _state(node: Node) -> tuple[Any, ...]:
    """The objects that the answer of a node depends on, all of which passes replace and none of which they change."""
    facts = [node.operation, node.args, node.kwargs, node.result]
    for value in (*node.values(), *node.results):
        facts += value.fake, value.shape, value.strides, value.dtype
    return tuple(facts)


def _ask(node: Node) -> None:
    args, kwargs = node.fake_arguments()
    fakes = node.operation(*args, **kwargs)
    made = fakes if isinstance(fakes, (tuple, list)) else (fakes,)
    own = node.result if isinstance(node.result, (tuple, list)) else (node.result,)
    for value, fake in zip(own, made):
        if isinstance(value, Value) and (value.shape, value.strides, value.dtype) != (
            tuple(fake.shape), fake.stride(), fake.dtype,
        ):
            raise BrokenGraph(
                f"{node.operation} gives {fake.dtype} {tuple(fake.shape)}, and its result has {value.dtype} "
                f"{value.shape}"
            )
