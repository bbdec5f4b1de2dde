"""Whole programs through the fusing backend, with the plan itself run on every call: never eager instead because it
measured quicker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import framejit
from framejit.backends.fuse.account.compiled_graph import CompiledGraph, recall
from framejit.backends.fuse.backend import fuse_graph
from framejit.backends.graph_identity import LAUNCH_GRAPHS
from tests.fuse.lowering.lowering_checks import compare, copies, tensors

from support import seed


class Mode:
    """How graphs are compiled that `planned` asks for."""

    launch_graphs = False


def planned(fn: Callable[..., Any]) -> tuple[Callable[..., Any], list[CompiledGraph]]:
    """`fn` compiled, and the accounts of its graphs, which are added as they are captured."""
    graphs: list[CompiledGraph] = []

    def backend(gm: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        if Mode.launch_graphs:
            gm.meta[LAUNCH_GRAPHS] = True
        compiled = fuse_graph(gm, examples)
        account = recall(compiled)
        assert account is not None
        graphs.append(account)
        return getattr(compiled, "compiled", compiled)

    return framejit.optimize(fn, backend=backend), graphs


def check(
    fn: Callable[..., Any], *args: Any, refused: bool = False, externs: int | None = None, atol: float | None = None,
    rtol: float | None = None
) -> list[CompiledGraph]:
    """Compare some calls of the compiled function with eager: results, aliases, what is left in the arguments and how
    often that was written.

    `refused`: whether the graph must run as ATen; `externs`: how many operations ATen may do. Returns the accounts of
    the graphs.
    """
    compiled, graphs = planned(fn)
    for _ in range(7 if Mode.launch_graphs else 3):
        mine, theirs = copies(args), copies(args)
        seed(3)
        expected = fn(*theirs)
        seed(3)
        got = compiled(*mine)
        compare(got, expected, atol, rtol)
        compare(mine, theirs, atol, rtol)
        assert versions([got, mine]) == versions([expected, theirs])
        same_aliases([got, mine], [expected, theirs])
    assert graphs, "no graph was captured"
    for graph in graphs:
        assert bool(graph.reason) == refused, graph.reason or "it was compiled"
        if externs is not None:
            assert len(graph.externs) <= externs, graph.externs
    return graphs


def versions(tree: Any) -> list[int]:
    """How often the tensors in it were written. Inference tensors do not count."""
    return [tensor._version for tensor in tensors(tree) if not tensor.is_inference()]


def same_aliases(mine: Any, theirs: Any) -> None:
    """Checks that tensors of both results are the same objects, share memory and need gradients alike."""
    a, b = tensors(mine), tensors(theirs)
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        assert x.requires_grad == y.requires_grad
        for j in range(i):
            assert (x is a[j]) == (y is b[j]), "other objects are the same"
            if x.numel() and a[j].numel():
                assert (memory(x) == memory(a[j])) == (memory(y) == memory(b[j])), "other tensors share memory"


def memory(tensor: torch.Tensor) -> int:
    """Where the tensor's storage lies."""
    return tensor.untyped_storage().data_ptr()
