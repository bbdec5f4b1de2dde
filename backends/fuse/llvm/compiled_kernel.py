"""Compiled kernels for a CPU, and their machine code, which equal ones share. Nothing here generates any: a process
that finds all its kernels on the disk needs no generator."""
from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import field
from threading import Lock
from typing import Final
from weakref import WeakValueDictionary

from framejit.backends.fuse.llvm.loaded_object import LoadedObject
from framejit.backends.fuse.llvm.processor import processor_key
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize
from framejit.late_dataclass import dataclass

FUNCTION: Final = "framejit_kernel"


@dataclass(eq=False)
class CpuKernel:
    """A compiled kernel: `void f(char *const *pointers, const int64_t *ints, int64_t begin, int64_t end)`. Valid for as
    long as this object lives."""

    name: str
    remarks: str
    """Comments for people: the user's source lines, and what is computed."""
    text: str
    """LLVM's text."""
    buffers: tuple[str, ...]
    """Names of the buffers, in the order in which their addresses are passed."""
    total: int
    """The size of the parallel loop that `begin` and `end` are of."""
    grain: int
    """The fewest turns of it that are worth a thread."""
    code: CompiledCode
    sizes: tuple[int | SymbolicSize, ...] = ()
    """What it is given as `ints`: sizes that were not known when it was compiled, or that its code is not for alone."""

    @property
    def source(self) -> str:
        """The text as people read it."""
        return f"{self.remarks}{self.text}"

    @property
    def address(self) -> int:
        """Where the function is."""
        return self.code.address

    @property
    def object_code(self) -> bytes:
        """The kernel's machine code as an object file, from which `load_object` makes it again on such a machine."""
        return self.code.object_code

    @property
    def key(self) -> str:
        """A text that kernels share whose machine code is the same."""
        return self.code.key


@dataclass(eq=False)
class CompiledCode:
    """Machine code that equal kernels share."""

    key: str
    object_code: bytes
    loaded: LoadedObject = field(init=False)
    address: int = field(init=False)

    def __post_init__(self) -> None:
        self.loaded = LoadedObject(self.object_code)
        self.address = self.loaded.address(FUNCTION)


_compiled: WeakValueDictionary[str, CompiledCode] = WeakValueDictionary()
_lock = Lock()


def code_key(text: str) -> str:
    """A name for the machine code of a text on this machine."""
    return hashlib.sha256(f"{processor_key()}\n{text}".encode()).hexdigest()


def code_of(text: str, object_code: Callable[[str], bytes]) -> CompiledCode:
    """The machine code of a kernel's text, which equal kernels share as long as one of them is alive."""
    key = code_key(text)
    return _compiled.get(key) or _remember(CompiledCode(key, object_code(text)))


def load_object(object_code: bytes, key: str) -> CompiledCode:
    """Code that `object_code` of a kernel with this `key` gave. Raises RuntimeError if it is none."""
    return _compiled.get(key) or _remember(CompiledCode(key, object_code))


def _remember(code: CompiledCode) -> CompiledCode:
    with _lock:
        return _compiled.setdefault(code.key, code)
