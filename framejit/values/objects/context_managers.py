"""Context managers that captured code makes, and that framejit itself enters and leaves."""
from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.values.base import Value
from framejit.values.objects.functions.bound_descriptor import NamedMethod

if TYPE_CHECKING:
    from framejit.values.context import Frame


class ManagerValue(Value):
    """A context manager with a model of its own."""

    mutable = True
    enters_natively = True

    def getattr(self, frame: Frame, name: str) -> Value:
        return _EnterOrExit(self, name) if name in ("__enter__", "__exit__") else super().getattr(frame, name)

    def enter(self, frame: Frame) -> Value:
        raise NotImplementedError

    def leave(self, frame: Frame) -> Value:
        raise NotImplementedError


class _EnterOrExit(NamedMethod):
    """Entering or leaving one."""

    owner: ManagerValue

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.owner.enter(frame) if self.name == "__enter__" else self.owner.leave(frame)
