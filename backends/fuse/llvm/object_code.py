"""From LLVM's text to object code."""
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
