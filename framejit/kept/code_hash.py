"""A hash over a code object: the same in each process that has compiled the same source."""

from __future__ import annotations

import hashlib
import marshal
from types import BuiltinFunctionType, CodeType
from typing import Any

from framejit import _native as native

_FIELDS = (
    "co_name", "co_qualname", "co_filename", "co_firstlineno", "co_flags", "co_argcount", "co_posonlyargcount",
    "co_kwonlyargcount", "co_nlocals", "co_stacksize", "co_names", "co_varnames", "co_freevars", "co_cellvars",
    "co_code", "co_linetable", "co_exceptiontable",
)
_WITHOUT_REFERENCES = 2
"""The version of marshal's format in which what is written does not depend on what else refers to a constant."""


def code_hash(code: CodeType) -> bytes:
    """SHA-256 over all that a code object consists of, nested ones with it, its file and lines too.

    Raises ValueError for constants that no compiler puts there.
    """
    return hashlib.sha256(marshal.dumps(_plain(code), _WITHOUT_REFERENCES)).digest()


def _plain(code: CodeType) -> tuple[Any, ...]:
    return (*(getattr(code, name) for name in _FIELDS), *map(_constant, code.co_consts))


def _constant(constant: Any) -> Any:
    if type(constant) is CodeType:
        return "code", _plain(constant)
    if type(constant) is slice:
        return "slice", constant.start, constant.stop, constant.step
    if type(constant) is tuple:
        return "tuple", *map(_constant, constant)
    if type(constant) is frozenset:  # in an order that hashes don't decide
        return "frozenset", *sorted(marshal.dumps(_constant(item), _WITHOUT_REFERENCES) for item in constant)
    name = constant.__name__ if isinstance(constant, BuiltinFunctionType) else ""
    if name and getattr(native, name, None) is constant:
        return "native", name  # which resume functions call
    return type(constant).__name__, constant
