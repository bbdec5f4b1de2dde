"""Makes dispatchers, and knows those that are alive."""
from __future__ import annotations

import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from framejit import _native, left_calls, short_lived
from framejit._native import Dispatcher, EntryCache
from framejit.background.imports_ahead import are_imported
from framejit.config import config
from framejit.environment.collector import resting
from framejit.environment.own_builtins import builtins_are_replaced
from framejit.environment.signal_handlers import SignalsWait, handlers_part
from framejit.environment.torch_compile import kept_from_dynamo, leave_frames_to_dynamo
from framejit.left_calls import goes_on_waiting, is_left_for_now, tell_left, was_compiled
from framejit.options import Options, make_options
from framejit.originals import function_behind

_live: weakref.WeakSet[Dispatcher] = weakref.WeakSet()
_frames_seen: weakref.WeakSet[EntryCache] = weakref.WeakSet()
_changing = threading.Lock()
_WITHOUT_TENSORS: Final = "framejit.interpreter.without_tensors"


def make_dispatcher(fn: FunctionType, options: Options, cls: type | None = None) -> Dispatcher | FunctionType:
    """A callable that runs compiled entries of `fn`: a Dispatcher, or with `verify` a function in front of one. With
    `cls` it stands for calls of an object of that class, of which `fn` is the `__call__`: where the class is given
    another one, that is compiled, too, and called."""
    dispatcher = Dispatcher(fn, on_miss, options, *(() if cls is None else (cls, _follow(options))))
    with _changing:
        _live.add(dispatcher)
    if options.verify:
        from framejit.verify.sampling import verifying  # for those who verify

        return verifying(dispatcher, options)
    return dispatcher


def bound_call(obj: Any, options: Options) -> MethodType:
    """What stands for calls of `obj`."""
    cls = type(obj)
    return MethodType(make_dispatcher(_call_function(cls), options, cls), obj)


def _follow(options: Options) -> Callable[[type], Dispatcher | FunctionType]:
    """Gives the callable for what a class has as `__call__` by now, the same for the same."""
    made: dict[int, tuple[Any, Dispatcher | FunctionType]] = {}

    def follow(cls: type) -> Dispatcher | FunctionType:
        found = _found(cls)
        if id(found) not in made:
            made[id(found)] = found, make_dispatcher(_call_function(cls), options)
        return made[id(found)][1]

    return follow


def _call_function(cls: type) -> Any:
    """The Python function that calling an instance of `cls` runs; of modules normally the one that torch.nn.Module
    defines."""
    found = function_behind(_found(cls))
    if type(found) is FunctionType:
        return found

    def __call__(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self(*args, **kwargs)

    return __call__


def _found(cls: type) -> Any:
    """What a class has as `__call__`."""
    return next((vars(base)["__call__"] for base in cls.__mro__ if "__call__" in vars(base)), None)


def live_dispatchers() -> list[Dispatcher]:
    """The dispatchers that the program still holds."""
    with _changing:
        return list(_live)


def entry_caches() -> list[EntryCache]:
    """All that holds entries of functions: dispatchers, and what the hook keeps for the frames it saw."""
    with _changing:
        return [*_live, *_frames_seen]


def drop_entries() -> None:
    """Forget all compiled code, and end what is being compiled beside the program; it is compiled anew when next
    called."""
    if "framejit.background.compiling" in sys.modules:
        _background().forget()
    for dispatcher in live_dispatchers():
        dispatcher.clear()
    _native.reset_all_codes()
    short_lived.forget()
    left_calls.forget()


def on_miss(owner: Any, fn: FunctionType, flat_args: tuple[Any, ...]) -> Any:
    """Called by the native core where no entry fits: compiles the call, or decides that it stays Python's."""
    if builtins_are_replaced(fn.__code__) or sys.is_finalizing():
        return None
    if owner.options is None and _WITHOUT_TENSORS in sys.modules and _computes_nothing(owner, fn, flat_args):
        return None  # of thousands of frames; nothing is imported, and nothing else is to be known of them
    with resting():  # once for all of it: each time it ends there is a collection, and after imports often a full one
        return _entry_for(owner, fn, flat_args)


kept_from_dynamo(on_miss.__code__)


def _entry_for(owner: Any, fn: FunctionType, flat_args: tuple[Any, ...]) -> Any:
    if owner.options is None:  # a frame seen outside any dispatcher, under `framejit run`
        owner.options = replace(make_options(name=fn.__qualname__), unasked=True)
        with _changing:
            _frames_seen.add(owner)
    signals = SignalsWait()
    try:
        with signals:  # or modules would stay half imported
            if type(owner) is not Dispatcher and _computes_nothing(owner, fn, flat_args):
                return None
            if owner.options.background and not are_imported():
                return None
            if goes_on_waiting(owner):
                return None
            found, key = kept_entry(owner, fn, flat_args)
            if found is None and not owner.skip and is_left_for_now(owner, fn):
                return None
            if found is None and not owner.skip and owner.options.background:
                if _background().leaves_to_python(owner, fn, flat_args, _captured):
                    return None
            capture = None if found is not None or owner.skip else compiler()
    except BaseException as e:
        if e is not signals.raised and handlers_part(e) is None or not hasattr(fn, "_framejit_resume"):
            raise
        points: Any = owner
        return points.resume_points.interrupted_entry(fn, e)
    if capture is None:
        return found
    begun = time.monotonic()
    entry = capture.on_miss(owner, fn, flat_args, key)
    was_compiled(owner, time.monotonic() - begun)
    return entry


def _computes_nothing(owner: EntryCache, fn: FunctionType, flat_args: tuple[Any, ...]) -> bool:
    """Whether a frame that the hook met is left to Python from now on. That is told without the compiler, and of every
    frame first: sympy and its like, when they are imported, call thousands of functions 90,000 times."""
    from framejit.interpreter.without_tensors import why_not_worth_capturing

    reason = why_not_worth_capturing(fn.__code__, flat_args)
    if not reason:
        return False
    owner.skip = True
    tell_left(fn.__code__, "skipped", reason, "FJ207")
    return True


def kept_entry(owner: EntryCache, fn: FunctionType, flat_args: tuple[Any, ...]) -> tuple[Any, str]:
    """The entry of another process that fits a frame, if such are kept and there is one, and the key under which one
    was looked for, if one was. `owner.skip` is set where the other process left the function to Python."""
    if not config.keep_captures:
        return None, ""
    if owner.options.background:
        _background().settle()  # which may have the owner looked for again
    from framejit.kept import store  # no part of `import framejit`
    from framejit.kept.given_up import given_up

    if owner in given_up:
        return None, ""
    if not owner.options.background and not store.may_have_some():
        given_up.add(owner)
        return None, ""
    from framejit.capture import kept_entry  # no part of a process that finds nothing

    parts = kept_entry.Compiler(on_miss, watch_frames, lambda: compiler().KeptFailure)
    if not owner.options.background:
        return kept_entry.kept_entry(owner, fn, flat_args, parts)
    background = _background()
    is_news = background.was_made_for(owner)
    found, key = kept_entry.kept_entry(owner, fn, flat_args, parts, is_news)
    if found is not None and is_news:
        background.fits(owner)
    return found, key


def _background() -> ModuleType:
    from framejit.background import compiling  # no part of `import framejit`

    return compiling


def settle_background() -> None:
    """Take in what was compiled beside the program by now."""
    if "framejit.background.compiling" in sys.modules:
        _background().settle()


def _captured(owner: Any, fn: FunctionType, flat_args: tuple[Any, ...]) -> Any:
    return compiler().on_miss(owner, fn, flat_args)


@functools.cache
def watch_frames() -> None:
    """Have the hook look at frames, which needs no compiler: entries may be found for them."""
    from framejit.interpreter.frame_policy import may_capture

    kept_from_dynamo(may_capture.__code__)
    leave_frames_to_dynamo()
    _native.install_hook_policy(may_capture, on_miss)


@functools.cache
def compiler() -> ModuleType:
    """The compiler: imported by the first call that needs it, not by `import framejit`, and given the say over the
    frames the hook sees."""
    from framejit.capture import miss

    kept_from_dynamo(miss.on_miss.__code__)  # dispatchers of what follows a break call it at once
    watch_frames()
    return miss


def _restore(fn: FunctionType, options: Options) -> Dispatcher | FunctionType:
    return make_dispatcher(fn, options)


def _reduce(dispatcher: Dispatcher) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
    """How a dispatcher is pickled and copied: by name where its name leads to it, else by its function and options."""
    fn = dispatcher.function
    found: Any = sys.modules.get(fn.__module__)
    for name in fn.__qualname__.split("."):
        found = getattr(found, name, None)
    return fn.__qualname__ if found is dispatcher else (_restore, (fn, dispatcher.options))


_native._reduce_hook = _reduce
