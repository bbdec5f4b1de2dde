"""Kernels to machine code: the way into the generator."""
from __future__ import annotations

from collections.abc import Callable, Hashable

from framejit.backends.fuse.layers.named_text import NamedText
from framejit.backends.fuse.llvm.alike import shape_of
from framejit.backends.fuse.llvm.compiled_kernel import FUNCTION, CompiledCode, CpuKernel, code_of
from framejit.backends.fuse.llvm.loops import KernelWriter
from framejit.backends.fuse.llvm.object_code import compile_text
from framejit.backends.fuse.llvm.plan import plan_loops
from framejit.backends.fuse.llvm.products.convolution import ConvolutionWriter
from framejit.backends.fuse.llvm.products.small_product import SmallProductWriter
from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index, Indirect, Quotient, Var
from framejit.backends.fuse.loop_ir.nodes import Kernel, SmallProduct, TileKernel
from framejit.backends.fuse.loop_ir.renamed_kernel import RenamedKernel
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize
from framejit.late_dataclass import dataclass


def kernel_text(kernel: Kernel) -> tuple[str, tuple[int | SymbolicSize, ...], int, int]:
    """LLVM's text of a kernel, the sizes that it is to be given, the size of its parallel loop and the fewest turns of
    it that are worth a thread.

    Raises NotImplementedError for what the generator cannot do.
    """
    if isinstance(kernel, TileKernel) and isinstance(kernel.tile, SmallProduct):
        product = SmallProductWriter(kernel)
        return product.write(FUNCTION), kernel.tile.numbers, product.total, product.grain
    if isinstance(kernel, TileKernel):
        writer = ConvolutionWriter(kernel)
        return writer.write(FUNCTION), (), writer.total, writer.grain
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
    sizes: tuple[int | SymbolicSize, ...]


class Writing:
    """What was written of kernels that are compiled together, for others that are like them. Of these only: what is
    written depends on settings, too."""

    def __init__(self) -> None:
        self.by_shape: dict[Hashable, Written] = {}
        self._remarks: dict[Kernel, NamedText] = {}

    def remarks(self, kernel: Kernel) -> str:
        """As `_remarks` gives them."""
        if not isinstance(kernel, RenamedKernel) or not all(map(str.isidentifier, kernel.names)):
            return _remarks(kernel)
        known = self._remarks.get(kernel.like)
        names = [kernel.name, *kernel.buffers]
        if known is None:
            own = NamedText(_remarks(kernel.like), [kernel.like.name, *kernel.names])
            text = _remarks(kernel)
            if own.text(names) == text:  # no name of a buffer is something else's there
                self._remarks[kernel.like] = own
            return text
        return known.text(names)

    def written(self, kernel: Kernel, object_code: Callable[[str], bytes]) -> Written:
        """What is written of a kernel, of one with other names if there is one."""
        like = kernel.like if isinstance(kernel, RenamedKernel) else kernel
        found = self.by_shape.get(like)
        if found is not None:
            return found
        shape = shape_of(like)
        one = like if isinstance(like, TileKernel) else kernel  # to others it looks like a loop nest without loops
        if shape is None:
            return _written(one, object_code)
        if shape not in self.by_shape:
            self.by_shape[shape] = _written(one, object_code)
        found = self.by_shape[like] = self.by_shape[shape]
        return found


def _written(kernel: Kernel, object_code: Callable[[str], bytes]) -> Written:
    text, sizes, total, grain = kernel_text(kernel)
    return Written(text, total, grain, code_of(text, object_code), sizes)


def compile_cpu_kernel(
    kernel: Kernel, object_code: Callable[[str], bytes] = compile_text, writing: Writing | None = None
) -> CpuKernel:
    """Compile a kernel; one equal to another that is still alive shares its code. Raises NotImplementedError for what
    cannot be done.

    `object_code` gives a module's object code for its text; a cache may stand in for compiling. `writing` is that of
    kernels that are compiled with it.
    """
    writing = writing or Writing()
    found = writing.written(kernel, object_code)
    return CpuKernel(
        kernel.name, writing.remarks(kernel), found.text, tuple(kernel.buffers), found.total, found.grain, found.code,
        found.sizes,
    )


def _remarks(kernel: Kernel) -> str:
    """Comments that give the user's source lines and what is computed, each expression once."""
    kernel = kernel.plain() if isinstance(kernel, RenamedKernel) else kernel
    if isinstance(kernel, TileKernel):
        what = str(kernel.tile)
    else:
        what = f"for {_loops(kernel.parallel) or 'one element'}"
        what += f", reducing {_loops(kernel.reduction)}" if kernel.reduction else ""
    lines = [*kernel.origins, f"{kernel.name}: {what}"]
    lines += [f"%p{position} is {buffer}" for position, buffer in enumerate(kernel.buffers.values())]
    names: dict[Expr, str] = {}
    for store in kernel.said:
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
