"""What methods written in C have in common, bound to a value."""

from __future__ import annotations

import types

from framejit.guards.sources import static_lookup
from framejit.values.base import Value
from framejit.values.inspection import is_a
from framejit.values.wrap import from_python

_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
_WITH_OTHER_LOOKUP = (type, types.ModuleType, super)  # in C, where a call binds the method


class BoundDescriptor(Value):
    """Method `name` of the type of `owner`, which is written in C."""

    owner: Value
    name: str
    loaded_to_call = False
    """Whether it was loaded as the method of a call. CPython then binds nothing: it calls the type's descriptor with
    the object, whose complaints name the class that has the method, where those of a bound method name the class of the
    object."""

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def called_parts(self) -> tuple[Value, Value] | None:
        """The descriptor and the object that plain Python has on its stack in place of this method, if it has."""
        if not self.loaded_to_call:
            return None
        cls = self.owner.python_type()
        found = static_lookup(cls, self.name, None)
        if not isinstance(found, _METHODS) or not is_a(
            static_lookup(cls, "__getattribute__"), types.WrapperDescriptorType
        ):
            return None
        return None if issubclass(cls, _WITH_OTHER_LOOKUP) else (from_python(found), self.owner)
