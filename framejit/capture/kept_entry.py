"""An entry that another process made, for a frame of this one: found before the compiler is imported, and instead of
that (framejit/kept)."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import perf_counter
from types import CellType, FunctionType
from typing import Any

import torch

from framejit import _native as native
from framejit.backends.autocast_nesting import nesting
from framejit.backends.graph_identity import new_graph_id
from framejit.backends.registry import can_be_kept, from_kept_form
from framejit.capture.frame_ids import new_frame_id
from framejit.capture.replacement.entry_tag import EntryTag
from framejit.capture.replacement.kept_inputs import Copied, copies_of
from framejit.config import config
from framejit.events import emit
from framejit.events.log import log_writer
from framejit.events.meter import meter
from framejit.fakes.collector import resting
from framejit.guards import tensor_layout  # noqa: F401  calibrates the native tensor guards
from framejit.guards.thread_questions import is_fx_tracing
from framejit.kept import plain_values
from framejit.kept.entry_record import FAILURE, GRAPH, KEEPER, FoundEntry
from framejit.kept.graph_record import KeptGraph
from framejit.kept.not_kept import DoesNotFit, NotKept
from framejit.kept.object_table import find
from framejit.kept.store import drop, records, tell_unused
from framejit.kept.surroundings import key_of_frame

_asked: weakref.WeakSet[Any] = weakref.WeakSet()
"""Dispatchers for which an entry was looked for, which is done once: what their captures come to learn here goes beyond
what was kept."""
MakeFailure = Callable[..., Any]


def may_be_kept(owner: Any, fn: FunctionType) -> bool:
    """Whether entries of a dispatcher are kept, and looked for."""
    options = owner.options
    return (
        config.keep_captures
        and config.cache_size > 0
        and not config.artifacts
        and type(owner) is native.Dispatcher
        and not hasattr(fn, "_framejit_resume")
        and not options.verify
        and not options.freeze
        and not meter.running
        and can_be_kept(options.backend)
    )


def kept_entry(
    owner: Any, fn: FunctionType, flat_args: tuple[Any, ...], make_failure: Callable[[], MakeFailure]
) -> native.Entry | None:
    """The entry of another process that fits the frame, in service from now on; None if there is none. `make_failure`
    gives what makes of a kept entry's parts what stands by for its graph to raise."""
    if owner in _asked or not may_be_kept(owner, fn):
        return None
    _asked.add(owner)
    if owner.entries or owner.skip or log_writer.shows_captures or is_fx_tracing(torch):
        return None
    started = perf_counter()
    with resting():
        try:
            key = key_of_frame(fn, flat_args, owner.options)
        except NotKept:
            return None
        place = _place(owner, fn)
        for record in reversed(records(key)):
            try:
                entry = _entry(owner, fn, flat_args, record, key, make_failure, place)
            except (DoesNotFit, NotKept) as e:
                tell_unused(key, f"what was found does not fit: {e}")
            except Exception as e:  # whatever is wrong with it, the frame can still be captured
                tell_unused(key, f"what was found can't be used: {type(e).__name__}: {e}")
            else:
                owner.add_entry(entry)
                emit(
                    "frame_done", **place, state=entry.tag.state, reason="", code="", seconds=perf_counter() - started,
                    n_graphs=1, n_ops=entry.tag.n_ops, n_guards=len(entry.tag.records),
                )
                return entry
    return None


def _entry(
    owner: Any, fn: FunctionType, flat_args: tuple[Any, ...], record: bytes, key: str,
    make_failure: Callable[[], MakeFailure], place: dict[str, Any],
) -> native.Entry:
    found = FoundEntry(record, flat_args, fn)
    guards = found.guards()
    if not guards.check(flat_args, fn):
        raise DoesNotFit("a guard does not hold")
    graph, graph_id = KeptGraph(found.told["graph"]), new_graph_id()
    emit("capture_found", **place, graph_id=graph_id)
    made = {
        GRAPH: from_kept_form(
            owner.options, found.told["compiled"], graph, graph_id, place["frame_id"], _Outgrown(owner, graph)
        ),
        FAILURE: _Failure(owner, fn, found.told, lambda: drop(key, record), make_failure),
        KEEPER: _Keeper(found.told["keeper"]),
    }
    slots = found.slots(made)
    tag = EntryTag(
        found.records(native.snapshot_state()), None, "compiled", frozenset(found.told["changing"]),
        n_ops=found.told["n_ops"]
    )
    return native.Entry(found.code(slots), fn, guards, tuple(slots), 0, tag)


class _Outgrown:
    """Called where the graph itself is wanted, to be compiled for other sizes: the next call is captured here."""

    def __init__(self, owner: Any, graph: KeptGraph) -> None:
        self._owner, self._graph = weakref.ref(owner), weakref.ref(graph)

    def __call__(self) -> None:
        owner, graph = self._owner(), self._graph()
        if owner is None or graph is None:
            return
        for entry in owner.entries:
            if any(_runs(slot.target, graph) for slot in entry.slots):
                owner.remove_entry(entry)


def _runs(target: Any, graph: KeptGraph) -> bool:
    """Whether what a slot holds runs a kept graph."""
    by_size = getattr(getattr(target, "miss", None), "__self__", target)
    return getattr(by_size, "gm", None) is graph


class _Keeper:
    """Called before a graph that draws random numbers, nests autocast or writes into inputs, with these: what it may
    change before it raises."""

    def __init__(self, told: list[Any] | None) -> None:
        self._devices: list[str] = told[0] if told else []
        self._nests: bool = bool(told and told[1])

    def __call__(self, *tensors: torch.Tensor) -> tuple[list[Copied], list[tuple[Any, torch.Tensor]], int | None]:
        """The inputs with copies, the generators with their states, and the depth of autocast's nesting."""
        generators = [generator_of(torch.device(device)) for device in self._devices]
        states = [(generator, generator.get_state()) for generator in generators]
        return copies_of(tensors), states, nesting() if self._nests else None


def generator_of(device: torch.device) -> torch.Generator:
    """The generator that operations on a device draw from."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator


class _Failure:
    """Called where the graph raises; the compiler, which knows what becomes of that, is imported only then."""

    def __init__(
        self, owner: Any, fn: FunctionType, told: dict[str, Any], drop: Callable[[], None],
        make_failure: Callable[[], MakeFailure],
    ) -> None:
        self._owner, self._fn, self._told = weakref.ref(owner), weakref.ref(fn), told
        self._drop, self._make_failure = drop, make_failure

    def __call__(self, error: BaseException, kept: Any, cells: tuple[CellType, ...], *args: Any) -> Any:
        failure = self._make_failure()(
            self._owner, self._fn(), self, self.initial_state(), self._told["has_effects"], self._drop
        )
        return failure(error, kept, cells, *args)

    def initial_state(self) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Calls that put back the torch state that the graph changes."""
        return [(find(place), plain_values.read(values)) for place, values in self._told["initial_state"]]


def _place(owner: Any, fn: FunctionType) -> dict[str, Any]:
    """The frame as events name it."""
    options, code = owner.options, fn.__code__
    if options.file is not None and code is torch.nn.Module._wrapped_call_impl.__code__:
        named = {"function": options.name, "file": options.file, "line": options.line}
    else:
        named = {"function": code.co_qualname, "file": code.co_filename, "line": code.co_firstlineno}
    return {"frame_id": new_frame_id(), **named}
