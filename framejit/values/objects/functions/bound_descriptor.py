"""What methods written in C have in common, bound to a value."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit.guards.sources import static_lookup
from framejit.values.base import Value, deep_realize
from framejit.values.inspection import is_a
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
_WITH_OTHER_LOOKUP = (type, types.ModuleType, super)  # in C, where a call binds the method


class NamedMethod(Value):
    """The method that `owner` has under `name`, to be called; where it leaves captured code, it is read from `owner`
    once more."""

    def __init__(self, owner: Value, name: str) -> None:
        self.owner, self.name = owner, name

    def describe(self) -> str:
        return f"method {self.name!r} of {self.owner.describe()}"

    def children(self) -> Iterator[Value]:
        return iter((self.owner,))

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.owner.call_method(
            frame, self.name, deep_realize(frame, args), dict(zip(kwargs, deep_realize(frame, list(kwargs.values()))))
        )

    def reconstruct(self, cg: Codegen) -> None:
        cg.load(self.owner)
        cg.em.load_attr(self.name)


class BoundDescriptor(NamedMethod):
    """Method `name` of the type of `owner`, which is written in C."""

    loaded_to_call = False
    """Whether it was loaded as the method of a call. CPython then binds nothing: it calls the type's descriptor with
    the object, whose complaints name the class that has the method, where those of a bound method name the class of the
    object."""
    static: Any = None
    """The descriptor itself, where it is known."""

    def python_type(self) -> type:
        static = self.static or static_lookup(self.owner.python_type(), self.name, None)
        if is_a(static, types.WrapperDescriptorType):
            return types.MethodWrapperType
        return types.MethodType if is_a(static, types.FunctionType) else types.BuiltinMethodType

    def called_parts(self) -> tuple[Value, Value] | None:
        """The descriptor and the object that plain Python has on its stack in place of this method, if it has."""
        if not self.loaded_to_call:
            return None
        cls = self.owner.python_type()
        found = static_lookup(cls, self.name, None)
        if not isinstance(found, METHODS) or self.static not in (None, found):
            return None
        if not is_a(static_lookup(cls, "__getattribute__"), types.WrapperDescriptorType):
            return None
        return None if issubclass(cls, _WITH_OTHER_LOOKUP) else (from_python(found), self.owner)
