"""Plans by way of the disk cache: a graph that a process of this machine has compiled before is neither lowered nor scheduled again."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from framejit.backends.fuse import disk_cache
from framejit.backends.fuse.compile import load_kernels
from framejit.backends.fuse.plan_key import NotCacheable, PlanKey, plan_key
from framejit.backends.fuse.plan_record import PlanRecord, read, write
from framejit.config import config
from framejit.events import emit

if TYPE_CHECKING:
    from framejit import _native
    from framejit.backends.fuse.compiled_graph import CompiledGraph
    from framejit.backends.fuse.graph.graph import Graph
    from framejit.backends.fuse.graph.text import GraphText

KIND = "plan"


class FoundPlan(NamedTuple):
    """A plan that can run, and what is known of it."""

    record: PlanRecord
    plan: _native.Plan


def key_for(graph: Graph, text: GraphText, tracked: bool) -> PlanKey | None:
    """The key of the plan for what was recorded; None, and an event that says why, if it can't be kept. None too where each stage is to be written down."""
    if config.artifacts or not config.cache_size:
        return None
    try:
        return plan_key(graph, text, tracked)
    except NotCacheable as e:
        _not_kept("", e)
    return None


def find(key: PlanKey, graph: CompiledGraph, fallback: Callable[..., Any]) -> FoundPlan | None:
    """The plan that was kept under a key, with its kernels loaded and in the graph's account; None if there is none that can be used."""
    data = disk_cache.get(KIND, key.key)
    if data is None:
        return None
    try:
        record = read(data, key)
        launches = load_kernels([(kernel.device, kernel.origins, kernel.described) for kernel in record.kernels], graph)
        return FoundPlan(record, record.parts.native(launches, fallback, graph.name))
    except Exception as e:  # whatever is wrong with it, the graph can still be compiled
        graph.kernels.clear()
        graph.machine_code.clear()
        emit("cache", what=KIND, hit=False, key=key.key, reason=f"what was found can't be used: {type(e).__name__}: {e}")
        return None


def keep(key: PlanKey, record: PlanRecord) -> None:
    """Keep a plan; if that can't be done, an event says why."""
    try:
        disk_cache.put(KIND, key.key, write(record, key))
    except NotCacheable as e:
        _not_kept(key.key, e)


def _not_kept(key: str, why: NotCacheable) -> None:
    emit("cache", what=KIND, hit=False, key=key, reason=f"not kept: {why}")
