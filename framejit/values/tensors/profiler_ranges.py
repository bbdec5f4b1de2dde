"""`torch.profiler.record_function`, which optimizers put around their steps: a range without effect while no profiler
runs."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.guards.answers import same_answer
from framejit.guards.sources import const_source
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue
from framejit.values.handlers import HANDLERS
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_ENTER = torch.ops.profiler._record_function_enter_new
_EXIT = torch.ops.profiler._record_function_exit._RecordFunction
_PROFILER_RUNS = torch._C._autograd._profiler_enabled


class RangeValue(Value):
    """The record of a range of the profiler, as `_record_function_enter_new` gives it; it is begun for real where plain
    Python has to end it."""

    mutable = True

    def __init__(self, args: list[Value]) -> None:
        self.args = args

    def python_type(self) -> type:
        return torch.ScriptObject

    def describe(self) -> str:
        return "range of the profiler"

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(_ENTER, lambda: [cg.load(arg) for arg in self.args], len(self.args))


def _enter(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if kwargs:
        raise Unsupported("a range of the profiler, with keyword arguments", "FJ116")
    _check_profiler(frame)
    return RangeValue(args)


def _exit(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A range that was begun before a graph break is ended for real."""
    if len(args) != 1 or kwargs or args[0].python_type() is not torch.ScriptObject:
        return None
    if args[0].source is not None:
        _check_profiler(frame)
        frame.capture.effects.call_behind(from_python(_EXIT), args, {})
    return NONE


def _check_profiler(frame: Frame) -> None:
    runs = HANDLERS[_PROFILER_RUNS](frame, [], {})
    if runs is None or runs.constant():
        raise Unsupported("a range of the profiler, which runs", "FJ116")


_RECORD_FUNCTION = torch.autograd.profiler.record_function
_MADE = vars(_RECORD_FUNCTION("name", "args"))
"""The attributes that a new range has."""
_SIGNATURE = inspect.signature(_RECORD_FUNCTION.__init__)


def _make(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`record_function(name, args=None)`, without the annotation that torch has made there for TorchScript."""
    try:
        given = _SIGNATURE.bind(*args, **kwargs).arguments
    except TypeError as e:
        raise Unsupported(str(e), "FJ112") from None
    for name, value in _MADE.items():
        given["self"].setattr(
            frame, name, given.get(name, NONE) if name in ("name", "args") else ConstantValue(value)
        )
    return NONE


def _monitor_runs() -> bool:
    """Whether torch's monitor of CUPTI, since 2.13, is to be told of ranges."""
    monitor: Any = sys.modules.get("torch.profiler._cupti_monitor")
    return getattr(monitor, "_monitor_singleton", None) is not None


def _monitor(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    runs = _monitor_runs()
    frame.capture.add_guard(const_source(_monitor_runs), native.C_PY, same_answer((), runs))
    if runs:
        raise Unsupported("a range of the profiler, while a monitor of CUPTI runs", "FJ116")
    return NONE


HANDLERS.update({_ENTER: _enter, _EXIT: _exit, _RECORD_FUNCTION.__init__: _make})
if hasattr(torch.autograd.profiler, "_maybe_cupti_monitor"):
    HANDLERS[torch.autograd.profiler._maybe_cupti_monitor] = _monitor
