"""Forward and backwards of a graph that needs gradients, each by way of passes, lowering, kernels and plan, or out of
the disk cache."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import fx

from framejit import _native
from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.account.stages import stages
from framejit.backends.fuse.cache.plan_cache import FoundPlan, find, keep, key_for
from framejit.backends.fuse.compile_graph import plan_record, tell_fused, tell_kernels
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.passes.pipeline import checked, run_passes
from framejit.backends.fuse.graph.text import text_of
from framejit.backends.fuse.training.differentiable import Differentiable, Runs
from framejit.fakes.collector import resting


def compile_differentiable(
    gm: fx.GraphModule, examples: Sequence[torch.Tensor], account: CompiledGraph
) -> Differentiable:
    """Compile a graph that gradients are wanted of. Raises NotFusable where it has to run as ATen."""
    accounts = [account]
    of_backwards: dict[int, CompiledGraph] = {}

    def compiles(graph: Graph, fallback: Runs, segment: int | None) -> _native.Plan:
        if segment is None:
            return _compiled(graph, fallback, account)
        if segment not in of_backwards:
            name = f"{account.name}_backward{len(of_backwards) + 1 if of_backwards else ''}"
            accounts.append(of_backwards.setdefault(segment, CompiledGraph(name, weakref.ref(gm), account.graph_id)))
        return _compiled(graph, fallback, of_backwards[segment])

    made = Differentiable(gm, examples, compiles, accounts)
    for backward in of_backwards.values():
        backward.region = made
    return made


def _compiled(graph: Graph, fallback: Runs, account: CompiledGraph) -> _native.Plan:
    """The plan of a half, which runs with gradients and autocast off."""
    with resting(), torch.no_grad(), torch._C._DisableAutocast():
        checked(graph)
        stages["record"] += 1
        text = account.recorded = text_of(graph)
        key = key_for(graph, text, False, {})
        found = find(key, account, fallback) if key is not None else None
        if found is None:
            record, launches = plan_record(run_passes(graph, None, ()), False, account)
            found = FoundPlan(record, record.parts.native(launches, fallback, account.name))
            if key is not None:
                keep(key, record)
        else:
            tell_fused(account, found.record.before_fusion, found.record.after_fusion)
            account.externs = [*found.record.externs]
        tell_kernels(account, found.record.kernels)
        return found.plan
