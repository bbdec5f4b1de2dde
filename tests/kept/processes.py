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
from framejit.kept.surroundings import process_hash

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

    close = {"atol": 1e-5, "rtol": 1e-4}
    """How close the results of kernels have to be to eager's."""

    def __init__(self, program: str, library: str = "", backend: str = "eager", **options: Any) -> None:
        process_hash.cache_clear()
        torch.manual_seed(0)
        if library:
            loaded(LIBRARY, library, os.path.join(sysconfig.get_paths()["purelib"], f"{LIBRARY}.py"))
        self.module = loaded(PROGRAM, program, "/nowhere/kept_program.py")
        target = self.module.target
        expected = self.seeded(target)
        self.events: list[events.Event] = []
        unsubscribe = events.subscribe(self.events.append)
        try:
            self.optimized = framejit.optimize(target, backend=backend, **options)
            self.result = self.seeded(self.optimized)
            again = self.seeded(self.optimized)
        finally:
            unsubscribe()
        close = self.close if backend == "fuse" else {}
        assert_same(self.result, expected, **close)
        assert_same(again, expected, **close)
        self.captured = any(event.kind == "capture_started" for event in self.events)
        self.said = [event.reason for event in self.events if event.kind == "cache" and event.what == "capture"]

    def seeded(self, fn: Any) -> Any:
        """The results of a call, with the random numbers that each call has, and the buffers as they were at first."""
        torch.manual_seed(7)
        for buffer, before in zip(getattr(self.module, "buffers", ()), getattr(self.module, "before", ())):
            buffer.copy_(before)
        return fn(*self.module.args)


@contextlib.contextmanager
def one_folder(folder: Any) -> Iterator[None]:
    """Captures are kept in a folder of their own."""
    with framejit.config.patch(keep_captures=True, cache_dir=str(folder)):
        yield
    for name in (PROGRAM, LIBRARY):
        sys.modules.pop(name, None)
