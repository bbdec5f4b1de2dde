"""A third target, for tests: kernels as plain C, made by the compiler that made the interpreter, run by the plan as
those of a CPU are."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import torch

from framejit.backends.fuse.account.compiled_graph import KernelSource
from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.nodes import Kernel, text_of
from framejit.backends.fuse.not_fusable import KernelFailed
from framejit.backends.fuse.targets.target import Described, KernelLaunch, Target
from tests.fuse.c_target.c_source import FUNCTION, CSource, supports

FLAGS = ("-O1", "-std=gnu11", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC", "-w")


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="framejit-c-")


@cache
def shared_object(text: str) -> ctypes.CDLL:
    """The module that the compiler makes of a text, loaded."""
    path = Path(_folder().name) / hashlib.sha256(text.encode()).hexdigest()
    source = path.with_suffix(".c")
    source.write_text(text)
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    done = subprocess.run(
        [*compiler, *FLAGS, "-o", str(path.with_suffix(".so")), str(source), "-lm"], capture_output=True, text=True,
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return ctypes.CDLL(str(path.with_suffix(".so")))


@dataclass(frozen=True)
class CKernel:
    """A kernel as C, of which all is plain data."""

    name: str
    remarks: str
    text: str
    buffers: tuple[str, ...]
    total: int

    @classmethod
    def of(cls, kernel: Kernel) -> CKernel:
        written = CSource(kernel)
        remarks = "".join(f"// {line}\n" for line in text_of([kernel], {}).splitlines())
        return cls(kernel.name, remarks, written.text(), written.buffers, written.total)

    @property
    def address(self) -> int:
        address = ctypes.cast(getattr(shared_object(self.text), FUNCTION), ctypes.c_void_p).value
        assert address is not None
        return address


@dataclass(eq=False)
class CLaunch:
    """How it is called."""

    kernel: CKernel
    origins: tuple[str, ...]
    device: torch.device

    @property
    def buffers(self) -> tuple[str, ...]:
        return self.kernel.buffers

    @property
    def source(self) -> KernelSource:
        return KernelSource(self.kernel.name, CTarget.language, self.kernel.remarks + self.kernel.text, self.origins)

    @property
    def machine_code(self) -> object:
        return shared_object(self.kernel.text)

    @property
    def described(self) -> Described:
        return {field.name: getattr(self.kernel, field.name) for field in fields(self.kernel)}

    def __call__(self, slots: Sequence[int]) -> tuple[Any, ...]:
        return "cpu_kernel", self.kernel.address, tuple(slots), (), self.kernel.total, max(1, self.kernel.total)


class CTarget(Target):
    """A processor that only C is known for."""

    language = "c"
    suffix = "c"
    described = {"name": str, "remarks": str, "text": str, "buffers": tuple, "total": int}
    sums_in_double = True

    @property
    def is_there(self) -> bool:
        return True

    @property
    def identity(self) -> str:
        return f"C on {platform.machine()}"

    def supports(self, operation: str, dtype: torch.dtype, divisor: Expr | None = None) -> bool:
        return supports(operation, dtype, divisor)

    def compile(self, kernels: Sequence[Kernel]) -> list[KernelLaunch]:
        made: list[KernelLaunch] = []
        for kernel in kernels:
            try:
                launch = CLaunch(CKernel.of(kernel), kernel.origins, self.device)
                assert launch.machine_code
            except Exception as e:
                raise KernelFailed(f"{kernel.name} failed with {type(e).__name__}: {e}") from e
            made.append(launch)
        return made

    def load(self, kernels: Sequence[tuple[tuple[str, ...], Described]]) -> list[KernelLaunch]:
        return [CLaunch(CKernel(**described), origins, self.device) for origins, described in kernels]
