"""Constants as plain data and back: what marshal writes, with lists in the place of what it has no form for.

Numbers, text, booleans and None are themselves; anything else is a list that begins with its kind.
"""

from __future__ import annotations

from typing import Any, Final

import numpy
import torch

from framejit.kept.not_kept import DoesNotFit, NotKept

_SELF: Final = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis))
_SEQUENCES: Final[dict[str, Any]] = {"tuple": tuple, "list": list, "Size": torch.Size}
_KIND: Final[dict[Any, str]] = {kind: name for name, kind in _SEQUENCES.items()}
_NAMED: Final = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}
_BY_NAME: Final = {name: kind for kind, name in _NAMED.items()}


def written(value: Any) -> Any:
    """A constant as plain data. Raises NotKept."""
    kind = type(value)
    if kind in _SELF:
        return value
    if kind in _KIND:
        return [_KIND[kind], *map(written, value)]
    if value is NotImplemented:
        return ["NotImplemented"]
    if kind in _NAMED:
        return [_NAMED[kind], str(value).removeprefix("torch.")]
    if kind is torch.device:
        return ["device", str(value)]
    if isinstance(value, numpy.dtype) and value.isbuiltin == 1 and not value.metadata:
        return ["dtype of numpy", value.str]
    if kind in (slice, range):
        return [kind.__name__, written(value.start), written(value.stop), written(value.step)]
    if kind is frozenset and all(type(item) in _SELF for item in value):
        return ["frozenset", *sorted(value, key=lambda item: (type(item).__name__, repr(item)))]
    raise NotKept(f"a constant of type {kind.__qualname__}")


def read(data: Any) -> Any:
    """The constant that `written` wrote. Raises DoesNotFit for data that is none."""
    if type(data) is not list:
        if type(data) in _SELF:
            return data
        raise DoesNotFit(f"a constant of type {type(data).__name__}")
    kind, *rest = data
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](map(read, rest))
    if kind in _BY_NAME:
        found = getattr(torch, rest[0], None)
        if type(found) is _BY_NAME[kind]:
            return found
    elif kind == "NotImplemented":
        return NotImplemented
    elif kind == "device":
        return torch.device(rest[0])
    elif kind == "dtype of numpy":
        return numpy.dtype(rest[0])
    elif kind in ("slice", "range"):
        return (slice if kind == "slice" else range)(*map(read, rest))
    elif kind == "frozenset":
        return frozenset(rest)
    raise DoesNotFit(f"there are no constants of the kind {kind!r}")


def may_be_made_anew(value: Any) -> bool:
    """Whether a constant is one that nothing changes, so that another of the same content does for it."""
    if type(value) in (tuple, torch.Size):
        return all(map(may_be_made_anew, value))
    if isinstance(value, numpy.dtype):
        return value.isbuiltin == 1
    return type(value) in (*_SELF, *_NAMED, torch.device, slice, range, frozenset)


def is_same(one: Any, other: Any) -> bool:
    """Whether two constants are the same, numbers of other types and zeros of other signs told apart."""
    if type(one) is not type(other):
        return False
    if type(one) in _KIND:
        return len(one) == len(other) and all(map(is_same, one, other))
    return repr(one) == repr(other) if type(one) in (float, complex) else one is other or bool(one == other)
