"""Machine code of Triton kernels, made without a GPU; what fails is raised."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import triton
from triton.backends.nvidia import compiler as nvidia

from framejit.backends.fuse.triton import device
from framejit.backends.fuse.triton.compile import GpuBinary, begun_gpu_kernels
from framejit.backends.fuse.triton.kernel_source import TritonSource


def machine_code(sources: Sequence[TritonSource], capability: int = 90) -> list[GpuBinary]:
    """`begun_gpu_kernels`, which gives what was raised. Here it is."""
    binaries = []
    for outcome in begun_gpu_kernels(sources, capability)():
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
    [whole] = [file for name, file in nvidia.CUDAOptions().extern_libs if name == "libdevice"]
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


@contextmanager
def assembled_together() -> Iterator[None]:
    """For many kernels: while in the block, what Triton would start ptxas for is put aside, and `GpuBinary.cubin` is
    empty. At its end ptxas is started once, for all of them: starting it takes longer than a small kernel does. Raises
    AssertionError with what ptxas says of kernels that it refuses."""
    waiting = _Waiting()
    real, nvidia.subprocess = nvidia.subprocess, waiting
    try:
        with triton.knobs.compilation.scope():
            triton.knobs.compilation.disable_line_info = True  # each kernel numbers the files of its lines anew
            yield
    finally:
        nvidia.subprocess = real
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "all.ptx"), Path(folder, "all.cubin")
        for command, kernels in waiting.kernels.items():
            source.write_text("\n".join(_alone(kernel, number) for number, kernel in enumerate(kernels)))
            done = subprocess.run([*command, str(source), "-o", str(cubin)], capture_output=True, text=True)
            assert done.returncode == 0, f"{done.stderr}\nof\n{source.read_text()}"
            assert cubin.read_bytes()[:4] == b"\x7fELF"
            assert done.stderr.count("Compiling entry function") == len(kernels), done.stderr


class _Waiting:
    """The module subprocess, as far as Triton's backend starts ptxas by it, without starting anything."""

    def __init__(self) -> None:
        self.kernels: dict[tuple[str, ...], list[str]] = {}
        """Texts of PTX, by ptxas with its options."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def run(self, command: Sequence[str], **_: Any) -> None:
        """Keep the text for a command `ptxas options... file -o cubin`."""
        *options, file, _, cubin = command
        self.kernels.setdefault(tuple(options), []).append(Path(file).read_text())
        Path(cubin).touch()


_DIRECTIVE = re.compile(r"^\.(?:version|target|address_size)\b.*$", re.MULTILINE)
_NAMED = re.compile(
    r"^\.(?:visible \.entry|(?:extern )?\.?(?:global|shared|const)\b[^;=({\n]*?|func .*) *\b([\w$]+)(?=\(|\[| =|;|$)",
    re.MULTILINE,
)
"""Kernels, functions and variables of a file's own."""


def _alone(kernel: str, number: int) -> str:
    """A kernel's text as one of several in a file: what it names is named as nothing else there."""
    for name in {*_NAMED.findall(kernel)}:
        kernel = re.sub(rf"(?<![\w$.%]){re.escape(name)}(?![\w$])", f"{name}_{number}", kernel)
    return _DIRECTIVE.sub("", kernel) if number else kernel
