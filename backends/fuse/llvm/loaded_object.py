"""Object code in memory, where it can be called.

What LLVM writes for kernels on x86-64 is placed here: an ELF file (System V ABI, chapter 4) of the large code model,
whose few kinds of relocations are filled in as the ABI's supplement for AMD64 says (table 4.9). LLVM does the same, but
importing it takes longer than anything else in a process that finds its kernels on the disk. Whatever else a file
holds is left to LLVM, and so are other processors and systems.
"""
from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from framejit.backends.fuse.llvm.processor import address_of, torch_library

# the ABI's numbers and records
_IDENTITY: Final = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian
_RELOCATABLE, _X86_64 = 1, 62
_SYMBOLS, _RELOCATIONS, _NO_BITS = 2, 4, 8  # kinds of sections
_WRITABLE, _IN_MEMORY, _EACH_THREADS = 0x1, 0x2, 0x400  # flags of sections
_UNDEFINED, _FIRST_RESERVED = 0, 0xFF00  # numbers of sections
_FUNCTION: Final = 2  # a kind of symbol
_ABSOLUTE, _RELATIVE, _FROM_TABLE, _SLOT, _TABLE = 1, 24, 25, 27, 29  # kinds of relocations, of 8 bytes each
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QIIq")
_WORD: Final = struct.Struct("<Q")

_PLACED_HERE: Final = sys.platform == "linux" and platform.machine() == "x86_64"


class LoadedObject:
    """Object code in memory: executable for as long as this lives."""

    def __init__(self, code: bytes) -> None:
        """Raises RuntimeError for what is no object code, or calls a function that is not in this process."""
        self._object: _Placed | _LeftToLlvm
        try:
            self._object = _Placed(code) if _PLACED_HERE else _LeftToLlvm(code)
        except _NotPlaced:
            self._object = _LeftToLlvm(code)

    def address(self, name: str) -> int:
        """Where a function is. Raises KeyError if there is none of that name."""
        return self._object.address(name)


class _NotPlaced(Exception):
    """A file holds what is left to LLVM."""


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class _Symbol(NamedTuple):
    name: str
    kind: int
    section: int
    value: int


class _Relocation(NamedTuple):
    section: int
    """The number of the section in which a word is filled in."""
    offset: int
    symbol: int
    kind: int
    addend: int


class _Placed:
    """The sections of a file behind a table of the addresses of what its code calls, in memory of their own."""

    def __init__(self, code: bytes) -> None:
        try:
            sections = _sections(code)
            self._symbols = _symbols(code, sections)
            relocations = [*_relocations(code, sections)]
            called = dict.fromkeys(relocation.symbol for relocation in relocations if relocation.kind == _SLOT)
            slots = {symbol: _WORD.size * position for position, symbol in enumerate(called)}
            self._offsets, size = _offsets(sections, _WORD.size * len(slots))
            self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
            for number, offset in self._offsets.items():
                section = sections[number]
                if section.kind != _NO_BITS:
                    end = section.offset + section.size
                    self._memory[offset : offset + section.size] = code[section.offset : end]
            for symbol, slot in slots.items():
                _WORD.pack_into(self._memory, slot, self._address(symbol))
            for relocation in relocations:
                place = self._offsets[relocation.section] + relocation.offset
                word = self._word(relocation, place, slots) + relocation.addend
                _WORD.pack_into(self._memory, place, word % (1 << 64))
        except (struct.error, IndexError, KeyError, ValueError) as e:  # LLVM would not survive it
            raise RuntimeError(f"a kernel's object code is torn ({type(e).__name__}: {e})") from e
        _make_executable(self._start, size)

    def address(self, name: str) -> int:
        for number, symbol in enumerate(self._symbols):
            if (symbol.name, symbol.kind) == (name, _FUNCTION) and symbol.section != _UNDEFINED:
                return self._address(number)
        raise KeyError(name)

    def _word(self, relocation: _Relocation, place: int, slots: dict[int, int]) -> int:
        """What a relocation fills in, without its addend. The table is at the start."""
        if relocation.kind == _ABSOLUTE:
            return self._address(relocation.symbol)
        if relocation.kind == _RELATIVE:
            return self._address(relocation.symbol) - self._start - place
        if relocation.kind == _FROM_TABLE:
            return self._address(relocation.symbol) - self._start
        if relocation.kind == _SLOT:
            return slots[relocation.symbol]
        if relocation.kind == _TABLE:
            return -place
        raise _NotPlaced

    def _address(self, number: int) -> int:
        symbol = self._symbols[number]
        if symbol.section >= _FIRST_RESERVED:
            raise _NotPlaced
        if symbol.section != _UNDEFINED:
            return self._start + self._offsets[symbol.section] + symbol.value
        address = address_of(symbol.name)
        if address is None:
            raise RuntimeError(f"a kernel calls {symbol.name!r}, which is not in this process")
        return address


def _sections(code: bytes) -> list[_Section]:
    identity, kind, processor, _, _, _, start, _, _, _, _, entry_size, count, _ = _HEADER.unpack_from(code)
    if not identity.startswith(_IDENTITY) or (kind, processor, entry_size) != (_RELOCATABLE, _X86_64, _SECTION.size):
        raise ValueError("no such file")
    return [_Section(*_SECTION.unpack_from(code, start + entry_size * number)) for number in range(count)]


def _symbols(code: bytes, sections: list[_Section]) -> list[_Symbol]:
    [table] = [section for section in sections if section.kind == _SYMBOLS]
    names = sections[table.link].offset
    symbols = []
    for offset in range(table.offset, table.offset + table.size, _SYMBOL.size):
        name, info, _, section, value, _ = _SYMBOL.unpack_from(code, offset)
        text = code[names + name : code.index(0, names + name)].decode()
        symbols.append(_Symbol(text, info & 0xF, section, value))
    return symbols


def _relocations(code: bytes, sections: list[_Section]) -> Iterator[_Relocation]:
    for section in sections:
        if section.kind == _RELOCATIONS and sections[section.info].flags & _IN_MEMORY:
            for start in range(section.offset, section.offset + section.size, _RELOCATION.size):
                offset, kind, symbol, addend = _RELOCATION.unpack_from(code, start)
                yield _Relocation(section.info, offset, symbol, kind, addend)


def _offsets(sections: list[_Section], begin: int) -> tuple[dict[int, int], int]:
    """Where sections are, by number, behind the first `begin` bytes; and how many bytes that are."""
    offsets = {}
    for number, section in enumerate(sections):
        if not section.flags & _IN_MEMORY:
            continue
        if section.flags & (_WRITABLE | _EACH_THREADS) or section.alignment > mmap.PAGESIZE:
            raise _NotPlaced
        offsets[number] = begin = -(-begin // max(section.alignment, 1)) * max(section.alignment, 1)
        begin += section.size
    return offsets, begin


def _make_executable(start: int, size: int) -> None:
    if _protect()(start, size, mmap.PROT_READ | mmap.PROT_EXEC):
        reason = os.strerror(ctypes.get_errno())
        raise RuntimeError(f"the system does not let kernels be executed: {reason}")


@cache
def _protect() -> Any:
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return protect


class _LeftToLlvm:
    """Object code as LLVM loads it."""

    def __init__(self, code: bytes) -> None:
        import llvmlite.binding as llvm

        from framejit.backends.fuse.llvm.machine import machine

        machine()
        library = torch_library()
        if library is not None:
            llvm.load_library_permanently(library)
        own = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault")  # which compiles nothing
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), own)
        self._engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        address: int = self._engine.get_function_address(name)
        if not address:
            raise KeyError(name)
        return address
