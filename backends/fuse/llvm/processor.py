"""Which machine code is good here: what tells processors apart, and where functions are that kernels call. LLVM is not
asked: a process that finds all its kernels on the disk does without it."""
from __future__ import annotations

import ctypes
import os
from functools import cache

import torch

from framejit._native import processor_features


@cache
def processor_key() -> str:
    """Tells apart machines whose code is not interchangeable. The compiler's own version is no part of it."""
    features = processor_features()
    if features is None:
        from framejit.backends.fuse.llvm.machine import machine

        told = f"{machine().name} {machine().features}"
    else:
        told = features.hex()
    # which vectors torch uses, and with them kernels, is an environment variable's (ATEN_CPU_CAPABILITY) as well
    return f"{told} {torch.backends.cpu.get_cpu_capability()}"


@cache
def address_of(name: str) -> int | None:
    """Where the function of that name is in this process: one of torch's, which brings vector maths along, of the C
    library's or of the compiler's run-time library. None if there is none."""
    for library in _libraries():
        try:
            function = library[name]
        except AttributeError:
            continue
        return ctypes.cast(function, ctypes.c_void_p).value
    return None


@cache
def torch_library() -> str | None:
    """The path of the library that holds torch's kernels for CPUs, if it is where it usually is."""
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
    return path if os.path.exists(path) else None


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    path = torch_library()
    # a library's symbols are looked up in those it needs as well
    return (*([ctypes.CDLL(path)] if path else []), ctypes.CDLL(None))
