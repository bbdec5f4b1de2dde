"""Graphs with loops on data in them: what comes before a loop, between two, and behind the last is compiled like graphs
of their own, and so is what a loop repeats.

Each part is compiled when it first runs, with the tensors that arrive and in the state of torch's that it runs in: a
loop that is never gone through costs no compilation. What changes that state is carried out between the parts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import fx

from framejit.backends.data_loop import DataLoop
from framejit.backends.fuse.account.compiled_graph import PART, CompiledGraph, recall_all
from framejit.backends.graph_identity import asked_of, identify, identity
from framejit.backends.opaque_call import OpaqueCall
from framejit.backends.subgraph import subgraph
from framejit.environment.signal_handlers import SignalsWait

Run = Callable[..., Any]
Compile = Callable[[fx.GraphModule, list[torch.Tensor]], Run]


def has_loops(gm: fx.GraphModule) -> bool:
    """Whether a graph has a loop on data in it."""
    return any(isinstance(node.target, DataLoop) for node in gm.graph.nodes)


def why_whole(gm: fx.GraphModule) -> str:
    """Why a graph with loops can't be compiled in parts; empty if it can."""
    for node in gm.graph.nodes:
        if isinstance(node.target, OpaqueCall) and not isinstance(node.target, DataLoop):
            return node.target.why
        if node.meta.get("written"):
            return "it writes into tensors around a loop on data"
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value._has_symbolic_sizes_strides or isinstance(value, torch.SymInt):
            return "it has a loop on data, and sizes that are left open"
        if node.op in ("get_attr", "call_module"):
            return "it has a loop on data, and an object of its own"
    return ""


class _LazyGraph:
    """A graph that is compiled when it first runs; `settle` is called with what runs it from then on."""

    def __init__(self, module: fx.GraphModule, compile: Compile, settle: Callable[[Run], None]) -> None:
        self._module, self._compile, self._settle = module, compile, settle
        self._run: Run | None = None

    def __call__(self, *inputs: torch.Tensor) -> Any:
        run = self._run
        if run is None:
            with SignalsWait():
                run = self._run = self._compile(self._module, [*inputs])
            self._settle(run)
        return run(*inputs)

    def graphs(self) -> list[CompiledGraph]:
        """The accounts of what was compiled."""
        return [] if self._run is None else recall_all(self._run)


class GraphInParts:
    """A compiled graph with loops on data: a Python function that calls its parts, one after the other."""

    def __init__(self, gm: fx.GraphModule, compile_graph: Compile) -> None:
        self.eager = gm.forward
        self._gm, self._compile = gm, compile_graph
        self._parts: list[_LazyGraph] = []
        self._namespace: dict[str, Any] = {}
        self._numbers = {node: f"v{i}" for i, node in enumerate(gm.graph.nodes)}
        inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
        lines = [f"def run({self._list(inputs)}):", *(f"    {line}" for line in self._lines())]
        exec(compile("\n".join(lines), "<a graph with loops on data>", "exec"), self._namespace)
        self.run: Run = self._namespace["run"]

    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        made: tuple[Any, ...] = self.run(*inputs)
        return made

    def graphs(self) -> list[CompiledGraph]:
        """The accounts of what was compiled so far."""
        return [graph for part in self._parts for graph in part.graphs()]

    def _list(self, nodes: Iterable[Any]) -> str:
        return "".join(f"{self._numbers[node]}, " for node in nodes)

    def _lazy(self, module: fx.GraphModule, settle: Callable[[Run], None]) -> _LazyGraph:
        number = identity(self._gm)
        if number is not None:
            identify(module, number)
        module.meta |= asked_of(self._gm)
        module.meta[PART] = f"{self._gm.meta[PART]}_{len(self._parts)}" if PART in self._gm.meta else len(self._parts)
        self._parts.append(_LazyGraph(module, self._compile, settle))
        return self._parts[-1]

    def _lines(self) -> Iterator[str]:
        """The function's statements. A value goes after its last use."""
        groups, waiting = list[list[fx.Node]](), list[fx.Node]()
        for node in self._gm.graph.nodes:
            if node.op != "placeholder" and _is_plain(node):
                waiting.append(node)
            elif node.op != "placeholder":
                groups += [waiting, [node]] if waiting else [[node]]
                waiting = []
        last = {node: node for node, *_ in groups if not _is_plain(node)}
        for group in groups:
            last |= {used: group[0] for node in group for used in node.all_input_nodes if used not in group}
        for group in groups:
            [node, *_] = group
            if node.op == "output":
                results: Any = node.args[0]
                yield f"return ({self._list(results)})"
                return
            yield self._part(group) if _is_plain(node) else self._single(node)
            ended = [used for used, at in last.items() if at is node]
            yield f"del {self._list(ended)}" if ended else "pass"

    def _part(self, nodes: list[fx.Node]) -> str:
        inside = {*nodes}
        takes = [*dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in inside)]
        gives = [node for node in nodes if any(user not in inside for user in node.users)]
        name = f"part_{len(self._parts)}"
        module = subgraph(takes, nodes, gives)
        self._namespace[name] = self._lazy(module, partial(self._namespace.__setitem__, name))
        return f"({self._list(gives)}) = {name}({self._list(takes)})"

    def _single(self, node: fx.Node) -> str:
        target: Any = node.target
        name = f"step_{self._numbers[node]}"
        if isinstance(target, DataLoop):
            self._namespace[name] = target.over(self._lazy)
            return f"{self._numbers[node]} = {name}({self._list(node.args)})"
        if target is operator.getitem:
            return f"{self._numbers[node]} = {self._list(node.args[:1])[:-2]}[{node.args[1]}]"
        nodes = node.all_input_nodes

        def run(*given: Any) -> Any:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), dict(zip(nodes, given)).__getitem__)
            return target(*args, **kwargs)

        self._namespace[name] = run
        return f"{self._numbers[node]} = {name}({self._list(nodes)})"


def _is_plain(node: fx.Node) -> bool:
    """Whether a node is an operation on tensors. What changes torch's state has no result on fakes; the results of a
    loop come in a tuple."""
    if isinstance(node.target, DataLoop) or "val" not in node.meta and "written" not in node.meta:
        return False
    return not any(isinstance(given.target, DataLoop) for given in node.all_input_nodes)
