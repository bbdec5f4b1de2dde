"""Looking at a user's object without running any of the user's code.

`isinstance(obj, cls)` reads `obj.__class__`, and `obj.__dict__` may be answered by `__getattribute__`; while capturing,
neither may happen, for the program itself did not ask.
"""
from __future__ import annotations

import gc
import types
from typing import Any

from framejit.guards.type_flags import HEAP_TYPE

_MODULE = vars(type)["__module__"]
_QUALNAME = vars(type)["__qualname__"]
_DICT = vars(type)["__dict__"]
_MRO = vars(type)["__mro__"]

BUILTIN_TYPES = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)
"""The classes of functions and methods that are written in C."""


def is_a(obj: Any, classes: type | tuple[type, ...]) -> bool:
    """Whether the type of `obj` derives from `classes`."""
    return issubclass(type(obj), classes)


def module_of(cls: type) -> str:
    """The module that a class says it is of, whatever its metaclass says."""
    found = _MODULE.__get__(cls)
    return found if isinstance(found, str) else ""


def qualified_name(cls: type) -> str:
    """A class's `__qualname__`, whatever its metaclass says."""
    return _QUALNAME.__get__(cls)


def is_of_torch(module: str | None) -> bool:
    """Whether a module of this name is one of torch's."""
    return module is not None and (module == "torch" or module.startswith("torch."))


def type_name(cls: type) -> str:
    """The name that messages give to a class: classes written in C have their module in it."""
    made_in_c = not cls.__flags__ & HEAP_TYPE or isinstance(cls.__dict__.get("__new__"), types.BuiltinFunctionType)
    return f"{module_of(cls)}.{cls.__qualname__}" if made_in_c and module_of(cls) != "builtins" else cls.__name__


def instance_dict(obj: Any) -> dict[str, Any] | None:
    """The dict that holds an object's attributes, or None if it has none."""
    try:
        found = object.__getattribute__(obj, "__dict__")
    except (AttributeError, TypeError):
        return None
    return found if type(found) is dict else None


def dict_behind(proxy: Any) -> Any:
    """The mapping that a mappingproxy shows."""
    return gc.get_referents(proxy)[0]


def namespace_of(obj: Any) -> Any:
    """The dict in which a function or class keeps its attributes."""
    return dict_behind(_DICT.__get__(obj)) if is_a(obj, type) else obj.__dict__


_NO_OPERATIONS = frozenset("""
    __new__ __init__ __call__ __prepare__ __init_subclass__ __set_name__ __class_getitem__ __mro_entries__
    __instancecheck__ __subclasscheck__ __getattr__ __setattr__ __delattr__
    __module__ __qualname__ __name__ __doc__ __dict__ __weakref__ __slots__ __classcell__ __classdictcell__
    __annotations__ __annotate__ __annotate_func__ __annotations_cache__ __type_params__ __firstlineno__
    __static_attributes__ __orig_bases__ __parameters__
""".split())
"""What a metaclass may have without any operation on its classes meaning something else than on others."""
_KNOWN_METACLASSES = ("abc", "enum", "typing", "typing_extensions", "ctypes", "_ctypes")


def has_operators(cls: type) -> bool:
    """Whether the metaclass of a class gives it operators of the program's own: `len(cls)`, `cls + 1`, `cls == other`,
    `repr(cls)`."""
    meta = type(cls)
    if meta is type:
        return False
    for klass in _MRO.__get__(meta):
        if klass is type:
            break
        module = module_of(klass)
        if module in _KNOWN_METACLASSES or is_of_torch(module):
            continue
        if any(name[:2] == "__" and name not in _NO_OPERATIONS for name in namespace_of(klass)):
            return True
    return False


def compares_itself(meta: type) -> bool:
    """Whether code of the program tells classes of this metaclass apart, which then must not stand in any table of
    framejit's."""
    if meta is type:
        return False
    return any(
        is_a(namespace_of(klass).get(name), types.FunctionType)
        for klass in _MRO.__get__(meta)
        for name in ("__eq__", "__hash__")
    )
