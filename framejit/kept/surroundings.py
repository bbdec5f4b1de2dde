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
from framejit.backends.fuse.cache.file_content import content_of, python_files
from framejit.backends.fuse.cache.registered_kernels import foreign_kernels, registered_kernels
from framejit.config import config
from framejit.kept.description import Describer
from framejit.kept.not_kept import NotKept
from framejit.kept.torch_functions import torch_functions
from framejit.version import __version__

if TYPE_CHECKING:
    from framejit.options import Options

_WITHOUT_SAY: Final = frozenset(
    (
        "disable", "logs", "ring_size", "artifacts", "verify_folder", "cache_dir", "cache_size", "default_backend",
        "background", "background_seconds",
    )
)
"""Settings that change nothing of what is captured, or that `Options` has."""
_OPTIONS_WITHOUT_SAY: Final = frozenset(("backend", "background"))
"""Options that change nothing of what is captured; a backend goes by its name."""
_FLAGS_WITHOUT_SAY: Final = frozenset(
    ("dont_write_bytecode", "hash_randomization", "inspect", "interactive", "quiet", "verbose")
)
"""Options of Python's command line that change nothing of what a program does; orders that hashes decide are looked at
by what captures them."""
_PACKAGES: Final = ("framejit", "framejit.guards", "framejit.backends")
_OF_TORCH: Final = (
    "_decomp", "_refs", "_prims", "_prims_common", "functional.py", "nn/functional.py", "_tensor.py", "_VF.py",
    "_jit_internal.py", "overrides.py", "random.py", "_compile.py",
)
PROBE: Final = "a text of which each process has its own hash"


def key_of_frame(fn: FunctionType, flat_args: tuple[Any, ...], options: Options) -> str:
    """The key of captures of a function. A module's are told apart by its class, for all modules are called by the same
    function. Raises NotKept for what can't be described, and where the program has put code of its own in the place of
    torch's."""
    foreign = foreign_kernels()
    if foreign:
        raise NotKept(f"the program has registered a kernel for {foreign[0]}")
    describe = Describer()
    told = (
        describe(fn), fn.__code__.co_freevars, [describe(type(arg)) for arg in flat_args[:1]],
        [(f.name, getattr(options, f.name)) for f in fields(options) if f.name not in _OPTIONS_WITHOUT_SAY],
        [(field.name, getattr(config, field.name)) for field in fields(config) if field.name not in _WITHOUT_SAY],
        torch_functions(), registered_kernels(),
    )
    return hashlib.sha256(process_hash() + repr(told).encode()).hexdigest()


@cache
def process_hash() -> bytes:
    """A hash over what stays as it is while the process runs."""
    flags = [(name, getattr(sys.flags, name)) for name in sys.flags.__match_args__ if name not in _FLAGS_WITHOUT_SAY]
    told = (
        __version__, content_of((*_sources(), *_of_torch())), sys.version, flags, sys.platform, torch.__version__,
        torch.version.git_version, torch.version.cuda, numpy.__version__,
    )
    return hashlib.sha256(repr(told).encode()).digest()


def _sources() -> list[str]:
    """framejit's own files."""
    found = [str(_native.__file__)]
    for package in _PACKAGES:
        for top in import_module(package).__path__:
            found += python_files(top)
    return found


def _of_torch() -> list[str]:
    """The Python of torch that says what operations consist of, and that of functions that graphs call as they are.
    What is inlined of the rest is described."""
    home = os.path.dirname(torch.__file__)
    return [
        file
        for path in (os.path.join(home, name) for name in _OF_TORCH)
        for file in (python_files(path) if os.path.isdir(path) else [path])
    ]
