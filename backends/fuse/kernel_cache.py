"""Machine code by way of the disk cache: made once on each machine."""
from __future__ import annotations

from framejit.backends.fuse import disk_cache
from framejit.backends.fuse.cache_key import key_of


def cpu_object(text: str) -> bytes:
    """The object code of a module in LLVM's text, for this machine."""
    from framejit.backends.fuse.llvm.jit import compile_text
    from framejit.backends.fuse.llvm.machine import machine

    key = key_of(machine().key, text)
    code = disk_cache.get("llvm", key)
    if code is None:
        code = compile_text(text)
        disk_cache.put("llvm", key, code)
    return code
