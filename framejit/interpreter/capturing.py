"""What the files below `frame.py` ask of a frame, and what a frame asks of the capture: the classes that answer import
them."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from framejit.values import context

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.bytecode.resume_code import ResumeCode
    from framejit.events.place import Place
    from framejit.signals import Selecting, Unsupported
    from framejit.values.base import Value
    from framejit.values.objects.module import ModuleValue


class Frame(context.Frame, Protocol):
    """A frame with its instructions."""

    instructions: list[Instruction]
    pc: int
    depth: int
    catches: int
    resume: ResumeCode | None

    @property
    def capture(self) -> Capture: ...
    @property
    def instruction(self) -> Instruction: ...
    def chain(self) -> list[Any]: ...
    def load_global(self, name: str) -> Value: ...
    def handled_exception(self) -> Value | None: ...


class Layers(Protocol):
    """The calls of modules that were captured, for later ones that go as these went."""

    def call(
        self, frame: Any, module: ModuleValue, args: list[Value], kwargs: dict[str, Value],
        ordinary: Callable[[Any, Value, list[Value], dict[str, Value]], Value],
    ) -> Value: ...


class Capture(context.Capture, Protocol):
    """One attempt at capturing, as the frames see it that belong to it."""

    name: str
    frame: Any
    root: Any
    forced: dict[int, Unsupported]
    raising: Mapping[tuple[int, int], tuple[CodeType, str]]
    selecting: Selecting | None
    selected: list[tuple[Place, int, str]]

    @property
    def layers(self) -> Layers: ...
    def next_step(self) -> int: ...
    def progress(self) -> tuple[int, int, int]: ...
    def left_behind(self) -> tuple[Any, ...]: ...
    def refuse_what_raised(self, code: CodeType, index: int) -> None: ...
    def leave_recursion(self, refusal: Unsupported, arguments: Iterable[Value]) -> None: ...
    def note_inner_break(self, frame: Any, reason: Unsupported) -> None: ...
    def break_graph(self, frame: Any, reason: Unsupported) -> NoReturn: ...
