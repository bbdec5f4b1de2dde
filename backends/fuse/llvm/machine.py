"""What the processor can do, as LLVM sees it, and how wide its vectors are."""
from __future__ import annotations

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


@cache
def machine() -> Machine:
    """This processor's name, features and width of vectors. The width is the one torch's own kernels use (it heeds
    ATEN_CPU_CAPABILITY), so that their accuracy is comparable."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    capability = torch.backends.cpu.get_cpu_capability()
    is_avx512 = capability == "AVX512" and all(
        features.get(name) for name in ("avx512f", "avx512bw", "avx512vl", "avx512dq")
    )
    is_avx2 = capability in ("AVX2", "AVX512") and bool(features.get("avx2"))
    is_arm = bool(features.get("neon"))
    return Machine(llvm.get_host_cpu_name(), features.flatten(), 64 if is_avx512 else 32 if is_avx2 else 16,
                   bool(features.get("f16c")) or is_arm, bool(features.get("fma")) or is_arm, is_avx512)
