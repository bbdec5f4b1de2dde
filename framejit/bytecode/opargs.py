"""What the number beside an opcode means: one rule for each kind of opcode, in both directions.

The tables are those of the running interpreter's own `opcode` module, so that a new opcode of a known kind needs
nothing here.
"""

from __future__ import annotations

import dis
import opcode
import sys
from typing import Any

from framejit.bytecode.instr import OPMAP, Compare

VERSION = sys.version_info[:2]


def _numbers(*names: str) -> frozenset[int]:
    return frozenset(OPMAP[name] for name in names if name in OPMAP)


if sys.version_info >= (3, 12):
    HAS_ARG = frozenset(dis.hasarg)
else:
    HAS_ARG = frozenset(n for n in OPMAP.values() if n >= dis.HAVE_ARGUMENT)
CONSTANT = frozenset(dis.hasconst)
JUMP = frozenset(dis.hasjrel)  # no version supported has absolute ones
BACKWARD = frozenset(n for name, n in OPMAP.items() if n in JUMP and ("BACKWARD" in name or name == "END_ASYNC_FOR"))
VARIABLE = frozenset(dis.haslocal) | frozenset(dis.hasfree)
IN_CELL = frozenset(
    n for name, n in OPMAP.items() if n in VARIABLE and ("DEREF" in name or name in ("MAKE_CELL", "LOAD_CLOSURE"))
)
TWO_VARIABLES = frozenset(n for name, n in OPMAP.items() if n in VARIABLE and name.count("_FAST") == 2)
NAME = frozenset(dis.hasname)

# How many flags stand in the low bits, below the index of a name.
FLAGS = dict.fromkeys(_numbers("LOAD_GLOBAL", *(("LOAD_ATTR",) if VERSION >= (3, 12) else ())), 1)
FLAGS |= dict.fromkeys(_numbers("LOAD_SUPER_ATTR", *(("IMPORT_NAME",) if VERSION >= (3, 15) else ())), 2)

_COMPARE = OPMAP["COMPARE_OP"]
_COMPARE_SHIFT = 0 if VERSION < (3, 12) else 4 if VERSION < (3, 13) else 5
_CAST = 16
# What a comparison accepts of: unordered, less, greater, equal (Include/internal/pycore_code.h).
_ACCEPTS = {Compare.LT: 2, Compare.LE: 2 | 8, Compare.EQ: 8, Compare.NE: 1 | 2 | 4, Compare.GT: 4, Compare.GE: 4 | 8}

# Opcodes whose number is an index into a table of the interpreter.
_TABLES: dict[int, list[Any]] = {}
for _name, _table in (
    ("CALL_INTRINSIC_1", "_intrinsic_1_descs"),
    ("CALL_INTRINSIC_2", "_intrinsic_2_descs"),
    ("LOAD_SPECIAL", "_special_method_names"),
    ("LOAD_COMMON_CONSTANT", "_common_constants"),
):
    if _name in OPMAP:
        _TABLES[OPMAP[_name]] = list(getattr(opcode, _table))


def _caches(name: str) -> int:
    entries: Any = dis._inline_cache_entries  # type: ignore[attr-defined]  # by number until 3.12, then by name
    return int(entries[OPMAP[name]] if VERSION < (3, 13) else entries.get(name, 0))


# How many cache entries follow an instruction.
CACHES = {number: _caches(name) for name, number in OPMAP.items() if number < 256}


def meaning(number: int, arg: int) -> Any:
    """The meaning of the operand `arg` of an opcode that takes neither a constant, a name, a variable nor a jump: the
    comparison or table entry that it numbers, else the number itself."""
    if number == _COMPARE:
        return Compare((arg >> _COMPARE_SHIFT) | (arg & _CAST if _COMPARE_SHIFT == 5 else 0))
    table = _TABLES.get(number)
    return arg if table is None else table[arg]


def encoding(number: int, arg: Any) -> int:
    """The number that means `arg`; the inverse of `meaning`."""
    if number == _COMPARE:
        plain = Compare(arg & ~_CAST)
        return int((plain << _COMPARE_SHIFT) | (arg & _CAST) | (_ACCEPTS[plain] if _COMPARE_SHIFT else 0))
    table = _TABLES.get(number)
    if table is None:
        return int(arg)
    return next(i for i, known in enumerate(table) if known is arg or type(known) is type(arg) is str and known == arg)
