"""The compilation of one frame: the function and arguments of one call, the entry cache it is for, and how events name
it."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from time import perf_counter
from types import FunctionType
from typing import Any

import torch

from framejit.bytecode.resume_code import ResumeCode
from framejit.capture.breaks.resume_points import ResumePoints
from framejit.capture.frame_ids import new_frame_id
from framejit.interpreter.provenance import Origins, of_guard


class FrameCompilation:
    """The part of compiling the call `fn(*flat_args)` that is the same in all attempts at it.

    `owner` is the dispatcher or entry cache that the entry is made for; `on_miss` is what the dispatchers of resume
    functions call in their turn; `key` is what other processes find the frame's captures by, empty if it is not known.
    """

    def __init__(
        self, owner: Any, fn: FunctionType, flat_args: tuple[Any, ...], on_miss: Callable[..., Any], key: str
    ) -> None:
        self.owner, self.fn, self.flat_args, self.options, self.key = owner, fn, flat_args, owner.options, key
        self.resume: ResumeCode | None = getattr(fn, "_framejit_resume", None)
        known = owner.resume_points or next((e.tag.resume_points for e in owner.entries), None)
        # all entries of a function share its resume functions
        self.points: ResumePoints = known or ResumePoints(on_miss, owner.options)
        if self.resume is None:
            self.points.owner = weakref.ref(owner)
        self.points.raising.update(owner.raising or {})
        self.origins = self.points.origins = self.points.origins or Origins()
        self.weight_changes = 0  # how often entries of the function were outdated by new weights
        self.frame_id = new_frame_id()
        self.started = perf_counter()

    @property
    def place(self) -> dict[str, Any]:
        """The frame as events name it; the call of a module by its class, not by nn.Module's own wrapper."""
        code, options = self.fn.__code__ if self.resume is None else self.resume.original, self.options
        if options.file is not None and code is torch.nn.Module._wrapped_call_impl.__code__:
            return {"frame_id": self.frame_id, "function": options.name, "file": options.file, "line": options.line}
        return {
            "frame_id": self.frame_id, "function": code.co_qualname, "file": code.co_filename,
            "line": code.co_firstlineno,
        }

    @property
    def function_place(self) -> tuple[str, str, int]:
        """Name, file and line of `place`."""
        place = self.place
        return place["function"], place["file"], place["line"]

    def origin(self, source_name: str) -> tuple[str, str]:
        """The program's name for the value that a guard reads, and where the value came from."""
        return of_guard(self.fn.__code__, self.resume, source_name, self.origins)

    def in_program_terms(self, text: str) -> str:
        """A text about guards with the program's names for the arguments of resume functions."""
        return re.sub(r"\b__(?:stack|inner)\d+\b", lambda match: self.origin(match.group())[0], text)
