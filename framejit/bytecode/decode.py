"""A code object as instructions the interpreter can step through.

`disassemble` makes the listing; here jumps and exception regions become indices into one flat list.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import Any

from framejit.bytecode.disassemble import disassemble
from framejit.bytecode.instr import CellVar, FreeVar, Instr, Item, Label, TryBegin, TryEnd
from framejit.bytecode.liveness import bound_before, live_before
from framejit.bytecode.opargs import VARIABLE
from framejit.bytecode.spellings import join, plain, take_apart

_OF_COMPREHENSION = " of a comprehension"

@dataclass(frozen=True)
class Handler:
    """An exception region: where it leads, at what stack depth, and whether the raising offset is pushed."""

    target: int
    depth: int
    push_lasti: bool


@dataclass(slots=True)
class Instruction:
    """One instruction.  `arg` is what it means (a constant, a name, a jump target as index), not its encoding."""

    index: int
    name: str
    arg: Any
    line: int | None
    column: int | None
    end_line: int | None
    end_column: int | None
    target: int | None = None
    handler: Handler | None = None
    original: Instr | None = field(default=None, repr=False)


@dataclass
class Decoded:
    """A decoded code object; `instructions[i].index == i`."""

    listing: list[Item]
    instructions: list[Instruction]
    arguments: tuple[str, ...]
    first_argument: str | None
    cells: tuple[str, ...]  # variables in cells of their own
    start: int = 0  # the first RESUME: what stands before it sets the frame up
    _live: list[frozenset[str]] | None = None
    _bound: list[frozenset[str]] | None = None

    def live_at(self, index: int) -> frozenset[str]:
        """Names of the variables (locals and cells) that code from `index` on may read."""
        if self._live is None:
            self._live = live_before(self.instructions, self.first_argument)
        return self._live[index]

    def bound_at(self, index: int) -> frozenset[str]:
        """Names of the local variables, no cells, that may hold something where the instruction at `index` begins."""
        if self._bound is None:
            self._bound = bound_before(self.instructions, self.arguments)
        return self._bound[index]


# Keyed by id, since code objects compare by value and may hold unhashable constants.
_cache: dict[int, tuple[weakref.ref[CodeType], Decoded]] = {}


def decode(code: CodeType) -> Decoded:
    """Decode `code`, once per code object as long as it lives."""
    found = _cache.get(id(code))
    if found is not None and found[0]() is code:
        return found[1]
    key, decoded = id(code), _decode(code)
    _cache[key] = (weakref.ref(code, lambda _: _cache.pop(key, None)), decoded)
    return decoded


def _decode(code: CodeType) -> Decoded:
    listing: list[Item] = []
    for item in disassemble(code):
        listing += take_apart(item) if isinstance(item, Instr) else [item]
    listing = join(listing)
    cells = _tell_apart(code, listing)
    labels: dict[Label, int] = {}
    instructions: list[Instruction] = []
    open_region: TryBegin | None = None
    regions: list[TryBegin | None] = []
    for item in listing:
        if isinstance(item, Label):
            labels[item] = len(instructions)
        elif isinstance(item, TryBegin):
            open_region = item
        elif isinstance(item, TryEnd):
            open_region = None
        else:
            name, arg = plain(item)
            # 3.13 spells LOAD_CLOSURE this way
            if name == "LOAD_FAST" and (isinstance(arg, (CellVar, FreeVar)) or arg in cells):
                name = "LOAD_CLOSURE"
            if isinstance(arg, (CellVar, FreeVar)):
                arg = arg.name
            loc = item.location
            instructions.append(
                Instruction(
                    len(instructions), name, arg,
                    *((loc.lineno, loc.col_offset, loc.end_lineno, loc.end_col_offset) if loc else (None,) * 4),
                    original=item
                )
            )
            regions.append(open_region)
    for ins, region in zip(instructions, regions):
        if isinstance(ins.arg, Label):
            ins.target = labels[ins.arg]
        if region is not None:
            ins.handler = Handler(labels[region.target], region.stack_depth, region.push_lasti)
    n = (
        code.co_argcount
        + code.co_kwonlyargcount
        + bool(code.co_flags & CO_VARARGS)
        + bool(code.co_flags & CO_VARKEYWORDS)
    )
    start = next(ins.index for ins in instructions if ins.name == "RESUME")
    return Decoded(
        listing, instructions, code.co_varnames[:n], code.co_varnames[0] if code.co_argcount else None, cells, start
    )


def _tell_apart(code: CodeType, listing: list[Item]) -> tuple[str, ...]:
    """Give each variable a name of its own; the names of those in cells that the code makes.

    From 3.12 on comprehensions are part of the function around them, and one's variable may be called like a free
    variable of the function.
    """
    free = set(code.co_freevars)
    if free.isdisjoint(code.co_varnames) and free.isdisjoint(code.co_cellvars):
        return code.co_cellvars
    for item in listing:
        if isinstance(item, Instr) and item.opcode in VARIABLE:
            if isinstance(item.arg, CellVar) and item.arg.name in free:
                item.arg = CellVar(item.arg.name + _OF_COMPREHENSION)
            elif item.arg in free:
                item.arg += _OF_COMPREHENSION
    return tuple(name + _OF_COMPREHENSION if name in free else name for name in code.co_cellvars)
