"""Keys of the disk cache: a hash over the content an entry is made from, and over whatever makes it."""
from __future__ import annotations

import hashlib
import sys
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Final

import torch

from framejit.backends.fuse.cache.file_content import content_below
from framejit.version import __version__

_MAKERS: Final = ("triton", "llvmlite")


def key_of(target: str, *parts: object) -> str:
    """A key for what is compiled from `parts` for a machine.

    `target` names all of the machine that code depends on: the processor with its features
    (`llvm.processor.processor_key()`), or a GPU's capability. Parts are strings, bytes, numbers, booleans, None, and
    tuples of these. Versions of framejit, torch, Triton, llvmlite and Python and framejit's own code generators count
    too, so that no code outlives the compiler that made it.
    """
    digest = hashlib.sha256(_toolchain())
    for part in (target, *parts):
        data = part if isinstance(part, bytes) else repr(part).encode()
        # the length keeps ("ab", "c") apart from ("a", "bc")
        digest.update(f"{type(part).__name__} {len(data)} ".encode())
        digest.update(data)
    return digest.hexdigest()


@cache
def _toolchain() -> bytes:
    versions = (__version__, torch.__version__, *map(_version, _MAKERS), sys.version)
    return hashlib.sha256(repr((versions, content_below(str(Path(__file__).parents[1])))).encode()).digest()


def _version(package: str) -> str:
    """The version of a package, preferably without importing it: a process that finds all its kernels here needs no
    Triton."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        pass
    try:
        return str(getattr(import_module(package), "__version__", "unknown"))
    except ImportError:
        return "none"
