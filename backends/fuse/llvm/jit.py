"""From LLVM's text to machine code in memory, and to bytes that another process can load."""
from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding as llvm

from framejit.backends.fuse.llvm.machine import machine


@cache
def _target() -> Any:
    host = machine()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=host.name, features=host.features, opt=2, reloc="pic", codemodel="jitdefault"
    )


def compile_text(text: str) -> bytes:
    """The object code of a module in LLVM's text. Raises RuntimeError if it is none."""
    machine()
    module = llvm.parse_assembly(text)
    module.verify()  # what is wrong would end the process later on
    target = _target()
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)
    return target.emit_object(module)


class LoadedObject:
    """Object code in memory: executable for as long as this lives."""

    def __init__(self, code: bytes) -> None:
        machine()
        own = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault")  # which compiles nothing
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), own)
        self._engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Where a function is. Raises KeyError if there is none of that name."""
        address = self._engine.get_function_address(name)
        if not address:
            raise KeyError(name)
        return address
