"""What the functions of all kernels have in common, around what each does in its turns."""
from __future__ import annotations

from collections.abc import Iterable

from framejit.backends.fuse.llvm.assembler import Assembler, Block, Module


def begin_function(blocks: list[Block], module: Module, pointers: Iterable[str]) -> Assembler:
    """Write a function's beginning: without turns nothing is done; else the registers of that name are pointers to the
    kernel's buffers, in their order. Returns where to go on."""
    entry, start = Block("entry"), Block("start")
    entry.lines += ["%some = icmp slt i64 %begin, %end", "br i1 %some, label %start, label %done"]
    blocks += [entry, start]
    asm = Assembler(module, start)
    for position, register in enumerate(pointers):
        asm.do(f"%a{position} = getelementptr ptr, ptr %pointers, i64 {position}")
        asm.do(f"{register} = load ptr, ptr %a{position}")
    return asm


def end_function(blocks: list[Block], asm: Assembler) -> None:
    """Write the end of what `begin_function` began, behind all turns."""
    asm.do("br label %done")
    blocks.append(Block("done", lines=["ret void"]))


def module_text(name: str, module: Module, blocks: list[Block], constants: tuple[str, ...] = (), *, wide: bool) -> str:
    """The text of a module with that function. `wide`: whether vectors may take 64 bytes; the code generator splits
    them elsewhere."""
    width = ' "prefer-vector-width"="512" "min-legal-vector-width"="512"' if wide else ""
    return "\n".join(
        [
            *constants,
            *module.declarations.values(),
            f"define void @{name}(ptr noalias readonly %pointers, ptr noalias readonly %ints, i64 %begin, i64 %end) "
            "#0 {",
            "\n".join(block.text() for block in blocks), "}", f"attributes #0 = {{ nounwind{width} }}", "",
        ]
    )
