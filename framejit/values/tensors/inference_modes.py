"""`torch._C._InferenceMode`, the context manager behind torch.inference_mode.

It is on from when it is made, and its end puts back what held of the thread then. A graph that ends inside of the block
leaves the mode before its end, and the code behind it makes a real one, in the state of the thread in which captured
code did. Where the block ends, the mode exists already: the graph enters one that gives the thread what the real one
puts back, and the code behind the graph leaves the real one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from framejit import _native as native
from framejit.environment.inference_modes import (
    EnteredInferenceMode,
    enter_inside,
    left_inference_mode,
    restored_by,
    thread_modes,
)
from framejit.guards.sources import CallSource, Source
from framejit.late_dataclass import dataclass
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE
from framejit.values.handlers import NativeMethodValue, handles
from framejit.values.wrap import wraps

if TYPE_CHECKING:
    from torch import fx

    from framejit.values.context import Capture, Codegen, Frame, TorchState

_C = torch._C


@dataclass
class ModeChange:
    """A mode that captured code has entered or left, and that is to be so behind the graph. `before` and `after` are
    torch's state around it, and `node` is what enters a mode in the graph."""

    value: InferenceModeValue
    enters: bool
    node: fx.Node
    before: TorchState
    after: TorchState

    def carry_out(self, cg: Codegen) -> None:
        """Do the same in replacement code."""
        self.value.enter_really(cg) if self.enters else self.value.leave_really(cg)


class InferenceModeValue(Value):
    """A mode, made by captured code; `made_at` is the step."""

    def __init__(self, mode: bool, made_at: int) -> None:
        self.mode, self.made_at = mode, made_at
        self.change: ModeChange | None = None  # the entering, while it is entered
        self._real: Any = None  # which is on while capturing
        self._temporary = ""  # of replacement code, with the real one

    def python_type(self) -> type:
        return _C._InferenceMode

    def getattr(self, frame: Frame, name: str) -> Value:
        if name not in ("__enter__", "__exit__"):
            return super().getattr(frame, name)
        return NativeMethodValue(self._enter if name == "__enter__" else self._exit, name)

    def _enter(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self  # making it has done that

    def begin(self, capture: Capture) -> None:
        self.change = _put_on(capture, self, self.mode, None)

    def _exit(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self.end(frame.capture)
        return NONE

    def end(self, capture: Capture) -> None:
        """Leave the mode; one that was left before stays as it is."""
        change, changes = self.change, capture.mode_changes
        if change is None:
            return
        if changes[-1] is not change:
            raise Unsupported("an inference mode that is left before one inside of it", "FJ119")
        real = self._real
        real.__exit__(None, None, None)
        changes.pop()

        def enter_again() -> None:
            """Changes inside are undone next, and what they put back is a state of the mode, which its own end then
            takes away."""
            self._real = _C._InferenceMode(self.mode)  # one that was left can't be entered again
            changes.append(change)
            self.change = change

        capture.run_state_change(_exit_inference_mode, (change.node,), enter_again)
        self.change = None

    def set_real(self, real: Any) -> None:
        """Have what is on while capturing."""
        self._real = real

    def leave_real(self) -> None:
        self._real.__exit__(None, None, None)

    def check_is_held(self, capture: Capture) -> None:
        """Where captured code ends inside of the mode, something has to hold what ends it: it is left where it is let
        go of."""
        if not self._temporary:
            capture.break_at(self.made_at, Unsupported("an inference mode that nothing is left to end", "FJ119"))

    def enter_really(self, cg: Codegen) -> None:
        cg.em.call_object(EnteredInferenceMode, lambda: cg.em.load_object(self.mode))
        cg.em.store_fast(self._temporary)

    def leave_really(self, cg: Codegen) -> None:
        raise AssertionError("what captured code enters and leaves, the graph does")

    def reconstruct(self, cg: Codegen) -> None:
        if self.change is None:
            cg.em.call_object(left_inference_mode, lambda: cg.em.load_object(self.mode))
            return
        self._temporary = self._temporary or cg.em.new_temporary("mode")
        cg.em.load_fast(self._temporary)


class ExistingInferenceModeValue(InferenceModeValue):
    """A mode that was entered around an earlier graph break."""

    def __init__(self, obj: EnteredInferenceMode, source: Source) -> None:
        super().__init__(False, 0)
        self.obj, self.source, self._is_left = obj, source, False

    def python_type(self) -> type:
        return EnteredInferenceMode

    def end(self, capture: Capture) -> None:
        if self._is_left:
            return
        restores, source = restored_by(self.obj), self.source
        if restores is None or source is None:
            raise Unsupported("an inference mode that was left already", "FJ119")
        if any(change.enters for change in capture.mode_changes):
            raise Unsupported("an inference mode that is left before one inside of it", "FJ119")
        grad, mode, *_ = restores
        with torch.inference_mode(mode):
            _C._set_grad_enabled(grad)
            is_restored = thread_modes() == restores
        if not is_restored:
            raise Unsupported("an inference mode whose end puts back other modes of torch, too", "FJ119")
        capture.add_guard(CallSource(source, restored_by), native.C_EQUALS, restores)
        self._is_left = True
        _put_on(capture, self, mode, grad)

    def taken_back(self) -> None:
        """Called where a change of it is undone."""
        self._is_left = False

    def check_is_held(self, capture: Capture) -> None:
        """It is held outside."""

    def leave_really(self, cg: Codegen) -> None:
        source = self.source
        assert source is not None

        def load_method() -> None:
            cg.em.load_source(source)
            cg.em.load_attr("__exit__")

        cg.em.call(load_method, lambda: [cg.em.load_object(None) for _ in range(3)], 3)
        cg.em.pop()

    def reconstruct(self, cg: Codegen) -> None:
        raise AssertionError("an object that exists is loaded")


def _put_on(capture: Capture, value: InferenceModeValue, mode: bool, grad: bool | None) -> ModeChange:
    """Enter a mode in the graph, and then switch gradients on or off if `grad` says which."""
    changes = capture.mode_changes
    capture.keep_state(_C._set_grad_enabled, torch.is_grad_enabled)  # which the mode changes
    before = capture.state_now()
    value.set_real(_C._InferenceMode(mode))

    def undo() -> None:
        value.leave_real()
        value.change = None
        if isinstance(value, ExistingInferenceModeValue):
            value.taken_back()
        changes.pop()

    node = (
        capture.run_state_change(enter_inside, (mode, changes[-1].node), undo)
        if changes
        else capture.run_state_change(_enter_inference_mode, (mode,), undo)
    )
    if grad is not None and torch.is_grad_enabled() != grad:
        capture.change_state(_C._set_grad_enabled, torch.is_grad_enabled, (grad,), 0)
    change = ModeChange(value, grad is None, node, before, capture.state_now())
    changes.append(change)
    return change


@handles(_C._InferenceMode)
def _inference_mode(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made = InferenceModeValue(args[0].constant(), frame.seq)
    made.begin(frame.capture)
    return made


@wraps(EnteredInferenceMode)
def _existing_mode(capture: Capture, obj: EnteredInferenceMode, source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, EnteredInferenceMode)
    return ExistingInferenceModeValue(obj, source)
