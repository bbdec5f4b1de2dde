"""The program's own code in the form in which entries are called: an argument for each slot."""

from __future__ import annotations

from types import CodeType


def flattened(code: CodeType) -> CodeType:
    """A copy of the code that takes one positional argument per slot: the tuple and dict of further arguments, and
    keywords, arrive as they are."""
    n = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return code.replace(co_argcount=n, co_kwonlyargcount=0, co_posonlyargcount=0, co_flags=code.co_flags & ~0x0C)
