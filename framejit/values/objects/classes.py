"""Classes, their instantiation, super()."""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.guards.plain_text import module_of
from framejit.guards.sources import AttrSource, IndexSource, Source, TypeLookupSource, const_source, static_lookup
from framejit.guards.type_flags import HEAP_TYPE, IMMUTABLE
from framejit.models.model_registry import REALS, is_modelled
from framejit.signals import NotConstant, Raised, SkipFrame, Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue, is_none
from framejit.values.containers.lists import ListValue
from framejit.values.containers.mapping import DICT_CLASSES, DictValue
from framejit.values.containers.sets import SetValue, frozen
from framejit.values.containers.tuples import TupleValue, adds_only_names, is_return_type
from framejit.values.folding import fold
from framejit.values.handlers import HANDLERS
from framejit.values.inspection import has_operators, is_a, is_of_program, qualified_name
from framejit.values.objects.builtin_attributes import super_builtin_method
from framejit.values.objects.exception_values import ExceptionValue, check_plain_exception
from framejit.values.objects.functions.c_methods import BuiltinMethodValue
from framejit.values.objects.functions.function_values import CallableValue, bind
from framejit.values.objects.functions.model_values import call_model
from framejit.values.objects.functions.signatures import checked
from framejit.values.objects.instance_checks import by_type
from framejit.values.objects.new_instances import native_class
from framejit.values.objects.user_object import (
    ObjectValue,
    answers_first,
    bind_attribute,
    class_attribute,
    truth_by_methods,
)
from framejit.values.wrap import from_python, makes, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame

_ABSENT = object()
_ABSTRACT = 1 << 20  # Py_TPFLAGS_IS_ABSTRACT
_WITHOUT_NEW = 1 << 7  # Py_TPFLAGS_DISALLOW_INSTANTIATION: it can not be called, and inherits no __new__
_TOLD_BY_TYPE = ("__name__", "__qualname__", "__module__", "__doc__", "__mro__", "__bases__")
_PURE = (
    torch.Size, torch.dtype, torch.device, torch.finfo, torch.iinfo, int, float, complex, bool, str, bytes, frozenset,
    range, types.GenericAlias,
)


def is_python_class(cls: type) -> bool:
    """Whether a class was made by a class statement, so that its attributes can be set."""
    return bool(cls.__flags__ & HEAP_TYPE) and not cls.__flags__ & IMMUTABLE


def _annotation(frame: Frame, value: Value) -> Any:
    """What stands in the brackets of an annotation: types, lists of them, and what `typing` makes, whose objects never
    change. Raises NotConstant for anything else."""
    value = realize(frame, value)
    if type(value) in (ListValue, TupleValue) and value.python_type() in (list, tuple):
        return value.python_type()(_annotation(frame, item) for item in value.children())
    if isinstance(value, ObjectValue) and value.obj is not None and value.source is not None and not value.attrs:
        if module_of(value.cls) == "typing":
            frame.capture.add_guard(value.source, native.C_ID, value.obj)
            return value.obj
    return value.constant()


def is_finalized(cls: type) -> bool:
    """Whether the program has code that runs when the last reference to an instance goes."""
    return is_a(static_lookup(cls, "__del__", None), types.FunctionType)


class ClassValue(Value):
    """A class that exists. Its attributes are guarded where they are looked up; calling it makes an instance."""

    def __init__(self, cls: type, source: Source | None = None) -> None:
        self.cls, self.source = cls, source

    def python_type(self) -> type:
        return type(self.cls)

    def describe(self) -> str:
        return f"class {qualified_name(self.cls)}"

    def constant(self) -> Any:
        return self.cls

    def is_constant(self) -> bool:
        return not has_operators(self.cls)  # else operations on it run code of the program

    def table_key(self, capture: Capture) -> Any:
        return self.cls if has_operators(self.cls) and self.cls not in capture.made_classes else None

    def plain_copy(self, frame: Frame) -> Any:
        if has_operators(self.cls):
            raise Unsupported(f"text of {self.describe()}, whose metaclass has operators of its own")
        return self.cls

    def truth(self, frame: Frame) -> bool:
        return truth_by_methods(frame, self) if has_operators(self.cls) else True

    # ---- attributes -------------------------------------------------------------------------

    def getattr(self, frame: Frame, name: str) -> Value:
        meta = type(self.cls)
        if not is_a(static_lookup(meta, "__getattribute__"), types.WrapperDescriptorType):
            raise Unsupported(f"attribute {name!r} of {self.describe()}, whose metaclass has its own __getattribute__")
        if static_lookup(meta, "__getattr__", None) is None:
            return self._found(frame, name)
        try:
            with frame.catching():
                return self._found(frame, name)
        except Raised as e:
            if not issubclass(e.value.cls, AttributeError):
                raise
        return class_attribute(frame, self, meta, "__getattr__").call(frame, [ConstantValue(name)], {})

    def _found(self, frame: Frame, name: str) -> Value:
        """The attribute, as `type` finds it."""
        if name == "__class__":
            return from_python(type(self.cls))
        if name in _TOLD_BY_TYPE and static_lookup(type(self.cls), name) is vars(type)[name]:
            return self._told_by_type(frame, name)
        if name == "__abstractmethods__" and static_lookup(type(self.cls), name) is vars(type)[name]:
            try:
                return frame.wrap(self.cls.__abstractmethods__, AttrSource(self._where(), name))  # type: ignore[attr-defined]
            except AttributeError as e:
                frame.capture.guard_no_attribute(self._where(), name)
                raise frame.raised_from(e) from None
        if name == "__dict__":
            return frame.wrap(self.cls.__dict__, AttrSource(self._where(), "__dict__"))
        written = frame.capture.effects.attribute(self.cls, name)
        if written is not None:
            if static_lookup(written.python_type(), "__get__", None) is not None and not isinstance(
                written, CallableValue
            ):
                raise Unsupported(
                    f"reading {name!r} of {self.describe()}, to which a {written.python_type().__name__} was written"
                )
            return written
        frame.capture.effects.check_not_inherited(self.cls, name)
        if issubclass(self.cls, enum.Enum) and name in self.cls.__members__:
            return from_python(self.cls.__members__[name])
        meta = static_lookup(type(self.cls), name, _ABSENT)
        if meta is not _ABSENT and (answers_first(meta) or static_lookup(self.cls, name, _ABSENT) is _ABSENT):
            return bind_attribute(frame, meta, self, type(self.cls), name)
        static = static_lookup(self.cls, name, _ABSENT)
        if static is _ABSENT:
            raise frame.raised(AttributeError, f"type object {native.type_name(self.cls)!r} has no attribute {name!r}")
        if name == "__new__" and static is object.__new__:
            return from_python(object.__new__)
        return bind_attribute(frame, static, None, self.cls, name)

    def _told_by_type(self, frame: Frame, name: str) -> Value:
        if name == "__doc__":
            own = vars(type)["__dict__"].__get__(self.cls).get(name)
            if own is not None and static_lookup(type(own), "__get__", None) is not None:
                return bind_attribute(frame, own, None, self.cls, name)  # as dataclasses have them from 3.15 on
        if name == "__module__" and not module_of(self.cls):
            raise Unsupported(f"the module of {self.describe()}, which has none")
        told = getattr(self.cls, name)
        # else nobody can, or does, give it another
        if is_python_class(self.cls) and module_of(self.cls).partition(".")[0] != "torch":
            if name == "__doc__" and type(told) is not str:
                return frame.wrap(told, AttrSource(self._where(), name))
            frame.capture.add_guard(
                AttrSource(self._where(), name), native.C_EQUALS if type(told) is str else native.C_ID, told
            )
        return from_python(told)

    def _where(self) -> Source:
        return self.source or const_source(self.cls)

    def setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        meta = type(self.cls)
        if meta.__setattr__ is not type.__setattr__ or meta.__delattr__ is not type.__delattr__:
            raise Unsupported(
                f"setting attribute {name!r} of {self.describe()}, whose metaclass has its own __setattr__"
            )
        if name.startswith("__") and name.endswith("__") or hasattr(meta, name) or not is_python_class(self.cls):
            raise Unsupported(f"setting attribute {name!r} of {self.describe()}, which means more than keeping it")
        if value is None and name not in self.cls.__dict__:
            raise Unsupported(f"deleting attribute {name!r} of {self.describe()}, which may have none")
        frame.capture.effects.set_attribute(self, self.cls, name, value)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if has_operators(self.cls) and name[:2] == "__" and name[-2:] == "__":
            found = static_lookup(type(self.cls), name, None)
            if is_a(found, types.FunctionType):
                return bind_attribute(frame, found, self, type(self.cls), name).call(frame, args, kwargs)
        return self._method_of_type(frame, name, args, kwargs)

    def c_method(self, frame: Frame, name: str, static: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if static is type.__dict__["__call__"]:  # by super(), from the metaclass's own
            made = _construct_builtin(frame, self.cls, args, kwargs)
            return made if made is not None else made_by_type(frame, self.cls, args, kwargs)
        return self._method_of_type(frame, name, args, kwargs)

    def _method_of_type(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__getitem__" and issubclass(self.cls, enum.Enum):
            if (
                type(self.cls).__getitem__ is not enum.EnumMeta.__getitem__
                or not all(a.is_constant() for a in args)
                or len(args) != 1
            ):
                raise Unsupported(f"a subscript of {self.describe()}")
            return _of_enum(frame, self.cls, "_member_map_", args[0])
        if name == "__getitem__":  # list[int] and friends
            own = static_lookup(self.cls, "__class_getitem__")
            function = own.__func__ if is_a(own, (classmethod, staticmethod)) else own
            if is_a(function, types.FunctionType) and is_of_program(function.__module__):
                return self.getattr(frame, "__class_getitem__").call(frame, args, kwargs)
            try:
                types_given: list[Value] = [ConstantValue(_annotation(frame, a)) for a in args]
            except NotConstant:
                return super().call_method(frame, name, args, kwargs)
            return fold(frame, self.cls.__class_getitem__, types_given, {})  # type: ignore[attr-defined]
        if name in ("__eq__", "__ne__"):
            return ConstantValue(NotImplemented)
        if name in ("__instancecheck__", "__subclasscheck__") and is_a(
            static_lookup(type(self.cls), name), types.FunctionType
        ):
            # reached by super() from the metaclass's own: what `type` does
            if name == "__instancecheck__":
                return ConstantValue(by_type(args[0], self.cls))
            return ConstantValue(type.__subclasscheck__(self.cls, args[0].constant()))
        if name == "mro":
            return ListValue([ClassValue(c) for c in self.cls.__mro__])
        if name == "__subclasses__":
            raise Unsupported("__subclasses__()")
        return self.getattr(frame, name).call(frame, args, kwargs)

    def iterate(self, frame: Frame) -> Iterator[Value]:
        if issubclass(self.cls, enum.Enum):
            names = frame.wrap(self.cls._member_names_, TypeLookupSource(const_source(self.cls), "_member_names_"))
            return iter([_of_enum(frame, self.cls, "_member_map_", name) for name in frame.iterate(names)])
        raise frame.raised(TypeError, f"{native.type_name(type(self.cls))!r} object is not iterable")

    # ---- instantiation ------------------------------------------------------------------------

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        made = _construct_builtin(
            frame, self.cls, [realize(frame, a) for a in args], {k: realize(frame, v) for k, v in kwargs.items()}
        )
        return made if made is not None else instantiate(frame, self.cls, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.load_class(self.cls)


def _construct_builtin(frame: Frame, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Call a class that framejit models; None for others."""
    handler = HANDLERS.get(cls)
    if handler is not None:
        return handler(frame, *checked(frame, cls, args, kwargs))
    if is_modelled(cls):
        return (
            call_model(frame, cls, args, kwargs)
            if cls in REALS
            else call_model(frame, cls, *checked(frame, cls, args, kwargs))
        )
    return None


def instantiate(frame: Frame, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`cls(*args, **kwargs)` for a class written in Python: inline `__new__` and `__init__`."""
    if issubclass(cls, enum.Enum):
        return enum_member(frame, cls, args, kwargs)
    if cls in _PURE:
        return fold(frame, cls, args, kwargs)
    meta_call = static_lookup(type(cls), "__call__")
    if meta_call is not type.__dict__["__call__"] and module_of(type(cls)) != "torch":
        return bind_attribute(frame, meta_call, ClassValue(cls), type(cls), "__call__").call(frame, args, kwargs)
    return made_by_type(frame, cls, args, kwargs)


def made_by_type(frame: Frame, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`type.__call__(cls, *args, **kwargs)`, whatever the metaclass of the class has in its place."""
    if issubclass(cls, torch.Tensor):
        raise Unsupported(
            f"making a {cls.__qualname__} inside captured code", "FJ113", "make it outside and pass it in"
        )
    if "_make" in cls.__dict__ and adds_only_names(cls) and cls.__new__.__module__.startswith("namedtuple_"):
        return namedtuple_instance(frame, cls, args, kwargs)
    if is_return_type(cls) and len(args) == 1:
        return TupleValue(list(frame.iterate(args[0])), cls)
    if is_finalized(cls):
        raise SkipFrame(f"makes a {cls.__qualname__}, whose __del__ runs when the last reference goes", "FJ213")
    instance = new_value(frame, cls, args, kwargs)
    if cls in instance.python_type().__mro__:
        if isinstance(instance, ObjectValue):
            init_instance(frame, instance, args, kwargs)
        elif static_lookup(instance.python_type(), "__init__") is not object.__init__:
            raise Unsupported(f"{cls.__qualname__}.__new__ gives {instance.describe()}, which is then initialized")
    return instance


def enum_member(frame: Frame, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`cls(value)`: the member that has the value."""
    values = frame.constants(args)
    if (
        len(values) == 1
        and not kwargs
        and issubclass(type(cls), enum.EnumMeta)
        and type(cls).__call__ is enum.EnumMeta.__call__
    ):
        for member in cls._member_map_.values():
            if type(member._value_) is type(values[0]) and member._value_ == values[0] or member is values[0]:
                by_table = member is not values[0] and type(values[0]) in (int, str, float, bool, bytes, type(None))
                if by_table and values[0] in cls._value2member_map_:
                    return _of_enum(frame, cls, "_value2member_map_", ConstantValue(values[0]))
                if not by_table:
                    return from_python(member)
        if issubclass(cls, enum.Flag) and cls._missing_.__func__ is enum.Flag._missing_.__func__:  # type: ignore[attr-defined]
            return fold(frame, cls, args, {})
    raise Unsupported(f"calling {cls.__qualname__} with something that is no value of a member")


def _of_enum(frame: Frame, cls: Any, table: str, key: Value) -> Value:
    """What the class of an enum has under a key in one of its tables, where it looks itself."""
    return frame.subscript(frame.wrap(static_lookup(cls, table), TypeLookupSource(const_source(cls), table)), key)


def namedtuple_instance(frame: Frame, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`cls(*args, **kwargs)`: the arguments, as the class's `__new__` binds them, are the tuple's items."""
    new = frame.wrap(cls.__new__, AttrSource(TypeLookupSource(const_source(cls), "__new__"), "__func__"))
    if not isinstance(new, CallableValue):
        raise Unsupported(f"making a {cls.__qualname__}, whose __new__ is {new.describe()}", "FJ113")
    given = bind(frame, new, [ClassValue(cls), *args], kwargs)
    return TupleValue([given[name] for name in new.code.co_varnames[1 : new.code.co_argcount]], cls)


def new_value(frame: Frame, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`cls.__new__(cls, *args, **kwargs)`."""
    new = static_lookup(cls, "__new__")
    if is_a(new, staticmethod):
        new = new.__func__
    if is_a(new, types.FunctionType):
        function = frame.wrap(
            new,
            AttrSource(TypeLookupSource(const_source(cls), "__new__"), "__func__")
            if is_a(static_lookup(cls, "__new__"), staticmethod)
            else TypeLookupSource(const_source(cls), "__new__"),
        )
        return function.call(frame, [ClassValue(cls), *args], kwargs)
    if kwargs and issubclass(cls, frozenset) and static_lookup(cls, "__init__") is object.__init__:
        raise frame.raised(TypeError, "frozenset() takes no keyword arguments")
    return bare_instance(frame, cls, args, kwargs)


def bare_instance(frame: Frame, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A new instance by the built-in `__new__` that `cls` inherits, before any `__init__`. Raises Unsupported for a
    class whose `__new__` in C is not modelled."""
    native = native_class(cls)
    if any(k.__flags__ & _WITHOUT_NEW for k in cls.__mro__) or issubclass(cls, tuple) and native is not tuple:
        raise Unsupported(f"making a {cls.__qualname__}: its __new__ is written in C, if it has one", "FJ113")
    if issubclass(cls, BaseException):
        check_plain_exception(cls, args)
        return ExceptionValue(cls, list(args))
    if issubclass(cls, DICT_CLASSES[:3]):
        kind = next(k for k in (collections.OrderedDict, collections.defaultdict, dict) if issubclass(cls, k))
        return ObjectValue(cls, base=DictValue({}, cls=kind))
    if issubclass(cls, list):
        return ObjectValue(cls, base=ListValue([]))
    if issubclass(cls, tuple):
        if len(args) > 1 or kwargs:
            raise Unsupported(f"the arguments do not fit {cls.__qualname__}", "FJ112")
        return ObjectValue(cls, base=TupleValue(list(frame.iterate(args[0])) if args else []))
    if issubclass(cls, set):
        return ObjectValue(cls, base=SetValue(set()))
    if issubclass(cls, frozenset):
        if len(args) > 1:
            raise frame.raised(TypeError, f"{cls.__name__} expected at most 1 argument, got {len(args)}")
        part = frozen(frame, args[0]) if args else SetValue(frozenset())
        return ObjectValue(cls, base=part.frozen() if isinstance(part, SetValue) else SetValue(part.constant()))
    if native is types.SimpleNamespace:
        return ObjectValue(cls)
    makers = [k.__dict__["__new__"] for k in cls.__mro__ if "__new__" in k.__dict__]
    if all(m is object.__new__ or is_a(m, (staticmethod, types.FunctionType)) for m in makers):
        if cls.__flags__ & _ABSTRACT:
            raise Unsupported(f"making a {cls.__qualname__}, which is abstract", "FJ112")
        if (args or kwargs) and (
            static_lookup(cls, "__new__") is not object.__new__ or static_lookup(cls, "__init__") is object.__init__
        ):
            raise Unsupported(f"object.__new__() of {cls.__qualname__} takes no arguments", "FJ112")
        return ObjectValue(cls)
    raise Unsupported(f"making a {cls.__qualname__}: its __new__ is written in C", "FJ113")


def init_instance(frame: Frame, instance: ObjectValue, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Run `__init__` of a new instance's class on it. Raises Unsupported where that returns something."""
    init = static_lookup(instance.cls, "__init__")
    given = frame.call(bind_attribute(frame, init, instance, instance.cls, "__init__"), args, kwargs)
    if not is_none(given):
        raise Unsupported(f"__init__() of {instance.cls.__qualname__} should return None", "FJ112")


def make_super(start: Value, owner: Value) -> SuperValue:
    """`super(start, owner)`."""
    if not isinstance(start, ClassValue):
        raise Unsupported("super() of an unknown class")
    bound = owner.cls.__mro__ if isinstance(owner, ClassValue) else ()
    if start.cls not in (*bound, *owner.python_type().__mro__):
        raise Unsupported("super() of an object of another class")
    return SuperValue(start.cls, owner)


def _after(cls: type, start: type) -> tuple[type, ...]:
    """The classes in which `super(start, obj)` looks, of an object of class `cls`."""
    mro = cls.__mro__
    return mro[mro.index(start) + 1 :] if start in mro else ()


def _guarded_start(capture: Capture, cls: type, start: type) -> type | None:
    """The class whose own lookup finds what `super(start, obj)` finds, guarded to come after `start`; None where more
    bases than one make an order of their own, which is guarded."""
    rest = _after(cls, start)
    if rest[0].__mro__ != rest or not is_python_class(rest[0]):
        capture.guard_bases(cls)
        return None
    if is_python_class(cls) and cls not in capture.made_classes:
        order = AttrSource(const_source(cls), "__mro__")
        capture.add_guard(IndexSource(order, cls.__mro__.index(start) + 1), native.C_ID, rest[0])
    return rest[0]


class SuperValue(Value):
    """`super(start, owner)`: the MRO of the owner's class after `start`."""

    def __init__(self, start: type, owner: Value) -> None:
        self.start, self.owner = start, owner

    def python_type(self) -> type:
        return super

    def children(self) -> Iterator[Value]:
        return iter((self.owner,))

    def getattr(self, frame: Frame, name: str) -> Value:
        # else in a method of a metaclass
        on_class = isinstance(self.owner, ClassValue) and self.start in self.owner.cls.__mro__
        cls = self.owner.cls if on_class else self.owner.python_type()  # type: ignore[attr-defined]
        if name == "__class__":
            return ClassValue(super)
        frame.capture.effects.check_not_inherited(cls, name)
        for klass in _after(cls, self.start):
            if name in klass.__dict__:
                static = klass.__dict__[name]
                klass = _guarded_start(frame.capture, cls, self.start) or klass
                if not is_a(static, (types.FunctionType, property, staticmethod, classmethod)) and not on_class:
                    return super_builtin_method(frame, self.owner, name, static, klass)
                if is_a(static, staticmethod) and name == "__new__":
                    return frame.wrap(
                        static.__func__, AttrSource(TypeLookupSource(const_source(klass), name), "__func__")
                    )
                if static is object.__new__ or is_a(static, types.BuiltinFunctionType) and name == "__new__":
                    return BuiltinNewValue(getattr(static, "__self__", object))
                if on_class and not is_a(static, classmethod):
                    return bind_attribute(frame, static, None, cls, name, klass)
                return bind_attribute(frame, static, self.owner if not on_class else None, cls, name, klass)
        if isinstance(self.owner, ObjectValue) and name in ("__setattr__", "__delattr__", "__getattribute__"):
            return BuiltinMethodValue(self.owner, name, getattr(object, name))
        frame.capture.guard_bases(cls)
        raise frame.raised(AttributeError, f"'super' object has no attribute {name!r}")

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(super, lambda: (cg.em.load_object(self.start), cg.load(self.owner)), 2)


class BuiltinNewValue(Value):
    """The `__new__` of the built-in class `owner`, reached through super() or by name."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def python_type(self) -> type:
        return types.BuiltinFunctionType

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not args or not isinstance(args[0], ClassValue):
            raise Unsupported("__new__ without a known class")
        cls = args[0].cls
        maker = next(k for k in native_class(cls).__mro__ if "__new__" in k.__dict__)
        if self.owner is not maker or is_finalized(cls):
            raise Unsupported(f"{self.owner.__name__}.__new__() of a {cls.__qualname__}", "FJ113")
        return bare_instance(frame, cls, args[1:], kwargs)


@wraps(type, subclasses=True)
def _existing_class(capture: Capture, obj: type, source: Source) -> Value:
    capture.add_guard(source, native.C_ID, obj)
    return ClassValue(obj, source)


@makes(type, subclasses=True)
def _made_class(obj: type) -> Value:
    return ClassValue(obj)
