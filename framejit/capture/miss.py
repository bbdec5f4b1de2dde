"""What happens on a miss: one call that no entry fits becomes an entry, or is left to plain Python."""

from __future__ import annotations

import os
from time import thread_time
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from framejit import _native as native
from framejit.capture.attempt import compile_frame
from framejit.capture.frame_compilation import FrameCompilation
from framejit.capture.frame_ids import new_frame_id
from framejit.capture.recompile import LimitReached
from framejit.capture.replacement.kept_failure import KeptFailure  # noqa: F401  for entries of other processes
from framejit.config import config
from framejit.environment.collector import resting
from framejit.environment.imports_under_way import met_half_a_module
from framejit.environment.own_builtins import builtins_are_replaced, untold
from framejit.environment.signal_handlers import SignalsWait, handlers_part
from framejit.errors import BackendError, GraphBreakError, InternalError, RecompileLimit
from framejit.events import emit, warn
from framejit.guards import tensor_layout  # noqa: F401  calibrates the native tensor guards
from framejit.guards.saved_tensor_hooks import without_saved_tensor_hooks
from framejit.interpreter.handlers import (  # noqa: F401  register opcodes
    attributes,
    calls,
    containers,
    control_flow,
    exceptions,
    functions,
    operator_ops,
    stack_ops,
    variables,
)
from framejit.progress import doing
from framejit.signals import CostsTooMuch, ImportUnderWay, NotYet, SkipFrame, Unsupported
from framejit.values import kinds  # noqa: F401  register what becomes of objects and calls

MOST_POSTPONED = 4
"""Calls of one function that are left to Python in the hope that the next can be captured."""
_postponed: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_not_before: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
"""At what processor time of the thread functions are looked at again that it was too early to compile."""


def on_miss(owner: Any, fn: FunctionType, flat_args: tuple[Any, ...], key: str = "") -> native.Entry | None:
    """Capture the frame `fn(*flat_args)`; `key` is its key for other processes, if that was made just now.

    Returns the entry to run, or None to run the function as it is. Raises only what the user asked for
    (GraphBreakError, and InternalError, under fullgraph), and what handlers of signals raise; else anything unexpected
    becomes one warning and plain Python.
    """
    signals = SignalsWait()
    try:
        with signals:
            return _entry_for(owner, fn, flat_args, key)
    except BaseException as e:
        if e is not signals.raised and handlers_part(e) is None:
            raise
        return _interrupted(owner, fn, e)


def _entry_for(owner: Any, fn: FunctionType, flat_args: tuple[Any, ...], key: str) -> native.Entry | None:
    if builtins_are_replaced(fn.__code__):
        return None
    while untold:
        name, code = untold.popitem()
        _report(code, f"the program had replaced builtins.{name}", "eager", "FJ212")
    options = owner.options
    if any(entry.tag.full for entry in owner.entries) or thread_time() < _not_before.get(owner, 0.0):
        return None
    try:
        with (
            resting(),
            without_saved_tensor_hooks(),
            doing(lambda: f"compiling {fn.__qualname__} ({os.path.basename(_place(fn)[0])}:{_place(fn)[1]})"),
        ):
            return compile_frame(FrameCompilation(owner, fn, flat_args, on_miss, key))
    except (GraphBreakError, BackendError) as e:
        if options.fullgraph:
            raise
        _skip(owner, fn, str(e), "eager", "FJ202")
        warn(str(e), _place(fn))
        return None
    except LimitReached as e:
        if options.fullgraph:
            raise RecompileLimit(f"{fn.__qualname__}: {e}") from None
        if e.is_final:
            _skip(owner, fn, str(e), "eager", "FJ210")
        else:
            _report(fn.__code__, str(e), "eager", "FJ210")  # its entries go on serving the calls they fit
        return None
    except NotYet as e:
        if isinstance(e, CostsTooMuch):
            _not_before[owner] = thread_time() + e.seconds
        _postpone(owner, fn, e)
        return None
    except (SkipFrame, Unsupported) as e:
        # Unsupported: the frame's state at its end or break can't be handed to plain Python
        if options.fullgraph:
            raise GraphBreakError(f"{fn.__qualname__} can't be captured: {e.reason}") from None
        _skip(owner, fn, e.reason, "skipped", e.code)
        return None
    except RecursionError:
        _skip(owner, fn, "its data is nested too deeply to capture", "skipped", "FJ203")
        return None
    except Exception as e:
        if met_half_a_module(e):
            _postpone(owner, fn, NotYet(f"a module is being imported ({type(e).__name__}: {e})", "FJ212"))
            return None
        if config.debug:
            raise
        if options.fullgraph:
            raise InternalError(
                f"fullgraph=True, but framejit could not capture {fn.__qualname__} ({type(e).__name__}: {e}). This is "
                "a defect in framejit: please report it."
            ) from e
        _skip(owner, fn, f"internal error: {type(e).__name__}: {e}", "eager", "FJ298")
        warn(
            f"framejit could not capture {fn.__qualname__} ({type(e).__name__}: {e}); it runs as plain Python. This is "
            "a defect in framejit: please report it.",
            _place(fn),
        )
        return None


def _interrupted(owner: Any, fn: FunctionType, error: BaseException) -> native.Entry:
    """What goes on with a frame is run as plain Python, for the error of a handler to be raised there: in the try and
    with blocks that the frame is in."""
    if not hasattr(fn, "_framejit_resume"):
        raise error
    return owner.resume_points.interrupted_entry(fn, error)  # type: ignore[no-any-return]


def _postpone(owner: Any, fn: FunctionType, reason: NotYet) -> None:
    if not isinstance(reason, (CostsTooMuch, ImportUnderWay)):
        _postponed[owner] = _postponed.get(owner, 0) + 1
    if _postponed.get(owner, 0) < MOST_POSTPONED:
        _report(fn.__code__, reason.reason, "eager", reason.code)
    else:
        _skip(owner, fn, reason.reason, "skipped", reason.code)


def _place(fn: FunctionType) -> tuple[str, int]:
    return fn.__code__.co_filename, fn.__code__.co_firstlineno


def _skip(owner: Any, fn: FunctionType, reason: str, state: str, code: str) -> None:
    owner.skip = True
    _report(fn.__code__, reason, state, code)


def _report(place: CodeType, reason: str, state: str, code: str) -> None:
    emit(
        "frame_done",
        frame_id=new_frame_id(),
        function=place.co_qualname,
        file=place.co_filename,
        line=place.co_firstlineno,
        state=state,
        reason=reason,
        code=code,
        seconds=0.0,
        n_graphs=0,
        n_ops=0,
        n_guards=0,
    )
