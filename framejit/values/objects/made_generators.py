"""Generators of random numbers that captured code makes from a seed that is known: the graph makes them, and they draw
what the program's own do. One that leaves captured code is the program's to make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from framejit.backends.draws.made_generators import MADE, MOST_KEPT
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.objects.inherited_methods import KNOWN_METHODS
from framejit.values.objects.user_object import ObjectValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_MOST: Final = MOST_KEPT // 4
"""A capture makes no more: others may run within one another."""


class MadeGeneratorValue(ObjectValue):
    """A generator that step `seq` of the capture made, and graphs know by a number."""

    def __init__(self, frame: Frame, cls: type) -> None:
        super().__init__(cls)
        self.number = MADE.new_number()
        self._capture, self._seq = frame.capture, frame.seq

    def describe(self) -> str:
        return f"{self.cls.__qualname__} made in the graph"

    def _leave(self) -> Any:
        self._capture.break_at(
            self._seq,
            Unsupported(f"making a {self.cls.__qualname__} that leaves the graph, or gives more than numbers", "FJ113"),
        )

    def getattr(self, frame: Frame, name: str) -> Value:
        if name.startswith("_") or name in ("bit_generator", "gauss_next", "device"):
            self._leave()
        return super().getattr(frame, name)

    def setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        self._leave()

    def c_method(self, frame: Frame, name: str, static: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        known = KNOWN_METHODS.get(self.cls)
        return self._leave() if known is None else known(frame, self, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        self._leave()


def made_generator(frame: Frame, cls: type) -> MadeGeneratorValue | None:
    """A generator for the graph to make; None where it can't be."""
    capture = frame.capture
    if capture.transforms or capture.overrides.modes or capture.generators_made >= _MOST:
        return None
    capture.generators_made += 1
    return MadeGeneratorValue(frame, cls)
