"""Attributes of values of built-in types: their methods, and what is constant."""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import AttrSource, const_source, static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue, is_constant_object
from framejit.values.inspection import instance_dict, is_a
from framejit.values.objects.functions.bound_descriptor import METHODS
from framejit.values.objects.functions.c_methods import BuiltinMethodValue
from framejit.values.objects.user_object import bind_attribute, class_attribute
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Frame

_ABSENT = object()
_VALUES_OF_MEMBERS = (enum.Enum.__dict__["value"], enum.Enum.__dict__["name"])


def super_builtin_method(frame: Frame, owner: Value, name: str, static: Any, klass: type) -> Value:
    """The value of `super().name` when the class after the caller's is written in C."""
    if is_a(static, METHODS):
        return BuiltinMethodValue(owner, name, static)
    return bind_attribute(frame, static, owner, owner.python_type(), name, klass)


def attribute_of_member(frame: Frame, member: enum.Enum, name: str) -> Value:
    """An attribute that a member of an enum has, or may come to have, besides those of its class."""
    source = const_source(member)
    held = instance_dict(member) or {}
    if name in held:
        return frame.wrap(held[name], AttrSource(source, name))
    frame.capture.guard_no_attribute(source, name)
    raise frame.raised(AttributeError, f"{native.type_name(type(member))!r} object has no attribute {name!r}")


def _part(frame: Frame, value: Value, name: str) -> Value:
    """An attribute of an object that never changes. What it leads to may: the value of a member of an enum, a type
    variable, or a class attribute found through an alias of the class."""
    whole = value.constant()
    found = getattr(whole, name)
    if is_constant_object(found) or is_a(found, type):
        return from_python(found)
    return frame.wrap(found, AttrSource(const_source(whole), name))


def builtin_attribute(frame: Frame, value: Value, name: str) -> Value:
    """Attribute `name` of a value of a built-in type: a method, or a constant attribute."""
    cls = value.python_type()
    if name == "__class__":
        return from_python(cls)
    static = static_lookup(cls, name, _ABSENT)
    if static is None:  # as `__hash__` where there is none
        return NONE
    if static is _ABSENT and is_a(value, ConstantValue) and is_a(value.constant(), enum.Enum):
        return attribute_of_member(frame, value.constant(), name)
    if static is _ABSENT:
        if is_a(value, ConstantValue) and is_a(value.constant(), types.GenericAlias):
            return value.getattr(frame, "__origin__").getattr(frame, name)
        if value.is_constant() and hasattr(value.constant(), name):
            return from_python(getattr(value.constant(), name))
        raise frame.raised(AttributeError, f"{native.type_name(cls)!r} object has no attribute {name!r}")
    if is_a(static, (types.FunctionType, property, classmethod)):
        if is_a(static, property) and value.is_constant():
            return _part(frame, value, name)
        return class_attribute(frame, value, cls, name)
    if is_a(static, METHODS):
        return BuiltinMethodValue(value, name, static)
    if is_a(static, types.ClassMethodDescriptorType):  # of a class written in C, which nobody changes
        return from_python(getattr(cls, name))
    if value.is_constant():
        if static in _VALUES_OF_MEMBERS:
            return attribute_of_member(frame, value.constant(), f"_{name}_")
        found = getattr(value.constant(), name)
        if callable(found) and not is_a(found, type):
            return BuiltinMethodValue(value, name, static)
        return _part(frame, value, name)
    raise Unsupported(f"attribute {name!r} of {value.describe()}")
