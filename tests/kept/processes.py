"""Two processes in one: a program is run as a module of its own, and again, with new objects of the same names, as a
second process would have it. All that the first left is what it kept on the disk."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any

import torch

import framejit
from framejit import events
from framejit.kept.surroundings import _process

from comparison import assert_same

PROGRAM, LIBRARY = "kept_program", "kept_library"


def loaded(name: str, source: str, file: str) -> types.ModuleType:
    """A module that is made of a source, in the place of one of that name."""
    module = types.ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    exec(compile(source, file, "exec"), vars(module))
    return module


class Run:
    """What one run of a program came to."""

    def __init__(self, program: str, library: str = "", backend: str = "eager", **options: Any) -> None:
        _process.cache_clear()
        torch.manual_seed(0)
        if library:
            loaded(LIBRARY, library, os.path.join(sysconfig.get_paths()["purelib"], f"{LIBRARY}.py"))
        self.module = loaded(PROGRAM, program, "/nowhere/kept_program.py")
        target, args = self.module.target, self.module.args
        expected = target(*args)
        self.events: list[events.Event] = []
        unsubscribe = events.subscribe(self.events.append)
        try:
            self.optimized = framejit.optimize(target, backend=backend, **options)
            self.result = self.optimized(*args)
            again = self.optimized(*args)
        finally:
            unsubscribe()
        close = {"atol": 1e-5, "rtol": 1e-4} if backend == "fuse" else {}
        assert_same(self.result, expected, **close)
        assert_same(again, expected, **close)
        self.captured = any(event.kind == "capture_started" for event in self.events)
        self.said = [event.reason for event in self.events if event.kind == "cache" and event.what == "capture"]


@contextlib.contextmanager
def one_folder(folder: Any) -> Iterator[None]:
    """Captures are kept in a folder of their own."""
    with framejit.config.patch(keep_captures=True, cache_dir=str(folder)):
        yield
    for name in (PROGRAM, LIBRARY):
        sys.modules.pop(name, None)
