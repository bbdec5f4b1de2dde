"""What a capture depends on besides the frame that it is of: one hash over all of it, under which it is kept."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import fields
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import numpy
import torch

from framejit import _native
from framejit.backends.fuse.cache.registered_kernels import registered_kernels
from framejit.config import config
from framejit.kept.description import Describer
from framejit.kept.torch_state import methods_of_tensors
from framejit.version import __version__

if TYPE_CHECKING:
    from framejit.options import Options

_WITHOUT_SAY: Final = frozenset(
    ("disable", "logs", "ring_size", "artifacts", "verify_folder", "cache_dir", "cache_size", "default_backend")
)
"""Settings that change nothing of what is captured, or that `Options` has."""
_PACKAGES: Final = ("framejit", "framejit.guards", "framejit.backends")
PROBE: Final = "a text of which each process has its own hash"


def key_of_frame(fn: FunctionType, flat_args: tuple[Any, ...], options: Options) -> str:
    """The key of captures of a function. A module's are told apart by its class, for all modules are called by the same
    function. Raises NotKept for what can't be described."""
    describe = Describer()
    told = (
        describe(fn), fn.__code__.co_freevars, [describe(type(arg)) for arg in flat_args[:1]],
        [(field.name, getattr(options, field.name)) for field in fields(options) if field.name != "backend"],
        [(field.name, getattr(config, field.name)) for field in fields(config) if field.name not in _WITHOUT_SAY],
        methods_of_tensors(), registered_kernels(),
    )
    return hashlib.sha256(_process() + repr(told).encode()).hexdigest()


@cache
def _process() -> bytes:
    """What stays as it is while the process runs."""
    told = (
        __version__, _sources(), sys.version, sys.flags, sys.platform, torch.__version__, torch.version.git_version,
        torch.version.cuda, numpy.__version__,
    )
    return hashlib.sha256(repr(told).encode()).digest()


def _sources() -> list[tuple[str, int, int]]:
    """framejit's own files, with their sizes and times."""
    found = [_stamp(_native.__file__, "native")]
    for package in _PACKAGES:
        for top in import_module(package).__path__:
            for folder, folders, names in os.walk(top):
                folders[:] = sorted(name for name in folders if name not in ("__pycache__", "native"))
                found += [
                    _stamp(os.path.join(folder, name), os.path.relpath(folder, top))
                    for name in sorted(names)
                    if name.endswith(".py")
                ]
    return found


def _stamp(path: str, where: str) -> tuple[str, int, int]:
    status = os.stat(path)
    return f"{where}/{os.path.basename(path)}", status.st_size, status.st_mtime_ns
