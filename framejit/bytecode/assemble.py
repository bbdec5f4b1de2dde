"""From a listing to a code object: the inverse of `disassemble`."""

from __future__ import annotations

import dis
from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any

from framejit.bytecode.instr import OPMAP, CellVar, Instr, Item, Label, Location, TryBegin
from framejit.bytecode.opargs import (
    BACKWARD,
    CACHES,
    CONSTANT,
    FLAGS,
    HAS_ARG,
    JUMP,
    NAME,
    TWO_VARIABLES,
    VARIABLE,
    VERSION,
    encoding,
)
from framejit.bytecode.spellings import expand
from framejit.bytecode.tables import encode_exceptions, encode_locations
from framejit.environment.torch_compile import kept_from_dynamo

_EXTENDED_ARG = OPMAP["EXTENDED_ARG"]
_HAS_DOCSTRING = 0x4000000 if VERSION >= (3, 13) else 0
_VAR_ARGUMENTS = 0x4 | 0x8


class Tables:
    """The constants, names and variables of a code object that is being made.

    They begin with those of the code that the listing stems from, so that its instructions keep their numbers.
    """

    def __init__(self, like: CodeType, variables: Iterable[str], cells: Sequence[str], free: Sequence[str]) -> None:
        self.consts: list[Any] = list(like.co_consts)
        self._const_at: dict[int, int] = {}  # by id: equal constants may differ in type or sign
        for i, value in enumerate(self.consts):
            self._const_at.setdefault(id(value), i)
        self.names = {name: i for i, name in enumerate(like.co_names)}
        self.variables = {name: i for i, name in enumerate(variables)}
        self.cells, self.free = cells, free

    def const(self, value: Any) -> int:
        found = self._const_at.get(id(value))
        if found is None:
            found = self._const_at[id(value)] = len(self.consts)
            self.consts.append(value)
        return found

    def name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def add_variables(self, instr: Instr) -> None:
        """Give the plain locals of an instruction their slots; cells come behind all of these."""
        for part in instr.arg if instr.opcode in TWO_VARIABLES else (instr.arg,):
            if type(part) is str:
                self.variables.setdefault(part, len(self.variables))

    def finish_variables(self) -> None:
        """Give slots to cells that are no arguments, and to free variables."""
        slots = len(self.variables)
        self._cell_at: dict[str, int] = {}
        for name in self.cells:
            if name in self.variables:
                self._cell_at[name] = self.variables[name]
            else:
                self._cell_at[name] = slots
                slots += 1
        self._free_at = {name: slots + i for i, name in enumerate(self.free)}

    def slot(self, variable: Any) -> int:
        if type(variable) is str:
            return self.variables[variable]
        return (self._cell_at if isinstance(variable, CellVar) else self._free_at)[variable.name]

    def oparg(self, instr: Instr) -> int:
        """The number beside the opcode; 0 for jumps, whose distance is not known yet."""
        number, arg = instr.opcode, instr.arg
        if number in CONSTANT:
            return self.const(arg)
        if number in TWO_VARIABLES:
            return self.slot(arg[0]) << 4 | self.slot(arg[1])
        if number in VARIABLE:
            return self.slot(arg)
        if number in NAME:
            flags = FLAGS.get(number)
            if flags is None:
                return self.name(arg)
            return self.name(arg[-1]) << flags | sum(bool(flag) << i for i, flag in enumerate(arg[:-1]))
        if number in JUMP or number not in HAS_ARG:
            return 0
        return encoding(number, arg)


def assemble(
    listing: Sequence[Item],
    like: CodeType,
    *,
    variables: Sequence[str],
    argcount: int,
    cells: Sequence[str],
    free: Sequence[str],
    stacksize: int | None = None,
    straight: int = 0,
    **changes: Any,
) -> CodeType:
    """A code object of `listing` with the constants, names, file and flags of `like`.

    `variables` begin with the arguments. Without a `stacksize` the first `straight` items are taken to be straight-line
    code in front of code of `like`, which may be entered at any depth that code can have.
    """
    tables = Tables(like, variables, cells, free)
    for item in listing:
        if isinstance(item, Instr) and item.opcode in VARIABLE:
            tables.add_variables(item)
    tables.finish_variables()
    instrs: list[Instr] = []
    opargs: list[int] = []
    labels: dict[Label, int] = {}
    begins: dict[int, int] = {}  # id of a region -> instruction
    regions: list[tuple[TryBegin, int, int]] = []
    for item in listing:
        if isinstance(item, Instr):
            instrs.append(item)
            opargs.append(tables.oparg(item))
        elif isinstance(item, Label):
            labels[item] = len(instrs)
        elif isinstance(item, TryBegin):
            begins[id(item)] = len(instrs)
        else:
            regions.append((item.entry, begins[id(item.entry)], len(instrs)))
    if stacksize is None:
        prologue = sum(isinstance(item, Instr) for item in listing[:straight])
        stacksize = _depth_bound(instrs[:prologue], opargs) + like.co_stacksize + 4
    offsets = _resolve_jumps(instrs, opargs, labels)
    raw = bytearray()
    for instr, oparg in zip(instrs, opargs):
        for shift in (24, 16, 8):
            if oparg >> shift:
                raw += bytes((_EXTENDED_ARG, oparg >> shift & 0xFF))
        raw += bytes((instr.opcode, oparg & 0xFF)) + bytes(2 * CACHES[instr.opcode])
    sizes = [after - before for before, after in zip(offsets, offsets[1:])]
    locations: list[Location | None] = [instr.location for instr in instrs]
    exceptions = [
        (offsets[first], offsets[past], offsets[labels[region.target]], region.stack_depth, region.push_lasti)
        for region, first, past in sorted(regions, key=_start)
        if first < past
    ]
    made = like.replace(
        co_code=bytes(raw),
        co_consts=tuple(tables.consts),
        co_names=tuple(tables.names),
        co_varnames=tuple(tables.variables),
        co_nlocals=len(tables.variables),
        co_cellvars=tuple(cells),
        co_freevars=tuple(free),
        co_argcount=argcount,
        co_stacksize=stacksize,
        co_linetable=encode_locations(locations, sizes, like.co_firstlineno),
        co_exceptiontable=encode_exceptions(exceptions),
        **changes,
    )
    return kept_from_dynamo(made)  # which does not know such constants


def _start(region: tuple[TryBegin, int, int]) -> int:
    return region[1]


def assemble_variant(
    instructions: list[Any], like: CodeType, args: list[str], cells: tuple[str, ...] = (), free: tuple[str, ...] = (),
    body: list[Any] | None = None
) -> CodeType:
    """A code object with the name, file and flags of `like`, positional arguments `args` and no var-arguments.

    `instructions` are straight-line code; `body`, if given, is a copy of the code of `like` that they lead into.
    """
    straight = expand(instructions)
    return assemble(
        straight + expand(body or []),
        like,
        variables=args,
        argcount=len(args),
        cells=cells,
        free=free,
        straight=len(straight),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=like.co_flags & ~(_VAR_ARGUMENTS | _HAS_DOCSTRING),
    )


def _depth_bound(instrs: list[Instr], opargs: list[int]) -> int:
    """An upper bound of the stack depth straight-line code reaches."""
    depth = bound = 0
    for instr, oparg in zip(instrs, opargs):
        depth = max(depth + dis.stack_effect(instr.opcode, oparg if instr.opcode in HAS_ARG else None, jump=False), 0)
        bound = max(bound, depth)
    return bound


def _resolve_jumps(instrs: list[Instr], opargs: list[int], labels: dict[Label, int]) -> list[int]:
    """Fill in the distances of jumps; the offset of each instruction, in code units, and of the end."""
    jumps = [(i, instr.opcode, labels[instr.arg]) for i, instr in enumerate(instrs) if instr.opcode in JUMP]
    while True:
        offsets = [0]
        for instr, oparg in zip(instrs, opargs):
            offsets.append(
                offsets[-1] + 1 + (oparg > 0xFF) + (oparg > 0xFFFF) + (oparg > 0xFFFFFF) + CACHES[instr.opcode]
            )
        stable = True
        for i, number, target in jumps:
            distance = offsets[i + 1] - offsets[target] if number in BACKWARD else offsets[target] - offsets[i + 1]
            if distance < 0:
                raise ValueError(f"{instrs[i].name} leads the wrong way")
            if distance != opargs[i]:
                opargs[i], stable = distance, False
        if stable:
            return offsets
