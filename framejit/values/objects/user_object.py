"""Instances of Python classes: attribute lookup as object.__getattribute__ does it, writes kept aside for replay."""

from __future__ import annotations

import functools
import sys
import types
from collections import defaultdict, namedtuple
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from framejit import _native as native
from framejit.guards.plain_text import module_of
from framejit.guards.sources import (
    AttrSource,
    DictSource,
    Source,
    TypeLookupSource,
    UnaskedDictSource,
    const_source,
    key_source,
    static_lookup,
)
from framejit.guards.type_flags import HEAP_TYPE
from framejit.signals import Raised, Unsupported
from framejit.values.base import Value, realize
from framejit.values.complaints import wrong_answer
from framejit.values.constant import NONE, ConstantValue, is_constant_object
from framejit.values.containers.dict_subclasses import dict_method
from framejit.values.containers.filling import fill_method
from framejit.values.containers.hashing import HashTable
from framejit.values.containers.iterator_values import IteratorValue, SubscriptIterator
from framejit.values.containers.lists import ListValue
from framejit.values.containers.mapping import DictValue, pairs
from framejit.values.containers.sets import SetValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import HANDLERS
from framejit.values.inspection import full_name, hides_dict, instance_dict, is_a
from framejit.values.journal import Changed, Held, Wrote
from framejit.values.lazy import LazyValue
from framejit.values.objects.functions.bound_descriptor import METHODS
from framejit.values.objects.functions.c_methods import BuiltinMethodValue
from framejit.values.objects.functions.function_values import FunctionValue, MethodValue
from framejit.values.objects.inherited_methods import call_inherited
from framejit.values.objects.new_instances import new_instance
from framejit.values.shown_objects import stand_in
from framejit.values.sym_int import LARGEST, SymIntValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame
    from framejit.values.journal import Journal

_ABSENT = object()
_MODELS = "framejit.models."


FieldGetter = type(namedtuple("Pair", "first second").first)  # type: ignore[attr-defined]
_SLOT_TYPES = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def truth_by_methods(frame: Frame, value: Value) -> bool:
    """`bool(value)`, by the special methods of its class."""
    cls = value.python_type()
    if static_lookup(cls, "__bool__", None) is not None:
        answer = value.call_method(frame, "__bool__", [], {})
        if answer.python_type() is not bool:
            said = f"__bool__ should return bool, returned {answer.python_type().__name__}"
            raise wrong_answer(frame, cls, "__bool__", bool, answer, said)
        return frame.truth(answer)
    return static_lookup(cls, "__len__", None) is None or frame.truth(length_by_method(frame, value))


def length_by_method(frame: Frame, value: Value) -> Value:
    """`len(value)`, by the `__len__` of its class: an int, which need not be assumed."""
    told = realize(frame, value.call_method(frame, "__len__", [], {}))
    if isinstance(told, SymIntValue) and not told.is_of_data():
        bounds = [("ge", 0), ("le", LARGEST)]
        if all(frame.compare(name, told, ConstantValue(bound)).constant() for name, bound in bounds):
            return told
    size = told.constant()
    if not isinstance(size, int) or size > sys.maxsize:
        raise Unsupported(f"__len__() of {value.describe()} gives something that is no length")
    if size < 0:
        raise frame.raised(ValueError, "__len__() should return >= 0")
    return ConstantValue(int(size))


class ObjectValue(Value):
    """An instance of `cls`: an existing one (`obj`, with a source), or one made here (`obj` is None).

    `attrs` holds what the captured code wrote (None marks a deleted attribute); `base` is the built-in part of
    an instance of a dict, list, tuple or set subclass.
    """

    mutable = True
    looked_up = True
    journal: Journal | None = None
    """While a call is followed that may come to the object: what is told of each look at `attrs`."""

    def __init__(self, cls: type, obj: Any = None, source: Source | None = None, base: Value | None = None) -> None:
        self.cls, self.obj, self.source, self.base = cls, obj, source, base
        self._attrs: dict[str, Value | None] = {}
        self.made_own_dict = False  # here, by `self.__dict__ = self`
        if isinstance(base, HashTable):
            base.owner = self
        elif isinstance(base, TupleValue):
            base.is_part = True

    @property
    def attrs(self) -> dict[str, Value | None]:
        if self.journal is not None:
            self.journal.add(Held(self, tuple(self._attrs), tuple(self._attrs.values())))
        return self._attrs

    @attrs.setter
    def attrs(self, attrs: dict[str, Value | None]) -> None:
        if self.journal is not None:
            self.journal.add(Changed(self))
        self._attrs = attrs

    @property
    def kept_attributes(self) -> dict[str, Value | None]:
        """What `attrs` holds, without telling the journal."""
        return self._attrs

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"{self.cls.__qualname__} object" + (f" {self.source.name()!r}" if self.source is not None else "")

    def children(self) -> Iterator[Value]:
        yield from (v for v in self._attrs.values() if v is not None)
        if self.base is not None:
            yield self.base

    def plain_copy(self, frame: Frame) -> Any:
        shown = stand_in(self)
        return super().plain_copy(frame) if shown is None else shown

    # ---- reading ------------------------------------------------------------------------------

    def getattr(self, frame: Frame, name: str) -> Value:
        override = static_lookup(self.cls, "__getattribute__")
        check_ordinary(self, override, "__getattribute__")
        if is_a(override, types.FunctionType):
            return frame.capture.lookups.get(self, name, lambda: self._with_fallback(
                frame,
                name,
                lambda: class_attribute(frame, self, self.cls, "__getattribute__").call(
                    frame, [ConstantValue(name)], {}
                ),
            ))
        return self._with_fallback(frame, name, lambda: self.generic_getattr(frame, name))

    def _with_fallback(self, frame: Frame, name: str, read: Any) -> Value:
        if static_lookup(self.cls, "__getattr__", None) is None:
            return read()
        try:
            with frame.catching():
                return read()
        except Raised as e:
            if not issubclass(e.value.cls, AttributeError):
                raise
        return self.missing(frame, name)

    def missing(self, frame: Frame, name: str) -> Value:
        """The class's `__getattr__`, after ordinary lookup found nothing."""
        return class_attribute(frame, self, self.cls, "__getattr__").call(frame, [ConstantValue(name)], {})

    def generic_getattr(self, frame: Frame, name: str) -> Value:
        """object.__getattribute__ (https://docs.python.org/3/howto/descriptor.html#invocation-from-an-instance)."""
        if name == "__class__" and not self.claims_another_class():
            return from_python(self.cls)
        frame.capture.effects.check_not_inherited(self.cls, name)
        if name == "__dict__" and self.made_own_dict:
            return self
        if name == "__dict__" and (
            self.cls.__dictoffset__ and not hides_dict(self.cls)
            if self.obj is None
            else instance_dict(self.obj) is not None
        ):
            return InstanceDictValue(self)
        static = static_lookup(self.cls, name, _ABSENT)
        if answers_first(static):
            return bind_attribute(frame, static, self, self.cls, name)
        found = self.instance_attribute(frame, name, shadowing=static is not _ABSENT)
        if found is not None:
            if static is not _ABSENT and self.cls.__flags__ & HEAP_TYPE:  # else it might be a data descriptor by now
                frame.capture.add_guard(
                    TypeLookupSource(const_source(self.cls), name), native.C_TYPE, type(static)
                )
            return found
        if static is not _ABSENT:
            return bind_attribute(frame, static, self, self.cls, name)
        # it may have a tp_getattr, which the MRO does not show
        if self.obj is not None and not self.cls.__flags__ & HEAP_TYPE:
            raise Unsupported(
                f"attribute {name!r} of {self.describe()}, whose class is written in C and may look attributes up in "
                "its own way",
                "FJ111",
            )
        raise frame.raised(AttributeError, f"{native.type_name(self.cls)!r} object has no attribute {name!r}")

    def claims_another_class(self) -> bool:
        """Whether the class defines `__class__` itself, as proxies do."""
        return static_lookup(self.cls, "__class__") is not object.__dict__["__class__"]

    def instance_attribute(self, frame: Frame, name: str, shadowing: bool = False) -> Value | None:
        """The value in the instance's own dict under `name`, or None, whose absence is guarded."""
        if self.journal is not None:
            found = self.journal.read(self, name, self._attrs.get(name))
            if found is not None:
                return found
        if name in self._attrs:
            return self._attrs[name]
        if self.obj is None and not self.made_own_dict:
            return None
        if self.is_own_dict(frame):
            key, items = ConstantValue(name), self.base
            assert isinstance(items, DictValue)
            there = items.call_method(frame, "__contains__", [key], {}).constant()
            return realize(frame, items.getitem(frame, key)) if there else None
        own = instance_dict(self.obj)
        if own is None and type(self.obj).__dictoffset__:  # as of type variables, from 3.12 on
            raise Unsupported(f"attribute {name!r} of {self.describe()}, which doesn't show what attributes it has")
        where = self.dict_source()
        if own is None or where is None:
            return None
        if name in own:
            return LazyValue(own[name], key_source(where, name)).realize(frame)
        frame.capture.add_guard(where, native.C_NO_KEY, name)
        return None

    def is_own_dict(self, frame: Frame) -> bool:
        """Whether the items of this instance of a dict subclass are its attributes: `self.__dict__ = self`."""
        if self.obj is None:
            return self.made_own_dict
        if not isinstance(self.base, DictValue) or self.source is None or self.asks_program() or hides_dict(self.cls):
            return False
        if not self.cls.__dictoffset__ or object.__getattribute__(self.obj, "__dict__") is not self.obj:
            return False
        frame.capture.guard_same(DictSource(self.source), self.source)
        return True

    def _becomes_own_dict(self, frame: Frame, value: Value) -> bool:
        """Note that a new instance of a dict subclass, which has no attributes yet, is given itself for them; False for
        whatever else is given."""
        if realize(frame, value) is not self or self.obj is not None or self._attrs or self.journal is not None:
            return False
        if not isinstance(self.base, DictValue) or self.base.cls is not dict:
            return False
        if self.asks_program() or hides_dict(self.cls):
            return False
        self.made_own_dict = True
        return True

    def dict_source(self) -> DictSource | None:
        if self.source is None:
            return None
        return (UnaskedDictSource if self.asks_program() else DictSource)(self.source)

    def load_dict(self, cg: Codegen) -> None:
        """Loads the dict of the attributes, without running code of the program."""
        if self.asks_program():
            cg.call_function(object.__getattribute__, self, ConstantValue("__dict__"))
        else:
            cg.load(self)
            cg.em.load_attr("__dict__")

    def asks_program(self) -> bool:
        """Whether the class has a `__getattribute__` of the program's, which is asked for any attribute."""
        return is_a(static_lookup(self.cls, "__getattribute__", None), types.FunctionType)

    # ---- writing ------------------------------------------------------------------------------

    def setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        special = "__setattr__" if value is not None else "__delattr__"
        override = static_lookup(self.cls, special)
        if is_a(override, types.WrapperDescriptorType) and override.__name__ == special:
            self.generic_setattr(frame, name, value)
            return
        if not is_a(override, METHODS):  # else of the built-in part: `__setattr__ = dict.__setitem__`
            check_ordinary(self, override, special)
        args = [ConstantValue(name)] + ([value] if value is not None else [])
        class_attribute(frame, self, self.cls, special).call(frame, args, {})

    def generic_setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        static = static_lookup(self.cls, name, _ABSENT)
        if is_data_descriptor(static) and not is_a(static, types.MemberDescriptorType):
            method = "__set__" if value is not None else "__delete__"
            if is_a(static, property):
                accessor = static.fset if value is not None else static.fdel
                if accessor is None:
                    raise frame.raised(
                        AttributeError,
                        f"property {name!r} of {self.cls.__qualname__!r} object has no "
                        f"{'setter' if value is not None else 'deleter'}",
                    )
                part = AttrSource(
                    TypeLookupSource(const_source(self.cls), name), "fset" if value is not None else "fdel"
                )
                frame.wrap(accessor, part).call(frame, [self] + ([value] if value is not None else []), {})
                return
            if name == "__dict__" and value is not None and self._becomes_own_dict(frame, value):
                return
            setter = static_lookup(type(static), method, None)
            if is_a(setter, types.FunctionType):
                descriptor = frame.wrap(static, TypeLookupSource(const_source(self.cls), name))
                class_attribute(frame, descriptor, type(static), method).call(
                    frame, [self] + ([value] if value is not None else []), {}
                )
                return
            raise Unsupported(f"setting {name!r} of {self.describe()} through a {type(static).__name__}")
        if is_a(static, types.MemberDescriptorType) and not static.__objclass__.__flags__ & HEAP_TYPE:
            raise Unsupported(f"setting {name!r} of {self.describe()}, which a class written in C keeps")
        if self.is_own_dict(frame):
            if value is None:
                raise Unsupported(f"deleting attribute {name!r} of {self.describe()}, which is an item")
            dict_method(frame, self, "__setitem__", [ConstantValue(name), value], {})
            return
        if value is None:
            self.delete_attribute(frame, name)
            return
        if not is_a(static, types.MemberDescriptorType) and (
            not self.cls.__dictoffset__ or self.obj is not None and instance_dict(self.obj) is None
        ):
            raise Unsupported(f"setting attribute {name!r} of {self.describe()}")
        if name in self._attrs and self._attrs[name] is None:
            raise Unsupported(f"setting attribute {name!r} again after deleting it")  # it would move to the end
        self.write(frame, name, value)

    def write(self, frame: Frame, name: str, value: Value) -> None:
        """Keep what an attribute is from now on."""
        frame.capture.effects.changed(self)
        if self.journal is not None:
            self.journal.add(Wrote(self, name, value))
        self._attrs[name] = value

    def delete_attribute(self, frame: Frame, name: str) -> None:
        """`del self.name`, or of an entry of the instance's dict."""
        written = name in self.attrs
        own = instance_dict(self.obj) or {}
        static = static_lookup(self.cls, name, None)
        slot = is_a(static, types.MemberDescriptorType)
        found = _in_slot(frame, static, self, name) if slot else self.instance_attribute(frame, name)
        if self.attrs.get(name, found) is None:
            said = name if slot else f"{native.type_name(self.cls)!r} object has no attribute {name!r}"
            raise frame.raised(AttributeError, said)
        frame.capture.effects.changed(self)
        if self.journal is not None:
            self.journal.add(Changed(self))
        if written and name not in own and not (slot and hasattr(self.obj, name)):
            del self.attrs[name]  # the real object never had it
        else:
            self.attrs[name] = None

    # ---- behaviour ----------------------------------------------------------------------------

    def special(self, frame: Frame, name: str) -> Value | None:
        """The special method `name` of the class (never the instance's), bound; None without one."""
        static = static_lookup(self.cls, name, _ABSENT)
        if static is None:
            raise Unsupported(f"{name} of {self.describe()}, which is None")
        frame.capture.effects.check_not_inherited(self.cls, name)
        return None if static is _ABSENT else bind_attribute(frame, static, self, self.cls, name)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        method = self.special(frame, "__call__")
        if method is None:
            raise frame.raised(TypeError, f"{native.type_name(self.cls)!r} object is not callable")
        return method.call(frame, args, kwargs)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Special methods, as operators and built-in functions call them; NotImplemented where the class has none."""
        method = self.special(frame, name)
        if method is None:
            if name in ("__eq__", "__ne__"):
                return ConstantValue(NotImplemented)
            raise frame.raised(TypeError, f"{native.type_name(self.cls)!r} object has no {name}")
        return frame.call(method, args, kwargs)

    def c_method(self, frame: Frame, name: str, static: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call_inherited(frame, self, name, static, args, kwargs)

    def truth(self, frame: Frame) -> bool:
        return truth_by_methods(frame, self)

    def iterator(self, frame: Frame) -> Value:
        method = self.special(frame, "__iter__")
        if method is None:
            if static_lookup(self.cls, "__getitem__", None) is None:
                raise frame.raised(TypeError, f"{native.type_name(self.cls)!r} object is not iterable")
            return SubscriptIterator(self)
        made = frame.call(method, [], {})
        if not isinstance(made, IteratorValue) and static_lookup(made.python_type(), "__next__", None) is None:
            raise Unsupported(f"iter() of {self.describe()} gives {made.describe()}, which is no iterator")
        return made

    def iterate(self, frame: Frame) -> Iterator[Value]:
        part = self.base
        if part is not None and static_lookup(self.cls, "__iter__") is static_lookup(part.python_type(), "__iter__"):
            return part.iterate(frame)
        return frame.drain(frame.get_iter(self))

    # ---- output -------------------------------------------------------------------------------

    def reconstruct(self, cg: Codegen) -> None:
        if module_of(self.cls).startswith(_MODELS):  # stands for an object written in C
            parts = [self.attrs[name] for name in self.cls.fields]  # type: ignore[attr-defined]
            cg.em.call_object(self.cls.rebuild, lambda: [cg.load(p) for p in parts if p is not None], len(parts))  # type: ignore[attr-defined]
            return

        def load() -> None:
            cg.em.load_object(self.cls)
            if isinstance(self.base, SetValue) and self.base.cls is frozenset:
                cg.load_plain(self.base)
            else:
                cg.load(self.base if isinstance(self.base, TupleValue) else NONE)

        cg.em.call_object(new_instance, load, 2)
        cg.capture.effects.changed(self)  # replay fills the attributes, so that cycles are possible

    def replay(self, cg: Codegen) -> None:
        if module_of(self.cls).startswith(_MODELS):
            return
        em = cg.em
        if (
            self.source is None
            and isinstance(self.base, (DictValue, ListValue, SetValue))
            and self.base.python_type() is not frozenset
        ):
            fill = {DictValue: fill_method(self.cls), ListValue: list.extend, SetValue: set.update}[type(self.base)]
            em.call_object(fill, lambda: (cg.load(self), cg.load_plain(self.base)), 2)
            em.pop()
            if isinstance(self.base, DictValue) and self.base.cls is defaultdict:
                cg.call_function(defaultdict.__dict__["default_factory"].__set__, self, self.base.default_factory)
                em.pop()
        if self.made_own_dict:
            cg.call_function(object.__setattr__, self, ConstantValue("__dict__"), self)
            em.pop()
        for name, value in self.attrs.items():
            if value is None:
                cg.call_function(object.__delattr__, self, ConstantValue(name))
            elif is_data_descriptor(static_lookup(self.cls, name, None), but=types.MemberDescriptorType):
                cg.load(value)  # it was written to the dict, past the descriptor
                self.load_dict(cg)
                em.load_object(name)
                em.op("STORE_SUBSCR")
                continue
            else:
                cg.call_function(object.__setattr__, self, ConstantValue(name), value)
            em.pop()


CYTHON_FUNCTION: Final = "cython_function_or_method"
"""As classes of functions are called that Cython compiles, which bind as those of Python do."""


def is_data_descriptor(static: Any, but: type | None = None) -> bool:
    """Whether what stands in a class comes before what stands in an instance; `but`: not if it is of this class."""
    cls = type(static)
    return cls is not but and (_has(cls, "__set__") or _has(cls, "__delete__"))


def answers_first(static: Any) -> bool:
    """Whether what stands in a class is asked before an instance's own attribute is read."""
    return is_data_descriptor(static) and _has(type(static), "__get__")


def _has(cls: type, name: str) -> bool:
    return static_lookup(cls, name, _ABSENT) is not _ABSENT


def check_ordinary(value: Value, method: Any, name: str) -> None:
    """Break where a class looks its attributes up by something that is neither a Python function nor what C classes
    have for it."""
    if not is_a(method, types.FunctionType) and not (
        is_a(method, types.WrapperDescriptorType) and method.__name__ == name
    ):
        raise Unsupported(f"{name} of {value.describe()}, which is a {type(method).__name__}")


def class_attribute(frame: Frame, value: Value, cls: type, name: str) -> Value:
    """Attribute `name` of class `cls`, bound to `value`."""
    static = static_lookup(cls, name, _ABSENT)
    if static is _ABSENT:
        raise frame.raised(AttributeError, f"{native.type_name(cls)!r} object has no attribute {name!r}")
    return bind_attribute(frame, static, value, cls, name)


def bind_attribute(
    frame: Frame, static: Any, value: Value | None, cls: type, name: str, where: type | None = None
) -> Value:
    """`static`, found under `name` in the MRO of `cls` (or of `where`), read through instance `value` or the class
    itself."""
    source = TypeLookupSource(const_source(where or cls), name)
    if is_a(static, types.FunctionType) or type(static).__name__ == CYTHON_FUNCTION:
        function = frame.wrap(static, source)
        return MethodValue(function, value) if value is not None else function
    if is_a(static, staticmethod):
        return frame.wrap(static.__func__, AttrSource(source, "__func__"))
    if is_a(static, classmethod):
        if not is_a(static.__func__, types.FunctionType) and (
            hasattr(type(static.__func__), "__get__") or not callable(static.__func__)
        ):
            # 3.12 and earlier bind what has a __get__; and no method can be made of what can't be called
            raise Unsupported(
                f"class method {name!r} of {cls.__qualname__}, which is a {type(static.__func__).__name__}"
            )
        owner = from_python(value.python_type() if value is not None else cls)
        function = frame.wrap(static.__func__, AttrSource(source, "__func__"))
        return MethodValue(function, owner)
    if is_a(static, types.ClassMethodDescriptorType):  # of a class written in C, which nobody changes
        if static in HANDLERS:
            return MethodValue(from_python(static), from_python(value.python_type() if value is not None else cls))
        return from_python(getattr(cls, name))
    if value is None:
        if is_a(static, _SLOT_TYPES):
            return frame.wrap(getattr(cls, name), source)
        getter = static_lookup(type(static), "__get__", None)
        if is_a(getter, types.FunctionType):
            return class_attribute(frame, frame.wrap(static, source), type(static), "__get__").call(
                frame, [NONE, from_python(cls)], {}
            )
        return frame.wrap(static, source)
    if is_a(static, property):
        if static.fget is None:
            raise frame.raised(AttributeError, f"property {name!r} of {cls.__qualname__!r} object has no getter")
        return frame.call(frame.wrap(static.fget, AttrSource(source, "fget")), [value], {})
    if is_a(static, functools.cached_property) and isinstance(value, ObjectValue):
        return _fill_cached_property(frame, static, value, source)
    if is_a(static, functools._lru_cache_wrapper):
        return MethodValue(frame.wrap(static, source), value)
    if is_a(static, _SLOT_TYPES):
        if not issubclass(value.python_type(), static.__objclass__):
            raise Unsupported(f"attribute {name!r} of {value.describe()}, which is a method of another class")
        return BuiltinMethodValue(value, name, static)
    if is_a(static, types.MemberDescriptorType):
        return _slot(frame, static, value, name)
    if type(static) is FieldGetter and isinstance(value, ObjectValue) and isinstance(value.base, TupleValue):
        return value.base.items[static.__reduce__()[1][0]]
    if is_a(static, types.GetSetDescriptorType):
        return _computed(frame, value, name)
    getter = static_lookup(type(static), "__get__", None)
    if is_a(getter, types.FunctionType):
        return class_attribute(frame, frame.wrap(static, source), type(static), "__get__").call(
            frame, [value, from_python(cls)], {}
        )
    if (
        getter is not None
        and not is_a(static, (types.BuiltinFunctionType, type))
        and not isinstance(static, FunctionValue)
    ):
        raise Unsupported(
            f"attribute {name!r} of {value.describe()} is a {type(static).__name__}, a descriptor written in C"
        )
    return frame.wrap(static, source)


def _fill_cached_property(frame: Frame, static: Any, value: ObjectValue, source: Source) -> Value:
    """The first read of a functools.cached_property: later ones find the instance attribute."""
    if static.attrname is None:
        raise Unsupported(f"a cached_property of {value.describe()} that has no name")
    if value.is_own_dict(frame):
        raise Unsupported(f"a cached_property of {value.describe()}, whose attributes are items")
    made = frame.call(frame.wrap(static.func, AttrSource(source, "func")), [value], {})
    frame.capture.effects.changed(value)
    value.attrs[static.attrname] = made
    return made


def _slot(frame: Frame, static: Any, value: Value, name: str) -> Value:
    """An entry of __slots__, or a member of a class written in C."""
    if isinstance(value, ObjectValue):
        found = _in_slot(frame, static, value, name)
        if found is None:
            named = full_name if sys.version_info >= (3, 13) else native.type_name
            raise frame.raised(AttributeError, f"{named(value.python_type())!r} object has no attribute {name!r}")
        return found
    if value.is_constant():  # a class, of which its metaclass tells
        obj = value.constant()
        return frame.wrap(static.__get__(obj), AttrSource(value.source or const_source(obj), name))
    raise Unsupported(f"attribute {name!r} of {value.describe()}")


def _in_slot(frame: Frame, static: Any, value: ObjectValue, name: str) -> Value | None:
    """What a slot of an instance holds; None where it is empty, which is guarded."""
    if name not in value.attrs and value.obj is not None and value.source is not None:
        try:
            return frame.wrap(static.__get__(value.obj), AttrSource(value.source, name))
        except AttributeError:
            frame.capture.add_guard(value.source, native.C_NO_ATTR, name)
    return value.attrs.get(name)


def _computed(frame: Frame, value: Value, name: str) -> Value:
    """An attribute a C type computes; read now and guarded by reading it again."""
    obj = getattr(value, "obj", None)
    if obj is None or value.source is None:
        raise Unsupported(f"attribute {name!r} of {value.describe()} made in the graph")
    if name == "__isabstractmethod__":
        raise Unsupported(f"attribute {name!r} of {value.describe()}, which asks what is inside")
    if _unpacks(type(obj), name):
        raise Unsupported(f"attribute {name!r} of {value.describe()}, which autograd unpacks for whoever asks", "FJ107")
    try:
        first, second = getattr(obj, name), getattr(obj, name)
    except AttributeError as e:
        raise frame.raised(AttributeError, str(e)) from None
    except Exception as e:  # of a memoryview that was released
        raise Unsupported(f"reading {name!r} of {value.describe()}, which raises {type(e).__name__}", "FJ161") from None
    found = frame.wrap(first, AttrSource(value.source, name))
    if first is second or found.symbolic or type(first) in (int, float):  # which may be left open
        return found
    if found.is_constant():
        return from_python(first)
    if type(first) is tuple and isinstance(found, TupleValue) and all(map(_is_same, first, second)):
        return TupleValue(found.items)
    # whoever reads it has an object of its own, which ends when it is let go of
    raise Unsupported(f"attribute {name!r} of {value.describe()}, which is a new object each time it is read")


def _unpacks(cls: type, name: str) -> bool:
    """Whether an attribute of a node of autograd's is what it has saved: hooks of the program's may be asked for it, as
    those of checkpoints are, which run the forward again."""
    return name == "saved_variables" or static_lookup(cls, f"_raw_{name.lstrip('_')}", None) is not None


def _is_same(first: Any, second: Any) -> bool:
    return first is second or is_constant_object(first)


# Methods of dict that an instance's __dict__ has by way of a copy: those that change nothing.
_READING = frozenset("""
    __getitem__ get __contains__ keys values items copy __len__ __iter__ __reversed__ __eq__ __ne__ __or__ __ror__
""".split())


class InstanceDictValue(Value):
    """`obj.__dict__` as a live view of the object's attributes."""

    mutable = True

    def __init__(self, owner: ObjectValue) -> None:
        self.owner = owner
        self.source = owner.dict_source()

    def python_type(self) -> type:
        return dict

    def children(self) -> Iterator[Value]:
        return iter((self.owner,))

    def dict_snapshot(self, frame: Frame) -> DictValue:
        return self.snapshot(frame)

    def snapshot(self, frame: Frame) -> DictValue:
        items: dict[Any, Value] = {}
        own = instance_dict(self.owner.obj)
        if own is not None and self.source is not None:
            frame.capture.add_guard(self.source, native.C_KEYS, tuple(own))
            items = {k: LazyValue(v, key_source(self.source, k)) for k, v in own.items()}
        for name, value in self.owner.attrs.items():
            if value is None:
                items.pop(name, None)
            else:
                items[name] = value
        return DictValue(items)

    def truth(self, frame: Frame) -> bool:
        return bool(self.snapshot(frame).items)

    def iterate(self, frame: Frame) -> Iterator[Value]:
        return self.snapshot(frame).iterate(frame)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        key = args[0].constant() if args and args[0].is_constant() else None
        if isinstance(key, str):
            if name in ("__getitem__", "get", "__contains__"):
                found = self.owner.instance_attribute(frame, key)
                if name == "__contains__":
                    return ConstantValue(found is not None)
                if found is not None:
                    return found
                if name == "__getitem__":
                    raise frame.raised(KeyError, args[0])
                return args[1] if len(args) > 1 else NONE
            if name in ("__setitem__", "setdefault", "pop", "__delitem__"):
                found = self.owner.instance_attribute(frame, key)
                if name == "setdefault" and found is not None:
                    return found
                if name in ("pop", "__delitem__"):
                    if found is not None:
                        self.owner.delete_attribute(frame, key)
                        return found if name == "pop" else NONE
                    if len(args) > 1:
                        return args[1]
                    raise frame.raised(KeyError, args[0])
                made = args[1] if len(args) > 1 else NONE
                self._write(frame, key, made)
                return made if name == "setdefault" else NONE
        if name == "update":
            taken = {**(pairs(frame, args[0]) if args else {}), **kwargs}
            for k, v in taken.items():
                self._write(frame, k, v)
            return NONE
        if name not in _READING:
            raise Unsupported(f"method {name!r} of the __dict__ of {self.owner.describe()}")
        return self.snapshot(frame).call_method(frame, name, args, kwargs)

    def _write(self, frame: Frame, key: Any, value: Value) -> None:
        owner = self.owner
        static = static_lookup(owner.cls, key, None) if type(key) is str else None
        if type(key) is not str or is_a(static, types.MemberDescriptorType) or owner.attrs.get(key, value) is None:
            raise Unsupported(f"writing {key!r} into the __dict__ of {owner.describe()}")
        owner.write(frame, key, value)

    def reconstruct(self, cg: Codegen) -> None:
        self.owner.load_dict(cg)
