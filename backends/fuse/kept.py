"""Compiled graphs for captures that are kept (framejit/kept): what another process finds them by, and how."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from framejit import _native
from framejit.backends.fuse.account.compiled_graph import CompiledGraph, name_of, recall, remember
from framejit.backends.fuse.account.telling import tell_found, tell_unfused
from framejit.backends.fuse.cache.kept_plan import read_kept
from framejit.backends.fuse.cache.plan_cache import find
from framejit.backends.fuse.cache.plan_key import NotCacheable
from framejit.backends.fuse.selecting import choice_of, plainly, selector, total

if TYPE_CHECKING:
    from framejit.backends.fuse.sizes.by_size import BySize

_LEFT_TO_ATEN: Final = "left to ATen"
_TRAINING: Final = "training"
_IN_PARTS: Final = "in parts"


def kept_form(compiled: Callable[..., Any]) -> str:
    """The text by which another process finds a compiled graph (`from_kept_form`). Raises NotCacheable for a graph that
    has none."""
    from framejit.backends.fuse.autograd_nodes.differentiable import Differentiable
    from framejit.backends.fuse.in_parts import GraphInParts  # processes that find graphs need none of these
    from framejit.backends.fuse.kept_parts import keep_parts
    from framejit.backends.fuse.sizes.by_size import BySize
    from framejit.backends.fuse.training.kept_training import keep_training

    if isinstance(compiled, GraphInParts):
        return json.dumps({_IN_PARTS: keep_parts(compiled, kept_form)})
    by_size = getattr(getattr(compiled, "miss", None), "__self__", compiled)
    if isinstance(by_size, BySize):
        return _of_sizes(by_size)
    graph = recall(compiled)
    if isinstance(compiled, Differentiable):
        return json.dumps({_TRAINING: keep_training(compiled)})
    if not isinstance(compiled, _native.Selector) and (graph is None or graph.left_to_aten):
        return json.dumps({_LEFT_TO_ATEN: "" if graph is None else graph.reason})
    if graph is None or graph.kept is None:
        raise NotCacheable("its graph is compiled for this process only")
    return graph.kept.written()


def part_modules(compiled: Callable[..., Any]) -> list[Any]:
    """The graphs that a compiled graph consists of, for each of which `from_kept_form` wants one in `module.parts`."""
    from framejit.backends.fuse.in_parts import GraphInParts  # processes that find graphs do not ask

    return [part.module for part in compiled.parts] if isinstance(compiled, GraphInParts) else []


def _of_sizes(by_size: BySize) -> str:
    accounts = by_size.graphs()
    if accounts and all(account.left_to_aten for account in accounts):
        return json.dumps({_LEFT_TO_ATEN: accounts[0].reason})
    if by_size.why_static or not accounts or accounts[0].kept is None:
        raise NotCacheable("its graph is compiled for this process only, for each size")
    sizes = tuple((str(symbol), *symbol.bounds, *place) for symbol, place in by_size.places().items())
    return replace(accounts[0].kept, sizes=sizes).written()


def from_kept_form(written: str, module: Any, graph_id: int, give_up: Callable[[], None]) -> Callable[..., Any]:
    """The compiled graph that `kept_form` gave this text for, from the disk cache. `module` has the graph's own
    operations as `forward`, and `meta`. `give_up` is called where it comes to sizes that no plan is kept for.

    Raises NotCacheable where the plan is gone or not for this process, and whatever data that is none leads to.
    """
    said = json.loads(written)
    if _IN_PARTS in said:
        from framejit.backends.fuse.kept_parts import find_parts  # for those who ask for gradients

        return find_parts(said[_IN_PARTS], module, graph_id, give_up, from_kept_form)
    if _TRAINING in said:
        from framejit.backends.fuse.training.kept_training import find_training  # for those who train

        return find_training(str(said[_TRAINING]), module, graph_id, give_up)
    graph = CompiledGraph(name_of(graph_id, module.meta), weakref.ref(module), graph_id)
    reason = said.get(_LEFT_TO_ATEN)
    if reason is not None:
        return _as_aten(module, graph, str(reason))
    kept = read_kept(written)
    if kept.sizes:
        from framejit.backends.fuse.kept_sizes import KeptSizes  # for those who leave sizes open

        return KeptSizes(kept, module, graph_id, give_up).switch()
    key = kept.key_now()
    found = find(key, graph, module.forward) if key is not None else None
    if found is None:
        raise NotCacheable("its plan is not in the cache, or not for this process")
    remember(module, graph)
    record = found.record
    tell_found(graph, record)
    run = plainly(found.plan) if record.plain else found.plan
    graph.run = selector(run, module.forward, choice_of(record), graph, total(record))
    return graph.run


def _as_aten(module: Any, graph: CompiledGraph, reason: str) -> Callable[..., Any]:
    """A graph in which nothing is fused; without a reason the backend was not even asked."""
    if reason:
        graph.reason, graph.left_to_aten = reason, True
        remember(module, graph)
        tell_unfused(graph)
    forward: Callable[..., Any] = module.forward
    return forward
