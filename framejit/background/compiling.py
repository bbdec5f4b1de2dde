"""Which frames are compiled beside the program, and what becomes of each: a worker keeps the entry on the disk, and the
next call that misses finds it there, as a second process would."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from functools import cache, partial
from time import perf_counter
from types import FunctionType
from typing import Any, Final

import torch

from framejit.background.reply import KEPT, LEFT, Capture, Reply, capture_in_worker
from framejit.background.worker import Worker, WorkerEnded
from framejit.capture.kept_entry import frame_place, look_again, why_not_kept, why_not_looked_for
from framejit.config import config
from framejit.environment.collector import rests_for_others
from framejit.environment.imports_under_way import other_threads_import
from framejit.events import emit, warn
from framejit.late_dataclass import dataclass

MOST_UNFIT: Final = 3
"""Entries in a row that did not fit the call which found them, before a call is compiled for itself."""
_changing = threading.RLock()  # reentrant: an allocation below may run a finalizer that calls what is compiled


@dataclass(frozen=True)
class _Compilation:
    owner: weakref.ref[Any]
    place: dict[str, Any]
    worker: Worker
    started: float


_under_way: list[_Compilation] = []
_made: weakref.WeakSet[Any] = weakref.WeakSet()
"""Owners for which an entry was kept that no call has looked for yet."""
_unfit: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_in_calls: weakref.WeakSet[Any] = weakref.WeakSet()
"""Owners whose frames are compiled in their calls."""
_left: weakref.WeakSet[Any] = weakref.WeakSet()
"""Owners that are left to Python, where no entry fits, since a worker ended that compiled for them."""


def settle() -> None:
    """Take in what workers have said by now."""
    with _changing:
        for compilation in list(_under_way):
            try:
                said = compilation.worker.said()
            except WorkerEnded as e:
                _finish(compilation)
                _failed(compilation, str(e))
            else:
                if said is not None:
                    _finish(compilation)
                    _take_in(compilation, Reply.read(said))


def was_made_for(owner: Any) -> bool:
    """Whether an entry was kept for an owner since this was asked last."""
    with _changing:
        if owner not in _made:
            return False
        _made.discard(owner)
        _unfit[owner] = _unfit.get(owner, 0) + 1
        return True


def fits(owner: Any) -> None:
    """The entry that was kept fits the call that looked for it."""
    _unfit.pop(owner, None)


def leaves_to_python(owner: Any, fn: FunctionType, flat_args: tuple[Any, ...], capture: Capture) -> bool:
    """Whether a call that no entry fits runs as plain Python, as its frame is compiled beside the program; a worker is
    started for it unless others are at work."""
    with _changing:
        if owner in _left:
            return True
        if owner in _in_calls:
            return False
        place = frame_place(owner, fn)
        why = _why_in_call(owner)
        if why:
            return _compile_in_calls(owner, place, why)
        if (
            len(_under_way) >= _most_at_once()
            or any(compilation.owner() is owner for compilation in _under_way)
            # a worker would find what other threads hold as they left it, and wait for them for ever
            or rests_for_others()
            or other_threads_import()
        ):
            return True
        _prepare()
        try:
            worker = Worker(partial(capture_in_worker, capture, owner, fn, flat_args), config.background_seconds)
        except OSError as e:
            return _compile_in_calls(owner, place, str(e))
        _under_way.append(_Compilation(weakref.ref(owner), place, worker, perf_counter()))
        _tell(place, "started")
        return True


def forget() -> None:
    """End all workers, and forget what became of earlier ones."""
    with _changing:
        while _under_way:
            _under_way.pop().worker.end()
        for known in (_made, _unfit, _in_calls, _left):
            known.clear()


def _why_in_call(owner: Any) -> str:
    """Why frames of an owner can't be compiled beside the program; empty if they can."""
    why = why_not_kept(owner) or why_not_looked_for()
    if why:
        return why
    if owner.options.launches_at_once:
        return "what is launched at once is made for this process"
    if torch.cuda.is_initialized():
        return "CUDA does not survive a fork"
    if _unfit.get(owner, 0) >= MOST_UNFIT:
        return "what was compiled did not fit the next call, several times"
    return ""


def _compile_in_calls(owner: Any, place: dict[str, Any], why: str) -> bool:
    _in_calls.add(owner)
    _tell(place, "in its calls", why)
    return False


def _take_in(compilation: _Compilation, reply: Reply) -> None:
    owner, seconds = compilation.owner(), perf_counter() - compilation.started
    if owner is None:
        return
    if reply.outcome == KEPT:
        _made.add(owner)
        look_again(owner)
        _tell(compilation.place, "kept", seconds=seconds)
    elif reply.outcome == LEFT:
        owner.skip = True
        _tell(compilation.place, "left to Python", reply.reason, seconds)
    else:
        _in_calls.add(owner)
        _tell(compilation.place, "in its calls", reply.reason, seconds)
    reply.tell()


def _failed(compilation: _Compilation, reason: str) -> None:
    owner, place = compilation.owner(), compilation.place
    if owner is None:
        return
    _left.add(owner)
    text = f"{place['function']} was being compiled in the background, and {reason}"
    _tell(place, "failed", reason, perf_counter() - compilation.started)
    emit(
        "frame_done", **place, state="eager", reason=f"compiled in the background, and {reason}", code="FJ214",
        seconds=0.0, n_graphs=0, n_ops=0, n_guards=0,
    )
    warn(f"{text}; it runs as plain Python", (place["file"], place["line"]))


def _finish(compilation: _Compilation) -> None:
    _under_way.remove(compilation)
    compilation.worker.close()


def _tell(place: dict[str, Any], state: str, reason: str = "", seconds: float = 0.0) -> None:
    named = {name: place[name] for name in ("function", "file", "line")}
    emit("background", **named, state=state, reason=reason, seconds=seconds)


@cache
def _most_at_once() -> int:
    """How many workers there may be: a share of the processors, for the program has its own use for them."""
    return max(1, len(os.sched_getaffinity(0)) // 4)


@cache
def _prepare() -> None:
    atexit.register(forget)
    os.register_at_fork(after_in_child=_in_fork)


def _in_fork() -> None:
    """In a fork of the program, which may be a worker: those that are under way are not its own."""
    global _changing
    _changing = threading.RLock()  # another thread may have held it
    while _under_way:
        _under_way.pop().worker.close()
