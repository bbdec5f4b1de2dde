"""Looking at a user's object without running any of the user's code.

`isinstance(obj, cls)` reads `obj.__class__`, and `obj.__dict__` may be answered by `__getattribute__`; while capturing,
neither may happen, for the program itself did not ask.
"""
from __future__ import annotations

import enum
import gc
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from framejit import _native as native
from framejit.guards.plain_text import module_of
from framejit.guards.type_flags import IMMUTABLE

_QUALNAME = vars(type)["__qualname__"]
_DICT = vars(type)["__dict__"]
_MRO = vars(type)["__mro__"]

BUILTIN_TYPES = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)
"""The classes of functions and methods that are written in C."""


ANNOTATION_TYPES = (types.UnionType, types.GenericAlias, type(Callable[[], None]))
"""The classes of `int | str`, `list[int]` and `Callable[[int], str]`."""


def annotation_parts(annotation: Any) -> tuple[Any, ...]:
    """What an annotation consists of: what stands before its brackets, if it has any, and what stands in them."""
    own = () if type(annotation) is types.UnionType else (annotation.__origin__,)
    return (*own, *annotation.__args__)


def is_a(obj: Any, classes: type | tuple[type, ...]) -> bool:
    """Whether the type of `obj` derives from `classes`. An optimized function, which a class may have for a method, is
    a function."""
    cls = type(obj)
    return issubclass(types.FunctionType if cls is native.Dispatcher else cls, classes)


def full_name(cls: type) -> str:
    """A class's name as newer errors of CPython write it, about a key or an empty slot: its `%T`."""
    module = module_of(cls)
    return cls.__qualname__ if module in ("", "builtins", "__main__") else f"{module}.{cls.__qualname__}"


def qualified_name(cls: type) -> str:
    """A class's `__qualname__`, whatever its metaclass says."""
    return _QUALNAME.__get__(cls)


def is_of_torch(module: str | None) -> bool:
    """Whether a module of this name is one of torch's."""
    return module is not None and (module == "torch" or module.startswith("torch."))


def mro_of(cls: type) -> tuple[type, ...]:
    """A class's `__mro__`, whatever its metaclass says."""
    return _MRO.__get__(cls)


def instance_dict(obj: Any) -> dict[str, Any] | None:
    """The dict that holds an object's attributes, or None if it has none, or its class says itself what `__dict__` is,
    as proxies do."""
    if hides_dict(type(obj)):
        return None
    try:
        found = object.__getattribute__(obj, "__dict__")
    except (AttributeError, TypeError):
        return None
    return found if type(found) is dict else None


def hides_dict(cls: type) -> bool:
    """Whether a class of the program's says itself what `__dict__` is of its instances. A SimpleNamespace has a member
    of that name, which is C's."""
    said = next((names["__dict__"] for names in map(_DICT.__get__, mro_of(cls)) if "__dict__" in names), None)
    return said is not None and type(said) not in (types.GetSetDescriptorType, types.MemberDescriptorType)


def dict_behind(proxy: Any) -> Any:
    """The mapping that a mappingproxy shows."""
    return gc.get_referents(proxy)[0]


def namespace_of(obj: Any) -> Any:
    """The dict in which a function or class keeps its attributes."""
    return dict_behind(_DICT.__get__(obj)) if is_a(obj, type) else obj.__dict__


_IN_C = (*BUILTIN_TYPES, types.GetSetDescriptorType, types.MemberDescriptorType)
_NO_OPERATIONS = frozenset("""
    __new__ __init__ __call__ __prepare__ __init_subclass__ __set_name__ __class_getitem__ __mro_entries__
    __instancecheck__ __subclasscheck__ __getattr__ __setattr__ __delattr__
    __module__ __qualname__ __name__ __doc__ __dict__ __weakref__ __slots__ __classcell__ __classdictcell__
    __annotations__ __annotate__ __annotate_func__ __annotations_cache__ __type_params__ __firstlineno__
    __static_attributes__ __orig_bases__ __parameters__ __match_args__ __reduce_ex__ __reduce__ __new_member__
""".split())
"""What a metaclass or an enum may have without any operation on its classes or members meaning something else than on
others."""
_OF_MEMBERS = frozenset(("__call__", "__getattr__"))
"""Of these what says what calls and attributes of members are."""


def has_operators(cls: type) -> bool:
    """Whether the metaclass of a class gives it operators of the program's own: `len(cls)`, `cls + 1`, `cls == other`,
    `repr(cls)`."""
    meta = type(cls)
    return meta is not type and any(
        name[:2] == "__" and name not in _NO_OPERATIONS for name in _names_of_program(meta, type)
    )


def _names_of_program(cls: type, until: type) -> Iterator[str]:
    """The names that classes of the program's own define, of the bases of a class before one that is known. What is
    written in C runs none of its code."""
    for klass in mro_of(cls):
        if klass is until:
            break
        if is_class_of_program(klass):
            # enum puts functions of its own into the classes that it makes
            yield from (name for name, found in namespace_of(klass).items() if not _is_known(found))


def _is_known(found: Any) -> bool:
    """Whether what stands in a class of the program is code of Python's or torch's."""
    return is_a(found, _IN_C) or is_a(found, types.FunctionType) and not is_of_program(found.__module__)


def is_of_program(module: str | None) -> bool:
    """Whether a module of this name is neither torch's nor of the standard library."""
    root = (module or "").partition(".")[0]
    return root != "torch" and (root == "__main__" or root not in sys.stdlib_module_names)


def is_class_of_program(cls: type) -> bool:
    """Whether a class is neither torch's nor of the standard library. Of class statements in globals without a
    `__name__`, as in code that `exec` runs, classes find that of the module `builtins`, all of whose own are C's."""
    module = module_of(cls)
    return is_of_program(module) or module == "builtins" and not cls.__flags__ & IMMUTABLE


def member_has_operators(member: enum.Enum) -> bool:
    """Whether operations on a member of an enum run code of the program's own."""
    return any(name[:2] == "__" and name not in _NO_OPERATIONS for name in _names_of_program(type(member), enum.Enum))


def member_has_code(member: enum.Enum) -> bool:
    """Whether an enum has methods or properties of the program's own, or the member attributes."""
    cls = type(member)
    names = {*_names_of_program(cls, enum.Enum), *(instance_dict(member) or ())}
    known = namespace_of(cls).get("_member_map_", {})
    return any(
        name not in known and (name in _OF_MEMBERS or not (name[:1] == "_" and name[-1:] == "_")) for name in names
    ) or member_has_operators(member)


def runs_code(obj: Any) -> bool:
    """Whether operations on a constant, or on a part of one, run code of the program's own."""
    if is_a(obj, (tuple, frozenset)):
        return any(map(runs_code, obj))
    if type(obj) in ANNOTATION_TYPES:
        return any(map(runs_code, annotation_parts(obj)))
    return has_operators(obj) if is_a(obj, type) else is_a(obj, enum.Enum) and member_has_operators(obj)


def compares_itself(meta: type) -> bool:
    """Whether code of the program tells classes of this metaclass apart, which then must not stand in any table of
    framejit's."""
    if meta is type or is_of_torch(module_of(meta)):
        return False
    return any(
        is_a(namespace_of(klass).get(name), types.FunctionType)
        for klass in mro_of(meta)
        for name in ("__eq__", "__hash__")
    )
