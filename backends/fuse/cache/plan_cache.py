"""Plans by way of the disk cache: a graph that a process of this machine has compiled before is neither lowered nor
scheduled again."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from framejit.backends.fuse.cache import disk_cache
from framejit.backends.fuse.cache.kernel_record import BadRecord, pack, unpack
from framejit.backends.fuse.cache.plan_key import NotCacheable, PlanKey, SymbolicSizes
from framejit.backends.fuse.cache.plan_record import PlanRecord, conditions_of, read, write
from framejit.backends.fuse.targets.kernel_code import load_kernels
from framejit.backends.fuse.targets.target import KernelLaunch
from framejit.config import config
from framejit.events import emit
from framejit.symbols.conditions import Condition

if TYPE_CHECKING:
    import torch

    from framejit import _native
    from framejit.backends.fuse.account.compiled_graph import CompiledGraph
    from framejit.backends.fuse.graph.graph import Graph
    from framejit.backends.fuse.graph.graph_text import GraphText
    from framejit.backends.fuse.layers.shortened import Shortened
    from framejit.backends.fuse.plan.plan_parts import PlanParts

KIND = "plan"
SYMBOLIC = "symbolicplan"
"""The kind of entries that hold all plans of one graph with symbolic sizes."""
MOST_VARIANTS = 16
"""Plans of one graph that are kept; the oldest go first."""


class FoundPlan(NamedTuple):
    """A plan that can run, and what is known of it."""

    record: PlanRecord
    parts: PlanParts
    """What the plan was made of, with the launches of its kernels."""
    plan: _native.Plan


class FoundVariant(NamedTuple):
    """A plan for symbolic sizes, how its kernels are launched, and the conditions that sizes must meet for it."""

    record: PlanRecord
    launches: list[KernelLaunch]
    conditions: tuple[Condition, ...]


def key_for(
    graph: Graph, text: GraphText, tracked: bool, weights: Mapping[int, torch.Tensor],
    sizes: SymbolicSizes | None = None, autotune: bool = False, same_random_numbers: bool = False,
    short: Shortened | None = None,
) -> PlanKey | None:
    """The key of the plan for what was recorded; None, and an event that says why, if it can't be kept. None too where
    each stage is to be written down."""
    if config.artifacts or not config.cache_size:
        return None
    from framejit.backends.fuse.cache.graph_key import plan_key  # for those who have a graph

    try:
        return plan_key(graph, text, tracked, weights, sizes, autotune, same_random_numbers, short)
    except NotCacheable as e:
        _not_kept(KIND, "", e)
    return None


def find(key: PlanKey, graph: CompiledGraph, fallback: Callable[..., Any]) -> FoundPlan | None:
    """The plan that was kept under a key, with its kernels loaded and in the graph's account; None if there is none
    that can be used."""
    found = find_record(key, graph)
    if found is None:
        return None
    try:
        parts = found.record.parts.launching(found.launches)
        return FoundPlan(found.record, parts, parts.native((), found.record.by_aten(fallback), graph.name))
    except Exception as e:  # whatever is wrong with it, the graph can still be compiled
        _unusable(KIND, key, graph, e)
        return None


def find_record(key: PlanKey, graph: CompiledGraph) -> FoundVariant | None:
    """The variant that the disk cache has for the key, before it is a plan that can run; None if it has none."""
    data = disk_cache.get(KIND, key.key)
    if data is None:
        return None
    try:
        record = read(data, key)
        return FoundVariant(record, _launches(record, graph), ())
    except Exception as e:  # whatever is wrong with it, the graph can still be compiled
        _unusable(KIND, key, graph, e)
        return None


def keep(key: PlanKey, record: PlanRecord) -> None:
    """Keep a plan; if that can't be done, an event says why."""
    try:
        disk_cache.put(KIND, key.key, write(record, key))
    except NotCacheable as e:
        _not_kept(KIND, key.key, e)


def find_variant(key: PlanKey, graph: CompiledGraph) -> tuple[FoundVariant | None, list[bytes]]:
    """A plan that was kept under a key with symbolic sizes, and is right for the sizes now, as `find` otherwise; and
    the records of all that are kept there."""
    from framejit.backends.fuse.sizes.by_size import holds  # for those who leave sizes open

    assert key.sizes is not None
    now = {symbol: symbol.hint for symbol in key.sizes.symbols}
    kept = _variants(key, graph)
    for data in kept:
        try:
            conditions = conditions_of(data, key.sizes.symbols)
            if all(holds(condition, now) for condition in conditions):
                record = read(data, key)
                return FoundVariant(record, _launches(record, graph), conditions), kept
        except Exception as e:  # another may be right
            _unusable(SYMBOLIC, key, graph, e)
    if kept:
        emit("cache", what=SYMBOLIC, hit=False, key=key.key, reason="what was found is for other sizes")
    return None, kept


def keep_variant(key: PlanKey, record: PlanRecord, kept: Sequence[bytes]) -> None:
    """Keep a plan for symbolic sizes besides those that were `kept` for others. Of two processes that do so at once,
    one may be in vain."""
    assert key.sizes is not None
    try:
        made = write(record, key)
    except NotCacheable as e:
        _not_kept(SYMBOLIC, key.key, e)
        return
    others = [data for data in kept if _is_readable(data, key.sizes)]
    disk_cache.put(
        SYMBOLIC, key.key, pack({}, {str(number): data for number, data in enumerate([*others, made][-MOST_VARIANTS:])})
    )


def _is_readable(data: bytes, sizes: SymbolicSizes) -> bool:
    try:
        conditions_of(data, sizes.symbols)
    except Exception:  # `find_variant` has told of it
        return False
    return True


def _variants(key: PlanKey, graph: CompiledGraph) -> list[bytes]:
    """The records that are kept under a key."""
    data = disk_cache.get(SYMBOLIC, key.key)
    try:
        return [] if data is None else [*unpack(data)[1].values()]
    except BadRecord as e:
        _unusable(SYMBOLIC, key, graph, e)
        return []


def _launches(record: PlanRecord, graph: CompiledGraph) -> list[KernelLaunch]:
    return load_kernels([(kernel.device, kernel.origins, kernel.described) for kernel in record.kernels], graph)


def _unusable(kind: str, key: PlanKey, graph: CompiledGraph, error: Exception) -> None:
    graph.kernels.clear()
    graph.machine_code.clear()
    emit(
        "cache", what=kind, hit=False, key=key.key,
        reason=f"what was found can't be used: {type(error).__name__}: {error}",
    )


def _not_kept(kind: str, key: str, why: NotCacheable) -> None:
    emit("cache", what=kind, hit=False, key=key, reason=f"not kept: {why}")
