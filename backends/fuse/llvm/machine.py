"""What the processor can do: width of its vectors, and the vector maths that torch brings along."""
from __future__ import annotations

import os
from functools import cache

import llvmlite.binding as llvm
import torch

from framejit.late_dataclass import dataclass


@dataclass(frozen=True)
class Machine:
    """The processor that code is made for."""

    name: str
    features: str
    vector_bytes: int
    has_half: bool
    """Whether it converts between float16 and float32 itself; a call of the compiler's run-time library might not be
    found."""
    has_fma: bool
    is_avx512: bool

    @property
    def key(self) -> str:
        """Tells apart machines whose code is not interchangeable."""
        return f"{self.name} {self.features} {self.vector_bytes} llvm {'.'.join(map(str, llvm.llvm_version_info))}"


@cache
def machine() -> Machine:
    """This processor's name, features and width of vectors. The width is the one torch's own kernels use (it heeds
    ATEN_CPU_CAPABILITY), so that their accuracy is comparable."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    library = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
    if os.path.exists(library):
        llvm.load_library_permanently(library)
    features = llvm.get_host_cpu_features()
    capability = torch.backends.cpu.get_cpu_capability()
    is_avx512 = capability == "AVX512" and all(
        features.get(name) for name in ("avx512f", "avx512bw", "avx512vl", "avx512dq")
    )
    is_avx2 = capability in ("AVX2", "AVX512") and bool(features.get("avx2"))
    is_arm = bool(features.get("neon"))
    return Machine(llvm.get_host_cpu_name(), features.flatten(), 64 if is_avx512 else 32 if is_avx2 else 16,
                   bool(features.get("f16c")) or is_arm, bool(features.get("fma")) or is_arm, is_avx512)


@cache
def has_symbol(name: str) -> bool:
    """Whether a function of that name is in the process."""
    machine()
    return bool(llvm.address_of_symbol(name))
