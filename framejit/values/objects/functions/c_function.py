"""What is alike of functions written in C, whoever's they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framejit.values.base import Value
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Codegen, Frame


class CFunctionValue(Value):
    """A function written in C, which is known as the object that it is. Each kind says what a call of it does."""

    def __init__(self, function: Any, source: Source | None = None) -> None:
        self.function, self.source = function, source

    def python_type(self) -> type:
        return type(self.function)

    def constant(self) -> Any:
        return self.function

    def getattr(self, frame: Frame, name: str) -> Value:
        try:
            return from_python(getattr(self.function, name))
        except AttributeError as e:
            raise frame.raised(AttributeError, str(e)) from None

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.load_object(self.function)
