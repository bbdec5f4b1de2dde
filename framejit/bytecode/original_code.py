"""The program's own code behind a function of its, or behind one that framejit made of it."""

from __future__ import annotations

from types import CodeType, FunctionType


def original_code(function: FunctionType) -> CodeType:
    """The program's own code that a function runs; of a resume function what it was made from."""
    resume = getattr(function, "_framejit_resume", None)
    return function.__code__ if resume is None else resume.original
