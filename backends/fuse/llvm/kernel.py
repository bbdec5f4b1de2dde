"""Kernels as machine code: the way in."""
from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final
from weakref import WeakValueDictionary

from framejit.backends.fuse.llvm.jit import LoadedObject, compile_text
from framejit.backends.fuse.llvm.loops import KernelWriter
from framejit.backends.fuse.llvm.machine import machine
from framejit.backends.fuse.llvm.plan import plan_loops
from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index, Indirect, Quotient, Var
from framejit.backends.fuse.loop_ir.nodes import Kernel
from framejit.backends.fuse.sizes.open_size import OpenSize

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
    sizes: tuple[OpenSize, ...] = ()
    """What it is given as `ints`: sizes that were not known when it was compiled."""

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
        """What `load_object` makes a kernel of in another process on such a machine."""
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


def kernel_text(kernel: Kernel) -> tuple[str, tuple[OpenSize, ...], int, int]:
    """LLVM's text of a kernel, the sizes that it is to be given, the size of its parallel loop and the fewest turns of
    it that are worth a thread.

    Raises NotImplementedError for what the generator cannot do.
    """
    plan = plan_loops(kernel)
    text, sizes = KernelWriter(plan, FUNCTION).write()
    return text, sizes, plan.total, plan.grain


def code_key(text: str) -> str:
    """A name for the machine code of a text on this machine."""
    return hashlib.sha256(f"{machine().key}\n{text}".encode()).hexdigest()


def compile_cpu_kernel(kernel: Kernel, object_code: Callable[[str], bytes] = compile_text) -> CpuKernel:
    """Compile a kernel; one equal to another that is still alive shares its code. Raises NotImplementedError for what
    cannot be done.

    `object_code` gives a module's object code for its text; a cache may stand in for compiling.
    """
    text, sizes, total, grain = kernel_text(kernel)
    return CpuKernel(
        kernel.name, _remarks(kernel), text, tuple(kernel.buffers), total, grain, code_of(text, object_code), sizes
    )


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


def _remarks(kernel: Kernel) -> str:
    """Comments that give the user's source lines and what is computed, each expression once."""
    lines = [
        *kernel.origins,
        f"{kernel.name}: for {_loops(kernel.outer) or 'one element'}"
        + (f", reducing {_loops(kernel.inner)}" if kernel.inner else ""),
    ]
    lines += [f"%p{position} is {buffer}" for position, buffer in enumerate(kernel.buffers.values())]
    names: dict[Expr, str] = {}
    for store in kernel.stores:
        for root in (*(atom.value for atom in store.index.indirects()), store.value):
            for node in root.walk() if root not in names else ():
                if node not in names:
                    names[node] = _named(node, names, lines)
        lines.append(
            f"{store.buffer}[{_spelt(store.index, names)}] = "
            f"{names[store.value]}{'  (each inner turn)' if store.inner else ''}"
        )
    return "".join(f"; {line}\n" for line in lines)


def _loops(loops: tuple[Var, ...]) -> str:
    return ", ".join(f"{var}<{var.size}" for var in loops)


def _named(node: Expr, names: dict[Expr, str], lines: list[str]) -> str:
    """The name of an expression; adds the line that says what it stands for."""
    if node.op == "const":
        return str(node)
    dtype = str(node.dtype).removeprefix("torch.")
    if node.op == "load":
        text = f"{node.attr[0]}[{_spelt(node.attr[1], names)}]"
    elif node.op == "index":
        text = _spelt(node.attr, names)
    else:
        text = f"{node.op}{f'_{node.attr}' if node.attr else ''}({', '.join(names[operand] for operand in node.args)})"
    lines.append(f"    v{len(lines)}: {dtype} = {text}")
    return f"v{len(lines) - 1}"


def _spelt(index: Index, names: dict[Expr, str]) -> str:
    """An index with short names for what it looks up."""
    parts = []
    for atom, coefficient in index.terms.items():
        if isinstance(atom, Indirect):
            text = f"[{names[atom.value]}]"
        elif isinstance(atom, Var):
            text = atom.name
        else:
            text = f"({_spelt(atom.index, names)} {'//' if isinstance(atom, Quotient) else '%'} {atom.divisor})"
        parts.append(text if coefficient == 1 else f"{coefficient}*{text}")
    return " + ".join([*parts, str(index.const)] if index.const or not parts else parts)
