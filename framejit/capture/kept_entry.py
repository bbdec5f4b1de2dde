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
from framejit.backends.own_operations import NUMPY, PYTHON
from framejit.backends.registry import can_be_kept, from_kept_form
from framejit.bytecode.flattened import flattened
from framejit.bytecode.original_code import original_code
from framejit.capture.breaks.resume_points import ResumePoints
from framejit.capture.frame_ids import new_frame_id
from framejit.capture.replacement.entry_tag import EntryTag
from framejit.capture.replacement.kept_inputs import Copied, copies_where_shared
from framejit.config import config
from framejit.environment.collector import resting
from framejit.events import emit
from framejit.events.log import log_writer
from framejit.events.meter import meter
from framejit.guards import tensor_layout  # noqa: F401  calibrates the native tensor guards
from framejit.guards.thread_questions import is_fx_tracing
from framejit.kept import plain_values
from framejit.kept.entry_record import FAILURE, GRAPH, KEEPER, STEP, FoundEntry
from framejit.kept.given_up import given_up
from framejit.kept.graph_record import KeptGraph
from framejit.kept.not_kept import DoesNotFit, NotKept
from framejit.kept.object_table import find
from framejit.kept.store import drop, records, tell_unused
from framejit.kept.surroundings import key_of_frame
from framejit.late_dataclass import dataclass
from framejit.short_lived import count_entry, never_last

MakeFailure = Callable[..., Any]


@dataclass(frozen=True)
class Compiler:
    """What has to be known of the compiler, which is not imported."""

    on_miss: Callable[..., Any]
    """What dispatchers of resume functions call in their turn."""
    watch_frames: Callable[[], None]
    """Has the frame hook look at the frames that are called between graphs."""
    make_failure: Callable[[], MakeFailure]
    """Gives what makes of a kept entry's parts what stands by for its graph to raise."""


def why_not_kept(owner: Any) -> str:
    """Why entries are not kept for their owner, nor looked for; empty if they are."""
    options = owner.options
    reasons = {
        "nothing is to be kept on the disk": not config.keep_captures or config.cache_size <= 0,
        "what is compiled is written down": bool(config.artifacts),
        "its calls are verified": bool(options.verify),
        "its weights are frozen": options.freeze,
        "the program is being measured": bool(meter.running),
        f"the backend {options.backend_name!r} is not framejit's own": not can_be_kept(options.backend),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def may_be_kept(owner: Any) -> bool:
    """Whether entries are kept for their owner, and looked for."""
    return not why_not_kept(owner)


def why_not_looked_for() -> str:
    """Why no kept entry would be looked for now, whatever the owner; empty if one is."""
    if log_writer.shows_captures:
        return "a log is written of what only capturing brings to light"
    return "torch.fx traces the program" if is_fx_tracing(torch) else ""


def look_again(owner: Any) -> None:
    """Have the next miss look for entries once more: another process has kept one by now."""
    given_up.discard(owner)


def kept_entry(
    owner: Any, fn: FunctionType, flat_args: tuple[Any, ...], compiler: Compiler, takes_latest: bool = False
) -> tuple[native.Entry | None, str]:
    """The entry of another process that fits the frame, in service from now on; None if there is none. With it the
    frame's key, empty where none was looked for.

    With `takes_latest` the one that was kept last is in service, too, if all that it has belongs to this process, but a
    guard does not hold now: it was captured for the owner, and misses of it are learnt from.
    """
    if owner in given_up or not may_be_kept(owner):
        return None, ""
    if owner.skip or why_not_looked_for():
        return None, ""
    started = perf_counter()
    with resting():
        try:
            key = key_of_frame(fn, flat_args, owner.options)
        except NotKept:
            key = ""
        place = frame_place(owner, fn)
        for number, record in enumerate(reversed(records(key) if key else [])):
            try:
                finding = _Finding(owner, fn, flat_args, key, record, place, compiler)
                entry = finding.entry(takes_latest and number == 0)
            except (DoesNotFit, NotKept) as e:
                tell_unused(key, f"what was found does not fit: {e}")
            except Exception as e:  # whatever is wrong with it, the frame can still be captured
                tell_unused(key, f"what was found can't be used: {type(e).__name__}: {e}")
            else:
                owner.add_entry(entry.entry)
                entry.tell(perf_counter() - started)
                count_entry(owner)
                if never_last(owner):
                    given_up.add(owner)
                if entry.fits:
                    return entry.entry, key
    given_up.add(owner)
    return None, key


def resume_points(owner: Any, compiler: Compiler) -> ResumePoints:
    """Where the entries of an owner go on after graph breaks: all share them."""
    known = owner.resume_points or next((e.tag.resume_points for e in owner.entries), None)
    return known or ResumePoints(compiler.on_miss, owner.options)


@dataclass
class _Found:
    """An entry, and what is told of it."""

    entry: native.Entry
    place: dict[str, Any]
    told: dict[str, Any]
    graph_break: dict[str, Any] | None
    fits: bool

    def tell(self, seconds: float) -> None:
        """What the process told that captured it."""
        place, tag = self.place, self.entry.tag
        if self.graph_break is not None:
            emit("graph_break", frame_id=place["frame_id"], **self.graph_break)
        if self.told["selected"]:
            from framejit.events.place import Place  # for an `if` on data
            from framejit.events.selected import tell_selected

            selected = [(Place(*span), operations, form) for span, operations, form in self.told["selected"]]
            tell_selected(place["frame_id"], place["function"], selected)
        emit(
            "frame_done", **place, state=tag.state, reason=self.told["reason"], code="", seconds=seconds,
            n_graphs=int(self.told["graph"] is not None), n_ops=tag.n_ops, n_guards=len(tag.records),
        )


@dataclass
class _Finding:
    """A record that is tried on a frame."""

    owner: Any
    fn: FunctionType
    flat_args: tuple[Any, ...]
    key: str
    record: bytes
    place: dict[str, Any]
    compiler: Compiler

    def entry(self, is_wanted: bool) -> _Found:
        """Raises DoesNotFit, unless it `is_wanted` though a guard does not hold, NotKept, and whatever data that is
        none leads to."""
        owner, fn = self.owner, self.fn
        found = FoundEntry(self.record, self.flat_args, fn)
        resumed_in_traceback = hasattr(fn, "_framejit_resume") and native.is_in_traceback()
        if found.told["in_traceback"] is not resumed_in_traceback:
            raise DoesNotFit("an earlier part of the frame is in a traceback, or is not")
        guards = found.guards()
        fits = guards.check(self.flat_args, fn)
        if not fits and not is_wanted:
            raise DoesNotFit("a guard does not hold")
        points, told = resume_points(owner, self.compiler), found.told
        graph_id = new_graph_id() if told["graph"] is not None else 0
        emit("capture_found", **self.place, graph_id=graph_id)
        made = self._of_graph(told, graph_id, points) if told["graph"] is not None else {}
        if found.at_break is not None:
            from framejit.capture.breaks.kept_step import read_step  # graphs that don't break need no bytecode

            made[STEP] = read_step(found.at_break, fn, found.object, points)
            self.compiler.watch_frames()
        slots = found.slots(made)
        tag = EntryTag(
            found.records(native.snapshot_state()), points, told["state"], frozenset(told["changing"]),
            n_ops=told["n_ops"]
        )
        code = found.code(slots)
        flags = native.RUNS_USER_CODE if code is None else 0
        entry = native.Entry(code or flattened(fn.__code__), fn, guards, tuple(slots), flags, tag)
        return _Found(entry, self.place, told, found.at_break and found.at_break["told"], fits)

    def _of_graph(self, told: dict[str, Any], graph_id: int, points: ResumePoints) -> dict[str, Any]:
        """What is made anew for a graph."""
        graph = KeptGraph(told["graph"])
        graph.parts += map(KeptGraph, told["parts"])
        return {
            GRAPH: from_kept_form(
                self.owner.options, told["compiled"], graph, graph_id, self.place["frame_id"],
                _Outgrown(self.owner, graph),
            ),
            FAILURE: _Failure(self.owner, self.fn, points, told, self._drop, self.compiler.make_failure),
            KEEPER: _Keeper(told["keeper"]),
        }

    @property
    def _drop(self) -> Callable[[], None]:
        key, record, owner = self.key, self.record, weakref.ref(self.owner)

        def forget() -> None:
            drop(key, record)
            _give_up(owner())

        return forget


def _give_up(owner: Any) -> None:
    if owner is not None:
        given_up.add(owner)


class _Outgrown:
    """Called where the graph itself is wanted, to be compiled for other sizes: the next call is captured here."""

    def __init__(self, owner: Any, graph: KeptGraph) -> None:
        self._owner, self._graph = weakref.ref(owner), weakref.ref(graph)

    def __call__(self) -> None:
        owner, graph = self._owner(), self._graph()
        if owner is None or graph is None:
            return
        _give_up(owner)
        for entry in owner.entries:
            if any(_runs(slot.target, graph) for slot in entry.slots):
                owner.remove_entry(entry)


def _runs(target: Any, graph: KeptGraph) -> bool:
    """Whether what a slot holds runs a kept graph."""
    by_size = getattr(getattr(target, "miss", None), "__self__", target)
    return getattr(getattr(by_size, "eager", None), "__self__", None) is graph


class _Keeper:
    """Called before a graph that draws random numbers, nests autocast or writes into inputs, with these: what it may
    change before it raises."""

    def __init__(self, told: list[Any] | None) -> None:
        self._devices: list[str] = told[0] if told else []
        self._nests: bool = bool(told and told[1])
        self._always, self._where_shared = told[2:] if told else (0, [])

    def __call__(self, *tensors: torch.Tensor) -> tuple[list[Copied], list[tuple[Any, torch.Tensor]], int | None]:
        """The inputs with copies, the generators with their states, and the depth of autocast's nesting."""
        generators = [_generator(device) for device in self._devices]
        states = [(generator, generator.get_state()) for generator in generators]
        copies = copies_where_shared(tensors, self._always, self._where_shared)
        return copies, states, nesting() if self._nests else None


def _generator(device: str) -> Any:
    """The generator that a kept graph draws from, by what it says its device is: Python's and numpy's are those of
    their modules."""
    if device == PYTHON:
        from framejit.backends.draws.python_random import PythonGenerator  # few graphs draw from it

        return PythonGenerator(0)
    if device == NUMPY:
        from framejit.backends.draws.numpy_random import NumpyGenerator

        return NumpyGenerator(0)
    return generator_of(torch.device(device))


def generator_of(device: torch.device) -> torch.Generator:
    """The generator that operations on a device draw from."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator


class _Failure:
    """Called where the graph raises; the compiler, which knows what becomes of that, is imported only then."""

    def __init__(
        self, owner: Any, fn: FunctionType, points: ResumePoints, told: dict[str, Any], drop: Callable[[], None],
        make_failure: Callable[[], MakeFailure],
    ) -> None:
        self._owner, self._fn, self._points, self._told = weakref.ref(owner), weakref.ref(fn), points, told
        self._drop, self._make_failure = drop, make_failure

    def __call__(self, error: BaseException, kept: Any, cells: tuple[CellType, ...], *args: Any) -> Any:
        failure = self._make_failure()(
            self._owner, self._fn(), self._points, self, self.initial_state(), self._told["has_effects"], self._drop
        )
        return failure(error, kept, cells, *args)

    def initial_state(self) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Calls that put back the torch state that the graph changes."""
        return [(find(place), plain_values.read(values)) for place, values in self._told["initial_state"]]


def frame_place(owner: Any, fn: FunctionType) -> dict[str, Any]:
    """The frame as events name it."""
    options, code = owner.options, original_code(fn)
    if options.file is not None and code is torch.nn.Module._wrapped_call_impl.__code__:
        named = {"function": options.name, "file": options.file, "line": options.line}
    else:
        named = {"function": code.co_qualname, "file": code.co_filename, "line": code.co_firstlineno}
    return {"frame_id": new_frame_id(), **named}
