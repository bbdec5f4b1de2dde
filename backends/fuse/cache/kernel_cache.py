"""Machine code by way of the disk cache: made once on each machine, and found by the processes after that.

The compilers are imported inside of functions: a process that finds all its kernels needs none of them.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from framejit.backends.fuse.cache import cache_folder, disk_cache
from framejit.backends.fuse.cache.cache_key import key_of
from framejit.backends.fuse.cache.kernel_record import BadRecord, pack, unpack

if TYPE_CHECKING:
    from framejit.backends.fuse.triton.compile import GpuBinary
    from framejit.backends.fuse.triton.kernel_source import TritonSource

_NUMBERS: Final = ("shared_bytes", "threads", "pointers", "scratch")
"""What a record of a GPU's machine code says of it besides the name of the kernel; see `GpuBinary`."""


def cpu_object(text: str) -> bytes:
    """The object code of a module in LLVM's text, for this machine."""
    from framejit.backends.fuse.llvm.processor import processor_key

    key = key_of(processor_key(), text)
    code = disk_cache.get("llvm", key)
    if code is None:
        from framejit.backends.fuse.llvm.object_code import compile_text

        code = compile_text(text)
        disk_cache.put("llvm", key, code)
    return code


def begun_gpu_binaries(
    sources: Sequence[TritonSource], capability: int
) -> Callable[[], list[GpuBinary | Exception]]:
    """What gives for each of the sources machine code, or what the compiler raises. Those not found are being compiled
    meanwhile (`begun_gpu_kernels`). Triton isn't imported if all are found."""
    from framejit.backends.fuse.triton.compile import begun_gpu_kernels

    keys = [key_of(f"cuda {capability}", source.code, source.signature, source.warps) for source in sources]
    known: dict[str, GpuBinary | Exception] = {}
    for key in dict.fromkeys(keys):
        found = _cached_binary(key)
        if found is not None:
            known[key] = found
    missing = {key: source for key, source in zip(keys, sources) if key not in known}
    begun = begun_gpu_kernels([*missing.values()], capability) if missing else list

    def done() -> list[GpuBinary | Exception]:
        for key, made in zip(missing, begun()):
            known[key] = made
            if isinstance(made, Exception):
                continue
            fields = {"name": made.name, **{name: getattr(made, name) for name in _NUMBERS}}
            disk_cache.put("triton", key, pack(fields, {"cubin": made.cubin}))
        return [known[key] for key in keys]

    return done


def expect_gpu_kernels() -> None:
    """Say, as early as that is known, that there will be kernels for a GPU. If none have been compiled on this machine,
    the compiler is got ready meanwhile."""
    if not _has_gpu_kernels():
        from framejit.backends.fuse.triton.preload import preload

        preload()


@cache
def _has_gpu_kernels() -> bool:
    try:
        with cache_folder.opened(disk_cache.current().folder) as folder, os.scandir(folder) as files:
            return any(file.name.startswith("triton-") for file in files)
    except (OSError, cache_folder.Refused):
        return False


def _cached_binary(key: str) -> GpuBinary | None:
    from framejit.backends.fuse.triton.compile import GpuBinary

    record = disk_cache.get("triton", key)
    if record is None:
        return None
    try:
        fields, blobs = unpack(record)
        return GpuBinary(
            cubin=blobs["cubin"], name=str(fields["name"]), **{name: int(fields[name]) for name in _NUMBERS}
        )
    except (BadRecord, KeyError, TypeError, ValueError):
        return None
