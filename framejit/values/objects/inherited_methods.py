"""Methods written in C that an instance of a Python class inherits: those of `object`, and those of its built-in
part."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.plain_text import module_of
from framejit.guards.sources import CallSource, static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue, is_not_implemented
from framejit.values.containers.dict_subclasses import dict_method
from framejit.values.containers.lists import ListValue
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.sets import SetValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import fold
from framejit.values.inspection import is_a

if TYPE_CHECKING:
    from framejit.values.context import Frame
    from framejit.values.objects.user_object import ObjectValue

# Methods that need real Python semantics (not call_method of the container part) on instances.
_OBJECT_METHODS = frozenset(
    """
        __setattr__ __delattr__ __getattribute__ __init__ __new__ __init_subclass__ __hash__ __reduce__ __reduce_ex__
        __format__ __str__ __repr__ __sizeof__ __dir__
    """.split()
)
_AS_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__, bytes: bytes.__bytes__, int: int.__int__, float: float.__float__,
}
"""What an instance of a subclass is as text or number, whatever its own methods say."""

_NOT_ORDERED = [vars(object)[f"__{name}__"] for name in ("lt", "le", "gt", "ge")]

KnownMethod = Callable[["Frame", "ObjectValue", str, "list[Value]", "dict[str, Value]"], Value]
KNOWN_METHODS: dict[type, KnownMethod] = {}
"""By the class of an existing object that never changes, what calls its methods."""


def call_inherited(
    frame: Frame, owner: ObjectValue, name: str, static: Any, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Call method `name`, which is `static` where the class has it from."""
    method = _OF_OBJECT.get(name)
    if method is not None:
        return method(frame, owner, static, args, kwargs)
    if owner.base is not None and name not in _OBJECT_METHODS and getattr(static, "__objclass__", None) is not object:
        return _of_part(frame, owner, owner.base, name, args, kwargs)
    if name == "__ne__" and static is object.__ne__:
        return unequal_as_not_equal(frame, owner, args)
    if name == "__eq__" and static is object.__eq__:
        return ConstantValue(frame.same(owner, args[0]) or NotImplemented)
    if any(static is ordering for ordering in _NOT_ORDERED):
        return ConstantValue(NotImplemented)
    if name == "__hash__" and static is object.__hash__:
        raise Unsupported("hash() of an object, which depends on its address")
    kind = next((k for k in _AS_PLAIN if is_a(owner.obj, k) and vars(k).get(name) is static), None)
    if kind is not None and owner.source is not None:
        plain = _AS_PLAIN[kind](owner.obj)
        frame.capture.add_guard(CallSource(owner.source, _AS_PLAIN[kind]), native.C_EQUALS, plain)
        if name == "__iter__" or args and not args[0].is_constant():
            return ConstantValue(plain).call_method(frame, name, args, kwargs)
        found = fold(frame, static, [ConstantValue(plain), *args], kwargs)
        named = dict(zip(kwargs, frame.constants([*kwargs.values()])))
        return _with_owner(owner, found, static(owner.obj, *frame.constants(args), **named))
    if owner.obj is not None and not owner.attrs:
        return _of_existing(frame, owner, name, args, kwargs)
    raise Unsupported(f"method {name!r} of {owner.describe()} is written in C", "FJ111")


def unequal_as_not_equal(frame: Frame, owner: Value, args: list[Value]) -> Value:
    """`object.__ne__`: what the `__eq__` of an object's class does not say."""
    equal = owner.call_method(frame, "__eq__", args, {})
    return equal if is_not_implemented(equal) else ConstantValue(not frame.truth(equal))


def _with_owner(owner: ObjectValue, found: Value, given: Any) -> Value:
    """What a method of a text or number gives, `found` of a plain one: most give a plain one, but a text that nothing
    is put into, or that is not parted, is given back as it is."""
    if given is owner.obj:
        return owner
    if type(given) in (tuple, list) and any(part is owner.obj for part in given):
        parts: list[Value] = [owner if part is owner.obj else ConstantValue(part) for part in given]
        return TupleValue(parts) if type(given) is tuple else ListValue(parts)
    return found


def _of_part(
    frame: Frame, owner: ObjectValue, part: Value, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """A method of the built-in part of an instance; what gives the part itself gives the instance."""
    if isinstance(part, DictValue):
        return dict_method(frame, owner, name, args, kwargs)
    found = part.call_method(frame, name, args, kwargs)
    if found is not part:
        return found
    return part.frozen() if isinstance(part, SetValue) and part.cls is frozenset else owner


def _of_existing(frame: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    known = KNOWN_METHODS.get(owner.cls)
    if known is not None:
        return known(frame, owner, name, args, kwargs)
    if module_of(owner.cls).partition(".")[0] == "numpy":
        what = (
            f"{owner.obj.__name__}()"
            if name == "__call__" and hasattr(owner.obj, "__name__")
            else f"{name!r} of {owner.describe()}"
        )
        raise Unsupported(
            f"numpy's {what} works on arrays in memory, which are no part of a graph",
            "FJ105",
            "use torch operations in place of numpy's",
        )
    raise written_in_c(owner, name)


def written_in_c(owner: Value, name: str) -> Unsupported:
    """The graph break for a method of which only C knows what it does."""
    return Unsupported(
        f"method {name!r} of {owner.describe()} is written in C",
        "FJ111",
        "call it before the function, and pass in what it gives",
    )


# ---- methods of object --------------------------------------------------------------------------


def _set_attribute(frame: Frame, owner: ObjectValue, static: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    owner.generic_setattr(frame, args[0].constant(), args[1])
    return NONE


def _delete_attribute(
    frame: Frame, owner: ObjectValue, static: Any, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    owner.generic_setattr(frame, args[0].constant(), None)
    return NONE


def _get_attribute(frame: Frame, owner: ObjectValue, static: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return owner.generic_getattr(frame, args[0].constant())


def _initialize(frame: Frame, owner: ObjectValue, static: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if owner.source is not None and static is not object.__init__:
        raise Unsupported(f"initializing {owner.describe()} again")
    if static is object.__init__ and (args or kwargs):
        if static_lookup(owner.cls, "__init__") is not static or static_lookup(owner.cls, "__new__") is object.__new__:
            raise Unsupported(f"object.__init__() of {owner.describe()} takes no arguments", "FJ112")
    elif static is types.SimpleNamespace.__init__:
        if args:
            raise Unsupported("types.SimpleNamespace() of a mapping")
        for key, value in kwargs.items():
            owner.generic_setattr(frame, key, value)
    elif isinstance(owner.base, DictValue):
        return dict_method(frame, owner, "__init__", args, kwargs)
    elif isinstance(owner.base, SetValue) and owner.base.cls is set:
        owner.base.call_method(frame, "__init__", args, kwargs)
    elif isinstance(owner.base, ListValue) and (args or kwargs or owner.base.items):
        owner.base.call_method(frame, "clear", [], {})
        if args or kwargs:
            owner.base.call_method(frame, "extend", args, kwargs)
    return NONE


_OF_OBJECT: dict[str, Callable[[Frame, ObjectValue, Any, list[Value], dict[str, Value]], Value]] = {
    "__setattr__": _set_attribute,
    "__delattr__": _delete_attribute,
    "__getattribute__": _get_attribute,
    "__init__": _initialize,
    "__init_subclass__": _initialize,
}
