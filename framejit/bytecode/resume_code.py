"""What a resume function was made from, and what it takes over from the frame that it goes on with."""
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from types import CodeType, FunctionType


class StackSlot(Enum):
    """The kind of thing that a slot of a frame's stack holds at the place where the frame is left and later resumed."""

    VALUE = auto()
    RESULT = auto()
    """Fresh from the broken instruction."""
    NULL = auto()
    PREVIOUS = auto()
    """Where an exception is being handled: the slot of the one handled before, which passes on the one handled now."""
    OFFSET = auto()
    """A RaisingOffset."""


StackKinds = tuple[StackSlot, ...]
NOT_PASSED = (StackSlot.NULL, StackSlot.OFFSET)


@dataclass(frozen=True)
class Layout:
    """The arguments that a frame hands to the resume function that goes on with it: the kind of each stack slot, bottom
    first, and the names of variables and cells."""

    stack: StackKinds
    variables: tuple[str, ...]
    cells: tuple[str, ...]

    def parameters(self) -> list[str]:
        return (
            [f"__stack{i}" for i, kind in enumerate(self.stack) if kind not in NOT_PASSED]
            + list(self.variables)
            + list(self.cells)
        )


@dataclass(frozen=True, slots=True)
class Site:
    """A place where frames are resumed. A call that an inner resume function finishes is another one than the
    instruction of the call."""

    code: int  # id of the code object
    index: int
    finishes_call: bool


@dataclass(frozen=True)
class ResumeCode:
    """How a resume function was made and which code it goes on with; kept as its attribute `_framejit_resume`.

    `indices` gives for each of its instructions the index in `original`, -1 in the prologue, whose first
    `n_taking_over` instructions mean something to plain Python only. `fresh` are the positions of arguments that a
    broken instruction has just made, about which nothing can be assumed to hold next time.
    """

    layout: Layout
    original: CodeType
    index: int  # the instruction of `original` it goes on at, or with `inner` the call it finishes
    indices: list[int]
    fresh: tuple[int, ...]
    n_taking_over: int
    inner: FunctionType | None = None

    @property
    def site(self) -> Site:
        return Site(id(self.original), self.index, self.inner is not None)
