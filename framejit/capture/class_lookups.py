"""What captured code was told by classes, guarded: which attributes they lack, and which are Python's own."""

from __future__ import annotations

from types import FunctionType, GetSetDescriptorType
from typing import TYPE_CHECKING, Any, Final

from framejit import _native as native
from framejit.guards.plain_text import module_of
from framejit.guards.sources import ABSENT, TypeLookupSource, const_source
from framejit.guards.type_flags import HEAP_TYPE, IMMUTABLE
from framejit.values.inspection import BUILTIN_TYPES, is_a, is_of_torch

if TYPE_CHECKING:
    from framejit.values.context import Capture

_COMES_FIRST: Final = ("__set__", "__delete__")
_IN_C: Final = (*BUILTIN_TYPES, GetSetDescriptorType)
_FLAGS: Final = vars(type)["__flags__"].__get__


class ClassLookups:
    """Is told of each lookup in a class while one capture runs.

    Attributes of the program are guarded by whoever uses them. What a class lacks (`__bool__`, a data descriptor before
    the instance's own attribute) decides as much, and so does what it has from a class written in C or in torch
    (`object.__getattribute__`, `Module.__getattr__`): somebody may give it its own. What makes a descriptor one that
    comes before the instance's own attributes decides by being there, whoever wrote it.
    """

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        # the ids of classes, which a metaclass may compare and hash as it likes; guards keep them alive
        self._told: set[tuple[int, str]] = set()

    def told(self, cls: type, name: str, found: Any) -> None:
        if not isinstance(name, str):  # as a `_fields` that the program wrote into may have: no class can have it
            return
        self._capture.assumed.found(cls, name, found)
        place = id(cls), name
        if place in self._told or not (
            found is ABSENT or is_a(found, _IN_C) or _is_function_of_torch(found) or name in _COMES_FIRST
        ):
            return
        flags = _FLAGS(cls)
        if not flags & HEAP_TYPE or flags & IMMUTABLE or module_of(cls).startswith("framejit."):
            return
        self._told.add(place)
        where = const_source(cls)
        if found is ABSENT:
            self._capture.add_guard(where, native.C_LACKS, name)
        else:
            self._capture.add_guard(TypeLookupSource(where, name), native.C_ID, found)


def _is_function_of_torch(found: Any) -> bool:
    return is_a(found, FunctionType) and is_of_torch(found.__module__)
