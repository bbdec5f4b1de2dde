"""A code object as instructions the interpreter can step through.

`bytecode` does the decoding; here jumps and exception regions become indices into one flat tuple.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import Any

from bytecode import Bytecode, CellVar, ConcreteBytecode, FreeVar, Instr, Label
from bytecode.instr import TryBegin, TryEnd

from framejit.bytecode.liveness import bound_before, live_before
from framejit.bytecode.pairs import take_apart


class Undecodable(Exception):
    """`bytecode` can't read a code object."""


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

    bytecode: Bytecode
    instructions: list[Instruction]
    arguments: tuple[str, ...]
    first_argument: str | None
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
    try:
        listing = Bytecode.from_code(code)
    except (IndexError, ValueError) as e:  # 0.19 on 3.13: a name that is a free variable outside and a cell inside a comprehension
        raise Undecodable(f"the bytecode of {code.co_qualname} can't be decoded ({type(e).__name__}: {e})") from e
    _restore_depths(code, listing)
    listing[:] = [part for item in listing for part in (take_apart(item) if isinstance(item, Instr) else [item])]
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
        elif isinstance(item, Instr):
            loc, arg, name = item.location, item.arg, item.name
            if isinstance(arg, (CellVar, FreeVar)):
                arg = arg.name
            if name == "LOAD_FAST" and (arg in code.co_cellvars or arg in code.co_freevars):  # 3.13 spells LOAD_CLOSURE this way
                name = "LOAD_CLOSURE"
            instructions.append(
                Instruction(
                    len(instructions), name, arg, *((loc.lineno, loc.col_offset, loc.end_lineno, loc.end_col_offset) if loc else (None,) * 4), original=item
                )
            )
            regions.append(open_region)
    for ins, region in zip(instructions, regions):
        if isinstance(ins.arg, Label):
            ins.target = labels[ins.arg]
        if region is not None:
            assert isinstance(region.target, Label)
            ins.handler = Handler(labels[region.target], _depth(region), region.push_lasti)
    n = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return Decoded(listing, instructions, code.co_varnames[:n], code.co_varnames[0] if code.co_argcount else None)


def _restore_depths(code: CodeType, listing: Bytecode) -> None:
    """Give each exception region the stack depth of the code's own table, which `bytecode` drops when decoding."""
    entries = ConcreteBytecode.from_code(code).exception_table
    regions = [item for item in listing if isinstance(item, TryBegin)]
    by_order = sorted(entries, key=lambda e: e.start_offset)
    if len(regions) != len(by_order):
        raise ValueError(f"{len(by_order)} exception regions in {code.co_qualname}, {len(regions)} decoded")
    for region, entry in zip(regions, by_order):
        region.stack_depth = entry.stack_depth


def _depth(region: TryBegin) -> int:
    if not isinstance(region.stack_depth, int):
        raise ValueError("an exception region without a stack depth")
    return region.stack_depth
