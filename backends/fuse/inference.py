"""Graphs that are in inference mode from their first operation to their last: what is in between is compiled, and run
in that mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode


def enters_inference_mode(gm: fx.GraphModule) -> bool:
    """Whether the graph changes inference mode itself."""
    return any(node.target is _enter_inference_mode for node in gm.graph.nodes)


def inside_inference_mode(gm: fx.GraphModule) -> fx.GraphModule | None:
    """The graph without the nodes that enter inference mode and leave it again; None where there is something before,
    behind, or between two such parts."""
    changes = [node for node in gm.graph.nodes if node.target in (_enter_inference_mode, _exit_inference_mode)]
    operations = [node for node in gm.graph.nodes if node.op not in ("placeholder", "output")]
    if [node.target for node in changes] != [_enter_inference_mode, _exit_inference_mode] or changes != [
        operations[0],
        operations[-1],
    ]:
        return None
    if changes[0].args != (True,):
        return None
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node not in changes:
            known[node] = graph.node_copy(node, known.__getitem__)
    inner = fx.GraphModule(gm, graph)
    inner.meta.update(gm.meta)
    return inner


def in_inference_mode(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Runs what was compiled for the inside of such a graph."""

    def run(*inputs: Any) -> Any:
        with torch.inference_mode():
            return compiled(*inputs)

    return run
