"""Which calls the hook leaves to Python though their functions may be compiled: of functions that nobody named, as
`framejit run` meets them, a program may call many for the last time, and compiling takes longer than such calls.

A function that was compiled is left to Python, too, for calls that nothing fits (an evaluation now and then, the last
batch), until they have taken a part of the time that compiling it took. It is the rule by which skis are rented until
the rent has come to what they cost (Karlin, Manasse, Rudolph, Sleator, Competitive snoopy caching, 1988); that it is a
part only, is since most of what comes once more comes for long.
"""
from __future__ import annotations

import sys
import threading
import time
import weakref
from types import CodeType, FrameType, FunctionType
from typing import Final

from framejit._native import Dispatcher, EntryCache
from framejit.config import config
from framejit.environment.processor_waits import waited_for_processors
from framejit.events import Waiting, emit
from framejit.late_dataclass import dataclass

LATER_CALLS: Final = 10
"""After so many calls functions are compiled that were left to Python while what they call was compiled: an evaluation
now and then, of which the model is compiled, wins little by being compiled, too."""
WHILE_MADE_S: Final = 10.0
"""Functions that are called by constructors of modules are left to Python for so long; a program may well train in
one."""
SHARE: Final = 0.25
"""Of the time that compiling a function took last: for so long it runs in Python where nothing fits."""
UNKNOWN_S: Final = 1.0
"""What is taken for that time where another process compiled it."""

_first_calls: weakref.WeakKeyDictionary[EntryCache, tuple[float, int, float]] = weakref.WeakKeyDictionary()
"""When the hook met a function first, of those that were left to Python then, in which thread, and how long that had
waited for a processor."""
_leading: weakref.WeakKeyDictionary[CodeType, int] = weakref.WeakKeyDictionary()
"""The code of functions that were left to Python while what they call was compiled, and how often they were called
since."""


@dataclass
class _Patience:
    """How long a function that was compiled runs in Python for calls that nothing fits."""

    seconds: float
    """In all."""
    begun_ns: int
    """How long the hook had left it to Python when it was compiled."""
    has_begun: bool = False
    """Whether there was such a call."""

    def left(self, owner: EntryCache) -> float:
        """The seconds that are left."""
        return self.seconds - (owner.python_ns - self.begun_ns) / 1e9


_patience: weakref.WeakKeyDictionary[EntryCache, _Patience] = weakref.WeakKeyDictionary()
_left_until: weakref.WeakKeyDictionary[CodeType, float] = weakref.WeakKeyDictionary()
"""The code of functions that wait so, and until when what they call waits, too."""


def is_left_for_now(owner: EntryCache, fn: FunctionType) -> bool:
    """Whether a call that no entry fits is left to Python. While a module is made, functions are called for each of its
    parts, and then no more."""
    if type(owner) is Dispatcher or hasattr(fn, "_framejit_resume"):
        return False
    if owner.entries:
        _note_callers()
        return _begins_to_wait(owner)
    from framejit.interpreter.without_tensors import module_being_made

    now = time.monotonic()
    known_for = _known_for(owner, now)
    making = False
    if not _leads_to_compiled(fn.__code__) and not _is_called_by_one_that_waits(now):
        is_over = known_for >= max(config.compile_after, WHILE_MADE_S)
        making = not is_over and module_being_made()
        if is_over or known_for >= config.compile_after and not making:
            _note_callers()
            return False
    if not known_for:
        reason, finding = ("a module is being made", "FJ207") if making else ("called for a moment so far", "FJ212")
        tell_left(fn.__code__, "eager", reason, finding)
    return True


def _known_for(owner: EntryCache, now: float) -> float:
    """How many seconds ago the hook met a function first, without those in which the program did not come to run, on a
    machine that is busy: what is called for the last time then is not called for long."""
    thread = threading.get_ident()
    if owner not in _first_calls:
        _first_calls[owner] = now, thread, waited_for_processors()
    since, first_thread, waited = _first_calls[owner]
    known_for = now - since
    if known_for >= config.compile_after and thread == first_thread:
        known_for -= waited_for_processors() - waited
    return known_for


def goes_on_waiting(owner: EntryCache) -> bool:
    """Whether a call that no entry fits is left to Python as the one before was, which needs no further look."""
    patience = _patience.get(owner)
    if patience is None or not patience.has_begun or not owner.entries or not _waits(owner, patience):
        return False
    _note_callers()
    return True


def waiting_of(owner: EntryCache) -> Waiting | None:
    """How long a function has run in Python for calls that nothing fits; None where there were none."""
    patience = _patience.get(owner)
    if patience is None or not patience.has_begun:
        return None
    return Waiting(patience.seconds - patience.left(owner), patience.seconds)


def was_compiled(owner: EntryCache, seconds: float) -> None:
    """Note of a function that the hook met how many seconds compiling it took."""
    if config.compile_after and type(owner) is not Dispatcher:
        _patience[owner] = _Patience(SHARE * seconds, owner.python_ns)


def forget() -> None:
    """Nothing is compiled any more."""
    _patience.clear()
    _left_until.clear()


def _begins_to_wait(owner: EntryCache) -> bool:
    if not config.compile_after or owner.options.background:
        return False
    patience = _patience.setdefault(owner, _Patience(SHARE * UNKNOWN_S, owner.python_ns))
    patience.has_begun = _waits(owner, patience)
    return patience.has_begun


def _waits(owner: EntryCache, patience: _Patience) -> bool:
    left = patience.left(owner)
    if left > 0:
        _left_until[owner.code] = time.monotonic() + max(left, config.compile_after)
    return left > 0


def _is_called_by_one_that_waits(now: float) -> bool:
    """Whether a function is called by one that waits: the parts of what is not compiled yet are not compiled one by
    one."""
    frame: FrameType | None = sys._getframe(2) if _left_until else None
    while frame is not None:
        if now < _left_until.get(frame.f_code, now):
            return True
        frame = frame.f_back
    return False


def _leads_to_compiled(code: CodeType) -> bool:
    """Whether what a function calls is compiled, and itself is not called often."""
    if code not in _leading:
        return False
    _leading[code] += 1
    return _leading[code] < LATER_CALLS


def _note_callers() -> None:
    """Something is about to be compiled beneath functions that were left to Python, or is compiled for most calls."""
    if not config.compile_after:
        return
    left = {owner.code for owner in _first_calls}
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code in left:
            _leading.setdefault(frame.f_code, 0)
        frame = frame.f_back


def tell_left(code: CodeType, state: str, reason: str, finding: str) -> None:
    """Tell that a frame runs as it is."""
    from framejit.capture.frame_ids import new_frame_id  # no part of `import framejit`

    emit(
        "frame_done", frame_id=new_frame_id(), function=code.co_qualname, file=code.co_filename,
        line=code.co_firstlineno, state=state, reason=reason, code=finding, seconds=0.0, n_graphs=0, n_ops=0,
        n_guards=0,
    )
