"""The keeping of an entry for other processes, once it stands (framejit/kept)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import CodeType
from typing import Any

import torch

from framejit import _native as native
from framejit.backends.registry import kept_form
from framejit.capture.capture import Capture
from framejit.capture.frame_compilation import FrameCompilation
from framejit.capture.replacement.graph_failure import GraphFailure, Keeper, Rehearsal
from framejit.guards.guard import Guard, GuardRecord
from framejit.guards.lower import described
from framejit.guards.sources import CallSource, ConstSource, Source
from framejit.kept import plain_values
from framejit.kept.entry_record import FAILURE, GRAPH, KEEPER, Parts, written_entry
from framejit.kept.graph_record import written_graph
from framejit.kept.not_kept import NotKept
from framejit.kept.object_table import place_of
from framejit.kept.store import drop, keep, tell_not_kept
from framejit.kept.surroundings import key_of_frame


def keep_entry(
    compilation: FrameCompilation, capture: Capture, code: CodeType, slots: Sequence[native.Slot],
    records: Sequence[GuardRecord], module: torch.fx.GraphModule, compiled: Callable[..., Any], failure: GraphFailure,
    keeper: Callable[..., Any] | None, rehearsal: Rehearsal | None
) -> None:
    """Keep an entry until its graph raises, if it has a rehearsal from when that went well; an event says why, where it
    can't be."""
    frame = compilation.flat_args, compilation.fn
    try:
        _check(capture)
        told = {
            "graph": written_graph(module),
            "compiled": kept_form(compilation.options.backend, compiled),
            "keeper": None,
            "n_ops": capture.graph.n_ops,
            "changing": sorted(capture.changing),
            "has_effects": capture.graph_effects().any,
            "initial_state": [_written_change(setter, values) for setter, values in capture.initial_state],
        }
        kinds = {id(compiled): GRAPH, id(failure): FAILURE}
        if isinstance(keeper, Keeper):
            told["keeper"] = keeper.told
            kinds[id(keeper)] = KEEPER
        guards = capture.guards()
        roots, n_records = described(guards)
        record = written_entry(
            roots, n_records, _labels(guards), records, capture.assumed, Parts(code, slots, kinds, told), frame
        )
        key = key_of_frame(compilation.fn, compilation.flat_args, compilation.options)
        failure.forget = partial(drop, key, record)
        if rehearsal is None:
            keep(key, record)
        else:
            rehearsal.keep = partial(keep, key, record)
    except NotKept as e:
        tell_not_kept(str(e))
    except Exception as e:  # the entry serves here, whatever is wrong with keeping it
        tell_not_kept(f"{type(e).__name__}: {e}")


def _check(capture: Capture) -> None:
    if capture.overrides.met or capture.overrides.modes:
        raise NotKept("a __torch_function__ of the program was asked")
    if capture.made_classes or capture.ids_taken or capture.in_traceback:
        raise NotKept("it depends on where objects lie, or makes classes")


def _written_change(setter: Callable[..., Any], values: tuple[Any, ...]) -> list[Any]:
    place = place_of(setter)
    if place is None:
        raise NotKept(f"its graph changes torch's state by {setter}")
    return [place, plain_values.written(values)]


def _labels(guards: Sequence[Guard]) -> dict[int, str]:
    """What guards call the objects that they begin at, and the functions that they call, by id."""
    found: dict[int, str] = {}
    for guard in guards:
        walk: Source | None
        for walk in (guard.source, *guard.also):
            while walk is not None:
                if isinstance(walk, ConstSource):
                    found[id(walk.ref.value)] = walk.label
                elif isinstance(walk, CallSource):
                    found.setdefault(id(walk.function), "")
                walk = walk.base
    return found
