"""`torch.profiler.record_function`, which optimizers put around their steps: a range without effect while no profiler
runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import torch

from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE
from framejit.values.handlers import HANDLERS

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_ENTER = torch.ops.profiler._record_function_enter_new
_EXIT = torch.ops.profiler._record_function_exit._RecordFunction
_PROFILER_RUNS = torch._C._autograd._profiler_enabled
_MONITOR: Any = getattr(torch.autograd.profiler, "_maybe_cupti_monitor", None)


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
    runs = HANDLERS[_PROFILER_RUNS](frame, [], {})
    if kwargs or runs is None or runs.constant():
        raise Unsupported("a range of the profiler, which runs", "FJ116")
    return RangeValue(args)


def _exit(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    return NONE if len(args) == 1 and isinstance(args[0], RangeValue) else None


def _make(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> None:
    """What the first range of a process leaves in caches of Python's and torch's, where nothing can tell when it came
    there: an annotation, and since torch 2.13 whether there is a monitor to tell of ranges. Captured code reads it
    there."""
    Optional["torch.classes.profiler._RecordFunction"]  # noqa: B018, F821, UP045
    if _MONITOR is not None:
        _MONITOR()


HANDLERS.update({_ENTER: _enter, _EXIT: _exit, torch.autograd.profiler.record_function.__init__: _make})
