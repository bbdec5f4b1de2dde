"""The keeping of an entry for other processes, once it stands (framejit/kept)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial
from typing import Any

import torch

from framejit import _native as native
from framejit.backends.registry import kept_form, part_modules
from framejit.capture.breaks.kept_step import Break, written_break
from framejit.capture.capture import Capture
from framejit.capture.frame_compilation import FrameCompilation
from framejit.capture.replacement.graph_failure import GraphFailure, Keeper, Rehearsal
from framejit.guards.guard import Guard
from framejit.guards.lower import LoweredGuards
from framejit.guards.sources import CallSource, ConstSource, Source
from framejit.kept import plain_values
from framejit.kept.entry_record import FAILURE, GRAPH, KEEPER, STEP, Parts, written_entry
from framejit.kept.graph_record import written_graph
from framejit.kept.not_kept import NotKept
from framejit.kept.object_table import place_of
from framejit.kept.store import drop, keep, tell_kept, tell_not_kept
from framejit.kept.surroundings import key_of_frame
from framejit.late_dataclass import dataclass


@dataclass(frozen=True)
class KeptParts:
    """What an entry has of its graph."""

    module: torch.fx.GraphModule
    compiled: Callable[..., Any]
    failure: GraphFailure
    keeper: Callable[..., Any] | None


def keep_entry(
    compilation: FrameCompilation, capture: Capture, entry: native.Entry, guards: LoweredGuards, reason: str,
    graph: KeptParts | None, at_break: Break | None = None, rehearsal: Rehearsal | None = None,
) -> None:
    """Keep an entry until its graph raises, if it has a rehearsal from when that went well; an event says why, where it
    can't be."""
    place = compilation.function_place
    try:
        _check(capture)
        told: dict[str, Any] = {
            "state": entry.tag.state,
            "reason": reason,
            "n_ops": capture.graph.n_ops,
            "selected": [(astuple(place), operations, form) for place, operations, form in capture.selected],
            "changing": sorted(capture.changing),
            "in_traceback": capture.in_traceback,
            "graph": None,
        }
        kinds: dict[int, str] = {}
        if graph is not None:
            told |= _told_of(graph, capture, compilation.options.backend)
            kinds = {id(graph.compiled): GRAPH, id(graph.failure): FAILURE}
            if isinstance(graph.keeper, Keeper):
                kinds[id(graph.keeper)] = KEEPER
        if at_break is not None:
            kinds[id(at_break.step)] = STEP
        record = written_entry(
            guards.roots, guards.n_records, _labels(guards.guards), entry.tag.records, capture.assumed,
            Parts(
                None if entry.flags & native.RUNS_USER_CODE else entry.code, entry.slots, kinds, told,
                None if at_break is None else partial(written_break, at_break, compilation.fn),
            ),
            (compilation.flat_args, compilation.fn),
        )
        key = compilation.key or key_of_frame(compilation.fn, compilation.flat_args, compilation.options)
        if graph is not None:
            graph.failure.forget = partial(drop, key, record)
        if rehearsal is None:
            _keep(key, record, place, "")
        else:
            rehearsal.keep = partial(_keep, key, record, place)
    except NotKept as e:
        tell_not_kept(place, str(e))
    except Exception as e:  # the entry serves here, whatever is wrong with keeping it
        tell_not_kept(place, f"{type(e).__name__}: {e}")


def _keep(key: str, record: bytes, place: tuple[str, str, int], why_not: str) -> None:
    if why_not:
        tell_not_kept(place, why_not)
        return
    keep(key, record)
    tell_kept(place)


def _told_of(graph: KeptParts, capture: Capture, backend: Callable[..., Any]) -> dict[str, Any]:
    """The graph, how what was compiled of it is found again, and what an error of it has to put back."""
    return {
        "graph": written_graph(graph.module),
        "parts": [written_graph(module) for module in part_modules(backend, graph.compiled)],
        "compiled": kept_form(backend, graph.compiled),
        "keeper": graph.keeper.told if isinstance(graph.keeper, Keeper) else None,
        "has_effects": capture.graph_effects().any,
        "initial_state": [_written_change(setter, values) for setter, values in capture.initial_state],
    }


def _check(capture: Capture) -> None:
    if capture.overrides.met or capture.overrides.modes:
        raise NotKept("a __torch_function__ of the program was asked")
    if capture.made_classes or capture.ids_taken:
        raise NotKept("it depends on where objects lie, or makes classes")


def _written_change(setter: Callable[..., Any], values: tuple[Any, ...]) -> list[Any]:
    place = place_of(setter)
    if place is None:
        raise NotKept(f"its graph changes torch's state by {setter}")
    return [place, plain_values.written(values)]


def _labels(guards: Sequence[Guard]) -> dict[int, str]:
    """What guards call the objects that they begin at, and the functions that they call, by id."""
    found: dict[int, str] = {}
    seen: set[int] = set()
    for guard in guards:
        walk: Source | None
        for walk in (guard.source, *guard.also):
            while walk is not None and id(walk) not in seen:
                seen.add(id(walk))
                if isinstance(walk, ConstSource):
                    found[id(walk.ref.value)] = walk.label
                elif isinstance(walk, CallSource):
                    found.setdefault(id(walk.function), "")
                walk = walk.base
    return found
