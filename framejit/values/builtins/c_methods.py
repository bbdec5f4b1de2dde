"""Methods of built-in types, bound to a value."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from framejit.guards.sources import static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.bound_descriptor import BoundDescriptor
from framejit.values.constant import NONE, ConstantValue
from framejit.values.inspection import type_name

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

# Methods that need real Python semantics (not call_method of the container part) on instances.
_OBJECT_METHODS = frozenset(
    """
        __setattr__ __delattr__ __getattribute__ __init__ __new__ __init_subclass__ __eq__ __ne__ __hash__ __reduce__ __reduce_ex__
        __format__ __str__ __repr__ __sizeof__ __dir__
    """.split()
)


class BuiltinMethodValue(BoundDescriptor):
    """Method `name` of a built-in type bound to `owner`; `static` is the descriptor when known."""

    def __init__(self, owner: Value, name: str, static: Any = None) -> None:
        self.owner, self.name, self.static = owner, name, static

    def describe(self) -> str:
        return f"method {self.name!r} of {self.owner.describe()}"

    def children(self) -> Iterator[Value]:
        return iter((self.owner,))

    def getattr(self, tx: Frame, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return ConstantValue(self.name)
        if name == "__qualname__":
            return ConstantValue(f"{self.owner.python_type().__qualname__}.{self.name}")
        return builtin_attribute(tx, self, name)

    def call(self, tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        from framejit.values.builtins.models import call_model, is_modelled
        from framejit.values.builtins.signatures import checked
        from framejit.values.objects.user_object import ObjectValue
        from framejit.values.tensors.tensor import TensorValue

        args, kwargs = [realize(tx, a) for a in args], {k: realize(tx, v) for k, v in kwargs.items()}
        owner = self.owner
        static = self.static or static_lookup(owner.python_type(), self.name, None)
        if isinstance(static, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            (_, *args), kwargs = checked(tx, static, [owner, *args], kwargs)
            if is_modelled(static):
                return call_model(tx, static, [owner, *args], kwargs)
        if isinstance(owner, ObjectValue):
            return object_method(tx, owner, self.name, self.static, args, kwargs)
        if isinstance(owner, TensorValue) and self.static is not None:
            return owner.torch_method(tx, self.name, args, kwargs)
        return owner.call_method(tx, self.name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        if self.static is not None and static_lookup(self.owner.python_type(), self.name, None) is not self.static:
            # reached through super(): by its name the class has another one
            cg.em.call_object(type(self.static).__get__, lambda: (cg.em.load_object(self.static), cg.load(self.owner)), 2)
            return
        cg.load(self.owner)
        cg.em.load_attr(self.name)


def object_method(tx: Frame, owner: Any, name: str, static: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A C-written method that an instance of a Python class inherits."""
    from framejit.values.containers.dict_subclasses import dict_method
    from framejit.values.containers.mapping import DictValue
    from framejit.values.containers.sets import SetValue
    from framejit.values.objects.exceptions import ExceptionValue, check_plain_exception, make_exception
    from framejit.values.operators import is_not_implemented

    if name == "__setattr__":
        owner.generic_setattr(tx, args[0].constant(), args[1])
        return NONE
    if name == "__delattr__":
        owner.generic_setattr(tx, args[0].constant(), None)
        return NONE
    if name == "__getattribute__":
        return owner.generic_getattr(tx, args[0].constant())
    if name in ("__init__", "__init_subclass__"):
        if isinstance(owner, ExceptionValue):
            if kwargs or owner.source is not None:
                raise Unsupported(f"{owner.cls.__qualname__}() with keyword arguments, or once more")
            check_plain_exception(owner.cls, args)
            owner.args = list(args)
        elif owner.source is not None and (args or kwargs) and static is not object.__init__:
            raise Unsupported(f"initializing {owner.describe()} again")
        elif static is object.__init__ and (args or kwargs):
            if static_lookup(owner.cls, "__init__") is not static or static_lookup(owner.cls, "__new__") is object.__new__:
                raise Unsupported(f"object.__init__() of {owner.describe()} takes no arguments", "FJ112")
        elif static is types.SimpleNamespace.__init__:
            if args:
                raise Unsupported("types.SimpleNamespace() of a mapping")
            for key, value in kwargs.items():
                owner.generic_setattr(tx, key, value)
        elif isinstance(owner.base, DictValue):
            return dict_method(tx, owner, name, args, kwargs)
        elif isinstance(owner.base, SetValue):
            if owner.base.cls is set:
                owner.base.call_method(tx, "__init__", args, kwargs)
        elif owner.base is not None and (args or kwargs):
            fill = {"ListValue": "extend"}.get(type(owner.base).__name__)
            if fill is not None:
                owner.base.call_method(tx, fill, args, kwargs)
        return NONE
    if isinstance(owner, ExceptionValue) and name in ("__str__", "__repr__", "with_traceback", "add_note") and owner.source is None:
        if name == "with_traceback":
            owner.set_traceback(args[0])
            return owner
        if name == "add_note":
            owner.add_note(tx, args[0])
            return NONE
        return ConstantValue(static(make_exception(owner.cls, tuple(tx.constants(owner.args)))))
    if owner.base is not None and (name not in _OBJECT_METHODS or name in ("__eq__", "__ne__")):
        if isinstance(owner.base, DictValue):
            return dict_method(tx, owner, name, args, kwargs)
        found = owner.base.call_method(tx, name, args, kwargs)
        if found is not owner.base:
            return found
        return owner.base.frozen() if isinstance(owner.base, SetValue) and owner.base.cls is frozenset else owner
    if name == "__ne__" and static is object.__ne__:
        equal = owner.call_method(tx, "__eq__", args, {})
        return equal if is_not_implemented(equal) else ConstantValue(not tx.truth(equal))
    if name == "__eq__" and static is object.__eq__:
        return ConstantValue(tx.same(owner, args[0]) or NotImplemented)
    if name == "__hash__" and static is object.__hash__:
        raise Unsupported("hash() of an object, which depends on its address")
    if owner.obj is not None and not owner.attrs:
        from framejit.values.builtins.known_objects import call_known_method

        return call_known_method(tx, owner, name, args, kwargs)
    raise Unsupported(f"method {name!r} of {owner.describe()} is written in C", "FJ111")


def super_builtin_method(tx: Frame, owner: Value, name: str, static: Any, klass: type) -> Value:
    """What `super().name` is when the class after the caller's is written in C."""
    from framejit.values.objects.user_object import bind_attribute

    if isinstance(static, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return BuiltinMethodValue(owner, name, static)
    return bind_attribute(tx, static, owner, owner.python_type(), name, klass)


def builtin_attribute(tx: Frame, value: Value, name: str) -> Value:
    """Attribute `name` of a value of a built-in type: a method, or a constant attribute."""
    from framejit.values.wrap import from_python

    cls = value.python_type()
    if name == "__class__":
        return from_python(cls)
    static = static_lookup(cls, name, None)
    if static is None:
        if value.is_constant() and hasattr(value.constant(), name):
            return from_python(getattr(value.constant(), name))
        raise tx.raised(AttributeError, f"{type_name(cls)!r} object has no attribute {name!r}")
    if isinstance(static, (types.FunctionType, property, classmethod)):
        from framejit.values.objects.user_object import class_attribute

        if isinstance(static, property) and value.is_constant():
            return from_python(getattr(value.constant(), name))
        return class_attribute(tx, value, cls, name)
    if isinstance(static, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return BuiltinMethodValue(value, name, static)
    if isinstance(static, types.ClassMethodDescriptorType):  # of a class written in C, which nobody changes
        return from_python(getattr(cls, name))
    if value.is_constant():
        found = getattr(value.constant(), name)
        return BuiltinMethodValue(value, name, static) if callable(found) and not isinstance(found, type) else from_python(found)
    raise Unsupported(f"attribute {name!r} of {value.describe()}")


class NativeMethodValue(Value):
    """A method framejit itself implements for a value."""

    def __init__(self, function: Callable[[Frame, list[Value], dict[str, Value]], Value], name: str) -> None:
        self.function, self.name = function, name

    def describe(self) -> str:
        return f"method {self.name!r}"

    def call(self, tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.function(tx, args, kwargs)
