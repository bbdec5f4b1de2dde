"""From a code object to a listing: instructions with their meaning, labels where jumps lead, exception regions."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import Any

from framejit.bytecode.instr import OPMAP, CellVar, FreeVar, Instr, Item, Label, Location, TryBegin, TryEnd
from framejit.bytecode.opargs import (
    BACKWARD,
    CACHES,
    CONSTANT,
    FLAGS,
    HAS_ARG,
    IN_CELL,
    JUMP,
    NAME,
    TWO_VARIABLES,
    VARIABLE,
    meaning,
)

_EXTENDED_ARG = OPMAP["EXTENDED_ARG"]
_CONTINUES, _SIX_BITS = 0x40, 0x3F


def disassemble(code: CodeType) -> list[Item]:
    """The listing of `code`; `assemble` is its inverse."""
    variables = _variables(code)
    labels: dict[int, Label] = {}
    at: list[tuple[int, Instr]] = []
    positions = list(code.co_positions())
    raw, consts, names = code.co_code, code.co_consts, code.co_names
    start, extended = 0, 0
    offset, end = 0, len(raw) // 2
    last: tuple[Any, ...] | None = None
    location: Location | None = None
    while offset < end:
        number, arg = raw[2 * offset], raw[2 * offset + 1] | extended
        if number == _EXTENDED_ARG:
            extended = arg << 8
            offset += 1
            continue
        after = offset + 1 + CACHES[number]
        what: Any = None
        if number in CONSTANT:
            what = consts[arg]
        elif number in TWO_VARIABLES:
            what = (variables[arg >> 4][0], variables[arg & 15][0])
        elif number in VARIABLE:
            what = variables[arg][number in IN_CELL]
        elif number in NAME:
            flags = FLAGS.get(number)
            what = names[arg] if flags is None else (*(bool(arg >> i & 1) for i in range(flags)), names[arg >> flags])
        elif number in JUMP:
            target = after - arg if number in BACKWARD else after + arg
            what = labels.setdefault(target, Label())
        elif number in HAS_ARG:
            what = meaning(number, arg)
        if positions[offset] != last:
            last = positions[offset]
            location = None if last == (None, None, None, None) else Location._make(last)
        at.append((start, Instr(_NAMES[number], what, location)))
        offset = start = after
        extended = 0
    begins: dict[int, TryBegin] = {}
    ends: dict[int, TryEnd] = {}
    for first, past, target, depth, lasti in exception_table(code.co_exceptiontable):
        region = TryBegin(labels.setdefault(target, Label()), lasti, depth)
        begins[first], ends[past] = region, TryEnd(region)
    listing: list[Item] = []
    for start, instr in [*at, (end, None)]:
        for marks in (ends, labels, begins):
            mark = marks.get(start)
            if mark is not None:
                listing.append(mark)
        if instr is not None:
            listing.append(instr)
    return listing


_NAMES = {number: name for name, number in OPMAP.items() if number < 256}


def _variables(code: CodeType) -> list[tuple[Any, Any]]:
    """What stands in each slot of a frame, to an instruction for plain locals and to one that looks into cells."""
    cells, plain = code.co_cellvars, code.co_varnames
    slots: list[tuple[Any, Any]] = [(name, CellVar(name) if name in cells else name) for name in plain]
    slots += [(CellVar(name), CellVar(name)) for name in cells if name not in plain]
    return slots + [(FreeVar(name), FreeVar(name)) for name in code.co_freevars]


def exception_table(table: bytes) -> Iterator[tuple[int, int, int, int, bool]]:
    """Start, end (exclusive), target, depth and whether to push the offset, of each region
    (InternalDocs/exception_handling.md)."""
    numbers = iter(_varints(table))
    for start in numbers:
        length, target, packed = next(numbers), next(numbers), next(numbers)
        yield start, start + length, target, packed >> 1, bool(packed & 1)


def _varints(table: bytes) -> Iterator[int]:
    value = 0
    for byte in table:
        value = value << 6 | byte & _SIX_BITS
        if not byte & _CONTINUES:
            yield value
            value = 0
