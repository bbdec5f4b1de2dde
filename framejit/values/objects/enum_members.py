"""Members of enums that have code of the program's own: known objects whose methods, operators and properties are
inlined, as what they read may change between calls."""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import Source, const_source, static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.inspection import instance_dict, is_a, member_has_code, member_has_operators
from framejit.values.objects.builtin_attributes import attribute_of_member
from framejit.values.objects.inherited_methods import unequal_as_not_equal
from framejit.values.objects.user_object import class_attribute, truth_by_methods
from framejit.values.wrap import makes, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame

_CODE = (types.FunctionType, property, classmethod, staticmethod)


class EnumMemberValue(Value):
    """A member of an enum. Operations on it are folded unless code of the program says what they do."""

    def __init__(self, member: enum.Enum, source: Source | None = None) -> None:
        self.member, self.source = member, source
        self.known = ConstantValue(member)
        """The member without the program's code."""

    def python_type(self) -> type:
        return type(self.member)

    def describe(self) -> str:
        return self.known.describe()

    def constant(self) -> Any:
        return self.member

    def is_constant(self) -> bool:
        return not member_has_operators(self.member)

    def plain_copy(self, frame: Frame) -> Any:
        if not self.is_constant():
            raise Unsupported(f"text of {self.describe()}, an enum with operators of its own")
        return self.member

    def table_key(self, capture: Capture) -> Any:
        """None where the program says what it is equal to."""
        cls = type(self.member)
        methods = (static_lookup(cls, "__hash__"), static_lookup(cls, "__eq__"))
        own = any(is_a(m, types.FunctionType) and m.__module__ != "enum" for m in methods)
        return None if own else self.member

    def proxy(self) -> Any:
        if not self.is_constant():
            raise Unsupported(f"{self.describe()} as an argument of a tensor operation", "FJ120")
        return self.member

    def truth(self, frame: Frame) -> bool:
        if any(is_a(static_lookup(type(self.member), n, None), types.FunctionType) for n in ("__bool__", "__len__")):
            return truth_by_methods(frame, self)
        return bool(self.member)

    def getattr(self, frame: Frame, name: str) -> Value:
        cls, member = type(self.member), self.member
        if is_a(static_lookup(cls, "__getattribute__"), types.FunctionType):
            raise Unsupported(f"attribute {name!r} of {self.describe()}, whose class has its own __getattribute__")
        static = static_lookup(cls, name, None)
        if is_a(static, _CODE):
            return class_attribute(frame, self, cls, name)
        if static is None and name not in (instance_dict(member) or {}) and name not in ("name", "value"):
            if static_lookup(cls, "__getattr__", None) is not None:
                frame.capture.guard_no_attribute(const_source(member), name)
                return class_attribute(frame, self, cls, "__getattr__").call(frame, [ConstantValue(name)], {})
        if static is None:
            return attribute_of_member(frame, member, name)
        if is_a(static_lookup(type(static), "__get__", None), types.FunctionType) and not isinstance(
            static, types.DynamicClassAttribute
        ):
            raise Unsupported(f"attribute {name!r} of {self.describe()}, which is a {type(static).__name__}")
        return self.known.getattr(frame, name)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.call_method(frame, "__call__", args, kwargs)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        cls = type(self.member)
        if is_a(static_lookup(cls, name, None), _CODE):
            return class_attribute(frame, self, cls, name).call(frame, args, kwargs)
        if name == "__ne__" and static_lookup(cls, name) is object.__ne__:
            return unequal_as_not_equal(frame, self, args)
        return self.known.call_method(frame, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.load_object(self.member)


@wraps(enum.Enum, subclasses=True, first=True)
def _existing_member(capture: Capture, obj: enum.Enum, source: Source) -> Value | None:
    if not member_has_code(obj):
        return None
    capture.add_guard(source, native.C_ID, obj)
    return EnumMemberValue(obj, source)


@makes(enum.Enum, subclasses=True, first=True)
def _made_member(obj: enum.Enum) -> Value | None:
    return EnumMemberValue(obj) if member_has_code(obj) else None
