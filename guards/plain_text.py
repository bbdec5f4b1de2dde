"""Short text of a value, for messages: its repr where that runs none of the user's code."""

from __future__ import annotations

import enum
import types
from typing import Any

from framejit.guards.type_flags import HEAP_TYPE

_TYPE = vars(type)
LONGEST = 2000
"""Bits of the largest int that is shown: of more than 640 digits Python may refuse to make text."""


def short(value: Any, limit: int = 80) -> str:
    """An object in at most `limit` characters, without running code of the program."""
    if type(value) in (types.FunctionType, types.BuiltinFunctionType):
        text = f"<{value.__module__}.{value.__qualname__}>"
    elif issubclass(type(value), type):  # as `type` says it: a metaclass may have its own ideas
        text = f"<{class_name(value)}>"
    elif type(value) is types.ModuleType:  # its repr asks it for attributes, which its `__getattr__` may make
        text = f"<module {short(object.__getattribute__(value, '__dict__').get('__name__'))}>"
    else:
        text = repr(value) if _has_plain_repr(value) else f"<{type(value).__qualname__} object>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def module_of(cls: type) -> str:
    """The module that a class says it is of, whatever its metaclass says."""
    try:
        found = _TYPE["__module__"].__get__(cls)
    except AttributeError:  # made by a call of `type` where globals have no `__name__`
        return ""
    return found if isinstance(found, str) else ""


def class_name(cls: type) -> str:
    """A class by module, if it is of one, and qualified name, whatever its metaclass says."""
    module, name = module_of(cls), _TYPE["__qualname__"].__get__(cls)
    return f"{module}.{name}" if module else name


def _has_plain_repr(value: Any, depth: int = 4) -> bool:
    """Whether `repr` runs none of the user's code, which would see that."""
    cls = type(value)
    if cls is int:
        return bool(value.bit_length() <= LONGEST)
    if cls in (list, tuple, set, frozenset):
        return depth > 0 and all(_has_plain_repr(v, depth - 1) for v in value)
    if cls is dict:
        return depth > 0 and all(_has_plain_repr(v, depth - 1) for pair in value.items() for v in pair)
    if issubclass(cls, enum.Enum):  # one that is being made has no name, and its value may be any object
        own = object.__getattribute__(value, "__dict__")
        if depth <= 0 or "_name_" not in own or not _has_plain_repr(own.get("_value_"), depth - 1):
            return False
    how = next(vars(k)["__repr__"] for k in cls.__mro__ if "__repr__" in vars(k))
    if how is object.__repr__ or type(how) is types.FunctionType:
        return how is object.__repr__ or str(how.__module__).partition(".")[0] in ("enum", "torch")
    return not cls.__flags__ & HEAP_TYPE and (cls in _PLAIN or cls.__module__.partition(".")[0] == "torch")


_PLAIN = (
    int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented), range, slice,
    types.CodeType,
)
