"""Descriptors written in C, which lead to a part of an instance, where the program calls their methods itself:
`Class.slot.__get__(instance)`, `type.__dict__["__dict__"].__get__(cls)`."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from framejit.guards.sources import static_lookup
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, is_none
from framejit.values.inspection import is_a
from framejit.values.objects.inherited_methods import KNOWN_METHODS, written_in_c
from framejit.values.objects.user_object import ObjectValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_GIVEN = {"__get__": (1, 2), "__set__": (2, 2), "__delete__": (1, 1)}
"""How many arguments each method takes, at least and at most."""


def _call_on_descriptor(
    frame: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """What an access to the attribute does, where that comes to this very descriptor."""
    least, most = _GIVEN.get(name, (1, 0))
    if kwargs or not least <= len(args) <= most:
        raise written_in_c(owner, name)
    instance, field = realize(frame, args[0]), owner.obj.__name__
    if name == "__get__" and is_none(instance) and len(args) == 2 and not is_none(realize(frame, args[1])):
        return owner
    cls = instance.python_type()
    if static_lookup(cls, field, None) is not owner.obj or any(
        is_a(static_lookup(cls, special), types.FunctionType)
        for special in ("__getattribute__", "__setattr__", "__delattr__")
    ):
        raise written_in_c(owner, name)
    if name == "__get__":
        if isinstance(instance, ObjectValue):
            return instance.generic_getattr(frame, field)
        return instance.getattr(frame, field)
    value = args[1] if name == "__set__" else None
    if isinstance(instance, ObjectValue):
        instance.generic_setattr(frame, field, value)
    else:
        instance.setattr(frame, field, value)
    return NONE


KNOWN_METHODS.update({types.GetSetDescriptorType: _call_on_descriptor, types.MemberDescriptorType: _call_on_descriptor})
