"""Compiled graphs for captures that are kept (framejit/kept): what another process finds them by, and how."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from framejit import _native
from framejit.backends.fuse.account.compiled_graph import CompiledGraph, recall, remember
from framejit.backends.fuse.account.telling import tell_fused, tell_kernels
from framejit.backends.fuse.cache.kept_plan import find_kept
from framejit.backends.fuse.cache.plan_key import NotCacheable
from framejit.backends.fuse.selecting import plainly, selector, total


def kept_form(compiled: Callable[..., Any]) -> str:
    """What another process finds a compiled graph by. Raises NotCacheable for a graph that has no such form."""
    graph = recall(compiled) if isinstance(compiled, _native.Selector) else None
    if graph is None or graph.kept is None:
        raise NotCacheable("its graph is compiled for this process only")
    return graph.kept.written()


def from_kept_form(written: str, module: Any, graph_id: int) -> Callable[..., Any]:
    """What `kept_form` was given, from the disk cache; `module` has the graph's own operations as `forward`, and
    `meta`. Raises NotCacheable where the plan is gone or not for this process, and whatever data that is none leads to.
    """
    graph = CompiledGraph(f"graph_{graph_id}", weakref.ref(module), graph_id)
    found = find_kept(written, graph, module.forward)
    if found is None:
        raise NotCacheable("its plan is not in the cache, or not for this process")
    remember(module, graph)
    tell_fused(graph, found.record.before_fusion, found.record.after_fusion)
    graph.externs = [*found.record.externs]
    record = found.record
    tell_kernels(graph, record.kernels)
    run = plainly(found.plan) if record.plain else found.plan
    graph.run = selector(run, module.forward, record.pure, record.cuda, graph, total(record))
    return graph.run
