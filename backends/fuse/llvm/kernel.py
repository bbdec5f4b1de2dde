"""Kernels to machine code: the way into the generator."""
from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from framejit.backends.fuse.llvm.alike import shape_of
from framejit.backends.fuse.llvm.compiled_kernel import FUNCTION, CompiledCode, CpuKernel, code_of
from framejit.backends.fuse.llvm.jit import compile_text
from framejit.backends.fuse.llvm.loops import KernelWriter
from framejit.backends.fuse.llvm.plan import plan_loops
from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index, Indirect, Quotient, Var
from framejit.backends.fuse.loop_ir.nodes import Kernel
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize


def kernel_text(kernel: Kernel) -> tuple[str, tuple[SymbolicSize, ...], int, int]:
    """LLVM's text of a kernel, the sizes that it is to be given, the size of its parallel loop and the fewest turns of
    it that are worth a thread.

    Raises NotImplementedError for what the generator cannot do.
    """
    plan = plan_loops(kernel)
    text, sizes = KernelWriter(plan, FUNCTION).write()
    return text, sizes, plan.total, plan.grain


@dataclass(frozen=True)
class Written:
    """What kernels alike have in common: see `CpuKernel`."""

    text: str
    total: int
    grain: int
    code: CompiledCode
    sizes: tuple[SymbolicSize, ...]


def compile_cpu_kernel(
    kernel: Kernel, object_code: Callable[[str], bytes] = compile_text, written: dict[Hashable, Written] | None = None
) -> CpuKernel:
    """Compile a kernel; one equal to another that is still alive shares its code. Raises NotImplementedError for what
    cannot be done.

    `object_code` gives a module's object code for its text; a cache may stand in for compiling. `written` has what was
    written of kernels, by their shape, for others that are like them, and is added to.
    """
    shape = shape_of(kernel) if written is not None else None
    found = None if written is None or shape is None else written.get(shape)
    if found is None:
        text, sizes, total, grain = kernel_text(kernel)
        found = Written(text, total, grain, code_of(text, object_code), sizes)
        if written is not None and shape is not None:
            written[shape] = found
    return CpuKernel(
        kernel.name, _remarks(kernel), found.text, tuple(kernel.buffers), found.total, found.grain, found.code,
        found.sizes,
    )


def _remarks(kernel: Kernel) -> str:
    """Comments that give the user's source lines and what is computed, each expression once."""
    lines = [
        *kernel.origins,
        f"{kernel.name}: for {_loops(kernel.parallel) or 'one element'}"
        + (f", reducing {_loops(kernel.reduction)}" if kernel.reduction else ""),
    ]
    lines += [f"%p{position} is {buffer}" for position, buffer in enumerate(kernel.buffers.values())]
    names: dict[Expr, str] = {}
    for store in kernel.stores:
        for root in (*(atom.value for atom in store.index.indirects), store.value):
            for node in root.walk() if root not in names else ():
                if node not in names:
                    names[node] = _named(node, names, lines)
        lines.append(
            f"{store.buffer}[{_spelt(store.index, names)}] = "
            f"{names[store.value]}{'  (each turn of the reduction)' if store.in_reduction else ''}"
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
