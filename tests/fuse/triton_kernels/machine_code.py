"""Machine code of Triton kernels, made without a GPU; what fails is raised."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import llvmlite.binding as llvm
import triton
from triton.backends.nvidia.compiler import CUDAOptions

from framejit.backends.fuse.triton import device
from framejit.backends.fuse.triton.compile import GpuBinary, compile_gpu_kernels
from framejit.backends.fuse.triton.kernel_source import TritonSource


def machine_code(sources: Sequence[TritonSource], capability: int = 90) -> list[GpuBinary]:
    """`compile_gpu_kernels`, which gives what was raised. Here it is."""
    binaries = []
    for outcome in compile_gpu_kernels(sources, capability):
        if isinstance(outcome, Exception):
            raise outcome
        binaries.append(outcome)
    return binaries


@contextmanager
def functions_of(sources: Sequence[TritonSource]) -> Iterator[None]:
    """For many kernels: while in the block, CUDA's library of functions has those alone that the sources name. Triton
    reads all of it for each kernel that calls one, which takes a third of the kernel's time. A kernel that calls a
    function that is not named fails."""
    text = Path(device.__file__).read_text() + "".join(source.code for source in sources)
    named = {f"__nv_{name}{kind}" for name in re.findall(r"\b(?:libdevice|tl)\.(\w+)", text) for kind in ("", "f")}
    [whole] = [file for name, file in CUDAOptions().extern_libs if name == "libdevice"]
    module = llvm.parse_bitcode(Path(whole).read_bytes())
    for function in module.functions:
        if not function.is_declaration and function.name not in named:
            function.linkage = "internal"
    llvm.initialize_native_target()
    machine = llvm.Target.from_default_triple().create_target_machine()
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    with tempfile.NamedTemporaryFile(suffix=".bc") as file, triton.knobs.nvidia.scope():
        file.write(module.as_bitcode())
        file.flush()
        triton.knobs.nvidia.libdevice_path = file.name
        yield
