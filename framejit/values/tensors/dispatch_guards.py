"""torch's guards that keep modes, tensor subclasses and function transforms out of what runs while they live: without
any of these they change nothing."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE
from framejit.values.handlers import HANDLERS, Handler
from framejit.values.objects.context_managers import ManagerValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame


class DispatchGuardValue(ManagerValue):
    """A guard of torch's dispatch, made by the captured code, where there is nothing that it would keep out."""

    def __init__(self, cls: type, made_at: int) -> None:
        self.cls, self.made_at = cls, made_at

    def python_type(self) -> type:
        return self.cls

    def enter(self, frame: Frame) -> Value:
        return self

    def leave(self, frame: Frame) -> Value:
        return NONE

    def reconstruct(self, cg: Codegen) -> None:
        cg.capture.break_at(self.made_at, Unsupported(f"a graph break while a {self.cls.__name__} lives", "FJ119"))


def _maker(cls: type) -> Handler:
    def make(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args or kwargs:
            raise Unsupported(f"arguments of {cls.__name__}")
        if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
            raise Unsupported(f"a {cls.__name__} where there are modes or transforms that it keeps out")
        return DispatchGuardValue(cls, frame.seq)

    return make


for _cls in (torch._C._DisableTorchDispatch, torch._C._DisableFuncTorch):
    HANDLERS[_cls] = _maker(_cls)
