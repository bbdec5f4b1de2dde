"""The tables beside the instructions of a code object: source positions and exception regions, as CPython writes
them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from framejit.bytecode.instr import Location

# Kinds of entries (Objects/locations.md); 0 to 9 are short forms, 10 to 12 are on one line that many lines on.
_ONE_LINE, _NO_COLUMNS, _LONG, _NONE = 10, 13, 14, 15
_LONGEST = 8  # code units that one entry covers
_MERGED = sys.version_info >= (3, 12)  # whether neighbours at one place share an entry


def encode_locations(locations: Sequence[Location | None], sizes: Sequence[int], first_line: int) -> bytes:
    """`co_linetable` for instructions at `locations` that take `sizes` code units."""
    table = bytearray()
    line = first_line
    i = 0
    while i < len(locations):
        location, units = locations[i], sizes[i]
        i += 1
        while _MERGED and i < len(locations) and locations[i] == location:
            units += sizes[i]
            i += 1
        while units > 0:
            line = _entry(table, location, min(units, _LONGEST), line)
            units -= _LONGEST
    return bytes(table)


def _entry(table: bytearray, location: Location | None, units: int, line: int) -> int:
    """Write one entry; the line that the next one counts from."""

    def first(kind: int) -> None:
        table.append(0x80 | kind << 3 | units - 1)

    here, end, column, end_column = location or (None, None, None, None)
    if here is None:
        first(_NONE)
        return line
    delta = here - line
    if column is None or end_column is None:
        if end is None or end == here:
            first(_NO_COLUMNS)
            _signed(table, delta)
            return here
    elif end == here:
        if delta == 0 and column < 80 and 0 <= end_column - column < 16:
            first(column >> 3)
            table.append((column & 7) << 4 | end_column - column)
            return here
        if 0 <= delta < 3 and column < 128 and end_column < 128:
            first(_ONE_LINE + delta)
            table += bytes((column, end_column))
            return here
    first(_LONG)
    _signed(table, delta)
    _unsigned(table, (here if end is None else end) - here)
    _unsigned(table, 0 if column is None else column + 1)
    _unsigned(table, 0 if end_column is None else end_column + 1)
    return here


def _unsigned(table: bytearray, value: int) -> None:
    while value >= 0x40:
        table.append(0x40 | value & 0x3F)
        value >>= 6
    table.append(value)


def _signed(table: bytearray, value: int) -> None:
    _unsigned(table, -value << 1 | 1 if value < 0 else value << 1)


def encode_exceptions(regions: Iterable[tuple[int, int, int, int, bool]]) -> bytes:
    """`co_exceptiontable` for regions: start, end, target, depth of the stack, and whether to push the raising
    offset."""
    table = bytearray()
    for start, end, target, depth, lasti in regions:
        for i, value in enumerate((start, end - start, target, depth << 1 | lasti)):
            digits = [value & 0x3F]
            while value := value >> 6:
                digits.append(value & 0x3F | 0x40)
            digits.reverse()
            if i == 0:
                digits[0] |= 0x80
            table += bytes(digits)
    return bytes(table)
