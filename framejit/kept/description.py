"""What is said of an object of one process, so that one of another process can be told to be the same.

Said is what never changes while the object lives, and so is taken for granted when it was looked at: the code of a
function, the methods that a property is made of, the bases of a class. What can change is guarded, in this process as
in any other, and not said. Nothing of the program's own runs to describe an object.
"""

from __future__ import annotations

import enum
import functools
import random
import re
import struct
from collections import OrderedDict, defaultdict, deque
from types import (
    BuiltinFunctionType,
    BuiltinMethodType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any, Final

import numpy
import torch
from torch.torch_version import TorchVersion

from framejit import _native as native
from framejit.guards.plain_text import class_name
from framejit.guards.type_flags import HEAP_TYPE, IMMUTABLE
from framejit.kept import plain_values
from framejit.kept.code_hash import code_hash
from framejit.kept.not_kept import NotKept

_NAME, _MRO, _BASE, _DICT, _FLAGS, _SIZE = (
    vars(type)[name].__get__
    for name in ("__qualname__", "__mro__", "__base__", "__dict__", "__flags__", "__basicsize__")
)
_POINTER: Final = struct.calcsize("P")
IN_C: Final = (
    BuiltinFunctionType, BuiltinMethodType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType,
    ClassMethodDescriptorType, GetSetDescriptorType, MemberDescriptorType,
)
_PARTS: Final[dict[type, tuple[str, ...]]] = {
    property: ("fget", "fset", "fdel"), staticmethod: ("__func__",), classmethod: ("__func__",),
    functools.cached_property: ("func", "attrname"), MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args"), re.Pattern: ("pattern", "flags"),
}
"""For classes whose instances consist of parts that never change, which these are."""
_OPEN: Final = (list, dict, set, bytearray, OrderedDict, defaultdict, deque, SimpleNamespace, torch._C.TensorBase)
"""Classes written in C whose instances hold nothing but what can change, or, of tensors, is never assumed."""
_LATE: Final = frozenset("""
    __slotnames__ __annotations__ __annotations_cache__ __annotate__ __annotate_func__ __doc__ __dict__ __weakref__
    __abstractmethods__ __parameters__ __orig_bases__ __firstlineno__ __static_attributes__ __type_params__
""".split())
"""Special names that Python puts into classes as it goes, or that no operation looks up."""
_OWN: Final = "_framejit_"
_DEEPEST: Final = 8

Description = tuple[Any, ...]
OF_MODULES: Final = {random._inst: ("random", "_inst"), numpy.random.mtrand._rand: ("numpy.random.mtrand", "_rand")}
"""The generators of random numbers whose methods a module's functions are, and by which name it has them."""


def is_of_cython(kind: type) -> bool:
    """Whether a class is that of functions which Cython compiles, each of which says in what module it is."""
    return _NAME(kind) == "cython_function_or_method" and type(_DICT(kind).get("__module__")) in IN_C


class Describer:
    """Describes objects, each once: it holds them, so that ids stay theirs."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Description]] = {}
        self._names: dict[type, tuple[str, ...]] = {}

    def __call__(self, obj: Any, depth: int = 0) -> Description:
        """The description of an object: tuples, text, numbers and bytes. Raises NotKept for an object of which it is
        not known what never changes."""
        known = self._known.get(id(obj))
        if known is None:
            if depth > _DEEPEST:
                raise NotKept("an object that consists of others too deep down")
            known = self._known[id(obj)] = obj, self._described(obj, depth + 1)
        return known[1]

    def _described(self, obj: Any, depth: int) -> Description:
        kind = type(obj)
        if kind is FunctionType:
            return self._function(obj, depth)
        if kind is CodeType:
            return "code", self._code(obj)
        if issubclass(kind, type):
            return self._class(obj)
        if issubclass(kind, ModuleType):
            return "module", str(object.__getattribute__(obj, "__dict__").get("__name__"))
        if issubclass(kind, IN_C):
            return self._in_c(obj)
        if kind is tuple and obj and all(issubclass(type(part), type) for part in obj):
            return "classes", *(self._class(cls) for cls in obj)
        if kind in _PARTS:
            parts = [getattr(obj, name) for name in _PARTS[kind]]
            return kind.__name__, *(self._part(part, depth) for part in parts)
        if kind is functools._lru_cache_wrapper:  # what it holds is guarded where it is looked at
            function, typed, _, most, _ = native.lru_cache_settings(obj)
            return "cached function", typed, most, self(function, depth)
        if kind is type(numpy.concatenate):
            return "function of numpy", str(obj.__module__), obj.__qualname__, self(obj._implementation, depth)
        if is_of_cython(kind):
            return "function in Cython", str(obj.__module__), obj.__qualname__
        if kind is numpy.ufunc:
            return "ufunc", obj.__name__, *obj.types
        if issubclass(kind, enum.Enum):
            held = object.__getattribute__(obj, "__dict__")
            return "member", class_name(kind), str(held.get("_name_")), self._part(held.get("_value_"), depth)
        if any(obj is generator for generator in OF_MODULES):  # what it gives is no matter of the entry's
            return "generator of a module", class_name(kind)
        if kind is TorchVersion:
            return "version of torch", str(obj)
        try:
            return "constant", repr(plain_values.written(obj))
        except NotKept:
            return self._instance(obj)

    def _instance(self, obj: Any) -> Description:
        kind = type(obj)
        for cls in _MRO(kind):
            if cls not in _OPEN and _SIZE(cls) - _SIZE(_BASE(cls) or cls) > self._size_of_slots(cls):
                raise NotKept(f"an object of type {class_name(kind)}, whose content no guard tells")
        most = deque.maxlen.__get__(obj) if issubclass(kind, deque) else None
        return "instance", most, *self._class(kind)

    def _size_of_slots(self, cls: type) -> int:
        """How many bytes a class adds to instances for what can be read as attributes. What is written in C adds more,
        if anything."""
        if not _FLAGS(cls) & HEAP_TYPE or _FLAGS(cls) & IMMUTABLE:
            return 0
        held = _DICT(cls)
        slots = sum(type(value) is MemberDescriptorType for value in list(held.values()))
        return _POINTER * (slots + ("__dict__" in held) + ("__weakref__" in held))

    def _part(self, part: Any, depth: int) -> Description:
        if type(part) is tuple:
            return "parts", *(self._part(each, depth) for each in part)
        return self(part, depth)

    def _function(self, fn: FunctionType, depth: int) -> Description:
        marks = sorted(name for name in fn.__dict__ if name.startswith(_OWN))
        return (
            "function", str(fn.__module__), fn.__qualname__, str(dict.get(fn.__globals__, "__name__")),
            self._code(fn.__code__), self._default(fn.__defaults__ or ()),
            *((name, self._default(value)) for name, value in (fn.__kwdefaults__ or {}).items()), *marks,
        )

    def _default(self, value: Any) -> Any:
        """A default argument; where captured code looks at one, guards say more."""
        if type(value) is tuple:
            return tuple(map(self._default, value))
        try:
            return repr(plain_values.written(value))
        except NotKept:
            return class_name(type(value)), value.__qualname__ if type(value) is FunctionType else ""

    def _code(self, code: CodeType) -> bytes:
        try:
            return code_hash(code)
        except ValueError:
            raise NotKept(f"the code of {code.co_qualname}, which has constants that no compiler makes") from None

    def _class(self, cls: type) -> Description:
        flags = _FLAGS(cls) & (HEAP_TYPE | IMMUTABLE)
        bases = (*_MRO(cls), *_MRO(type(cls)))
        return "class", flags, _SIZE(cls), *((class_name(base), *self._special_names(base)) for base in bases), *(
            self._fixed(cls)
        )

    def _fixed(self, cls: type) -> Description:
        """What of enums, named tuples and abstract classes is taken to stay as it is."""
        if issubclass(type(cls), enum.EnumMeta):
            members: dict[str, enum.Enum] = _DICT(cls).get("_member_map_", {})  # aliases, too
            return tuple((name, self(member)) for name, member in members.items())
        if tuple in _MRO(cls) and "_field_defaults" in _DICT(cls):
            held = _DICT(cls)
            return self._default(held.get("_fields")), *(
                (name, self._default(value)) for name, value in held["_field_defaults"].items()
            )
        abstract = _DICT(cls).get("__abstractmethods__")
        return tuple(sorted(abstract)) if type(abstract) is frozenset else ()

    def _special_names(self, cls: type) -> tuple[str, ...]:
        """Which operations a class says something about: capture looks for code of the program's own among them."""
        if not _FLAGS(cls) & HEAP_TYPE or _FLAGS(cls) & IMMUTABLE:
            return ()
        known = self._names.get(cls)
        if known is None:
            names = {name for name in _DICT(cls) if type(name) is str and name[:2] == name[-2:] == "__"}
            known = self._names[cls] = tuple(sorted(names - _LATE))
        return known

    def _in_c(self, obj: Any) -> Description:
        owner: Any = getattr(obj, "__objclass__", None)
        if owner is None:
            owner = getattr(obj, "__self__", None)
        of = class_name(owner) if issubclass(type(owner), type) else class_name(type(owner))
        if issubclass(type(owner), ModuleType):
            of = f"module {owner.__name__}"
        return type(obj).__name__, str(getattr(obj, "__module__", None)), str(getattr(obj, "__qualname__", None)), of
