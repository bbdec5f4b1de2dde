"""What a resume function was made from, and what it takes over from the frame that it goes on with."""
from __future__ import annotations

from dataclasses import dataclass
from types import CodeType, FunctionType

# Kinds of stack slots.  A result is fresh from the broken instruction; an offset is a RaisingOffset; where an
# exception is being handled, the slot of the one handled before passes on the one handled now.
VALUE_SLOT, RESULT_SLOT, NULL_SLOT, PREVIOUS_SLOT, OFFSET_SLOT = "v", "r", "n", "p", "o"
NOT_PASSED = (NULL_SLOT, OFFSET_SLOT)


@dataclass(frozen=True)
class Layout:
    """What a frame passes on: the kind of each stack slot, and the names of variables and cells."""

    stack: tuple[str, ...]
    variables: tuple[str, ...]
    cells: tuple[str, ...]

    def parameters(self) -> list[str]:
        return [f"__stack{i}" for i, kind in enumerate(self.stack) if kind not in NOT_PASSED] + list(self.variables) + list(self.cells)


@dataclass(frozen=True, slots=True)
class Site:
    """A place where frames are resumed. A call that an inner resume function finishes is another one than the instruction of the call."""

    code: int  # id of the code object
    index: int
    finishes_call: bool


@dataclass(frozen=True)
class ResumeCode:
    """What a resume function was made from; kept as its attribute `_framejit_resume`.

    `indices` gives for each of its instructions the index in `original`, -1 in the prologue, whose first `n_taking_over`
    instructions mean something to plain Python only.  `fresh` are the positions of arguments that a broken instruction has
    just made, about which nothing can be assumed to hold next time.
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
