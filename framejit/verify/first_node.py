"""The first node of a graph that a backend computes differently, by bisection.

The graph is cut after some node and the front part is compiled by the same backend, with everything that the rest would
have used as outputs. A front part that differs has the culprit in it; the shortest such part ends with it.
"""
from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from framejit.backends.graph_identity import SAME_RANDOM_NUMBERS
from framejit.late_dataclass import dataclass
from framejit.verify.difference import Difference
from framejit.verify.graph_runs import GraphRun, against_eager, private


@dataclass
class NodeDifference:
    """The culprit: its text as code, the user's line, and the shortest graph that shows it."""

    node: str
    user_line: str
    difference: Difference
    module: fx.GraphModule
    inputs: list[torch.Tensor]


def first_differing_node(run: GraphRun) -> NodeDifference | None:
    """The node, or None where no part of the graph differs when it is compiled by itself."""
    nodes = _operations(run.graph.module.graph)
    found: NodeDifference | None = None
    good, bad = 0, len(nodes) + 1
    middle = len(nodes)  # whether the whole graph still differs, compiled anew, comes first
    while bad - good > 1:
        difference, module = _compare(run, middle)
        if difference is None:
            if middle == len(nodes):
                return None
            good = middle
        else:
            bad = middle
            node = nodes[middle - 1]
            found = NodeDifference(_text(node), _user_line(node), difference, module, run.inputs)
        middle = (good + bad) // 2
    return found


def _operations(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op not in ("placeholder", "output") and not _changes_modes(node)]


def _changes_modes(node: fx.Node) -> bool:
    """Whether a node switches a mode of the thread: it neither takes nor makes a tensor."""
    return (
        "val" not in node.meta
        and node.op == "call_function"
        and not any("val" in used.meta for used in node.all_input_nodes)
    )


def _compare(run: GraphRun, count: int) -> tuple[Difference | None, fx.GraphModule]:
    module = front_part(run.graph.module, count)
    module.meta[SAME_RANDOM_NUMBERS] = True
    run.restore()
    compiled = run.graph.options.backend(module, private(run.inputs))
    reference, inputs = front_part(run.graph.module, count), private(run.inputs)
    run.restore()
    outputs = private(compiled(*inputs))
    return against_eager(reference, run.inputs, private(inputs), outputs, run.restore), reference


def front_part(module: fx.GraphModule, count: int) -> fx.GraphModule:
    """The first `count` operations of a graph. Changes of modes all stay, so that what is switched on is switched
    off."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    taken = set(_operations(module.graph)[:count])
    for node in module.graph.nodes:
        if node.op == "placeholder" or node in taken or (node.op != "output" and _changes_modes(node)):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs: list[fx.Node] = []
    for node in module.graph.nodes:
        used_later = node in taken and (not node.users or any(user not in taken for user in node.users))
        if used_later:
            outputs += _tensors(graph, copies[node], node.meta.get("val"))
    graph.output(tuple(outputs))
    return fx.GraphModule(torch.nn.Module(), graph)


def _tensors(graph: fx.Graph, node: fx.Node, value: Any) -> list[fx.Node]:
    if isinstance(value, torch.Tensor):
        return [node]
    found: list[fx.Node] = []
    if isinstance(value, (tuple, list)):
        for i, part in enumerate(value):
            if isinstance(part, (torch.Tensor, tuple, list)):
                found += _tensors(graph, graph.call_function(operator.getitem, (node, i)), part)
    return found


def _text(node: fx.Node) -> str:
    arguments = (*node.args, *(f"{name}={value}" for name, value in node.kwargs.items()))
    return f"{node.name} = {node._pretty_print_target(node.target)}({', '.join(map(str, arguments))})"


def _user_line(node: fx.Node) -> str:
    """The innermost line of the program behind a node, as file:line."""
    lines = [line for line in (node.meta.get("stack_trace") or "").splitlines() if line.startswith('  File "')]
    if not lines:
        return ""
    file, number = lines[-1].removeprefix('  File "').split('", line ', 1)
    return f"{file}:{number.split(',')[0]}"
