"""What listings of code are made of: instructions, the variables they name, labels, exception regions."""

from __future__ import annotations

import dis
from enum import IntEnum
from typing import Any, NamedTuple

OPMAP = dis.opmap
NO_OPCODE = -1


class Location(NamedTuple):
    """A place in a source file, in the order of `co_positions`; parts may be unknown."""

    lineno: int | None
    end_lineno: int | None = None
    col_offset: int | None = None
    end_col_offset: int | None = None


class _Variable(NamedTuple):
    name: str


class CellVar(_Variable):
    """A variable of this code that lives in a cell, or, where a plain local is expected, the cell itself."""


class FreeVar(_Variable):
    """A variable of an enclosing function, whose cell the closure brings."""


class Compare(IntEnum):
    """The comparisons of COMPARE_OP, in CPython's order; from 3.13 on also with the result converted to bool."""

    LT = 0
    LE = 1
    EQ = 2
    NE = 3
    GT = 4
    GE = 5
    LT_CAST = 16
    LE_CAST = 17
    EQ_CAST = 18
    NE_CAST = 19
    GT_CAST = 20
    GE_CAST = 21


class Label:
    """A place in a listing that instructions and exception regions lead to."""

    __slots__ = ()


class Instr:
    """One instruction.  `arg` is what it means (a constant, a name, a variable, a label); `opargs` has its encoding."""

    __slots__ = ("name", "opcode", "arg", "location")

    def __init__(self, name: str, arg: Any = None, location: Location | None = None) -> None:
        self.name, self.opcode, self.arg, self.location = name, OPMAP[name], arg, location

    def __repr__(self) -> str:
        return f"Instr({self.name}, {self.arg!r})"


class Joined(Instr):
    """Several instructions in a row that are read as one. `name` is no opcode's."""

    __slots__ = ("parts",)

    def __init__(self, name: str, parts: list[Instr]) -> None:
        self.name, self.opcode, self.arg, self.location = name, NO_OPCODE, None, parts[0].location
        self.parts = parts


class TryBegin:
    """The start of an exception region: where it leads, at what depth of the stack, and whether the raising offset is
    pushed."""

    __slots__ = ("target", "push_lasti", "stack_depth")

    def __init__(self, target: Label, push_lasti: bool, stack_depth: int) -> None:
        self.target, self.push_lasti, self.stack_depth = target, push_lasti, stack_depth


class TryEnd:
    """The end of an exception region."""

    __slots__ = ("entry",)

    def __init__(self, entry: TryBegin) -> None:
        self.entry = entry


Item = Instr | Label | TryBegin | TryEnd
