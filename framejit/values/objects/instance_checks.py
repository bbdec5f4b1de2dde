"""`isinstance` and `issubclass`: the metaclass of the class is asked, as Python asks it
(https://docs.python.org/3/reference/datamodel.html#customizing-instance-and-subclass-checks)."""

from __future__ import annotations

import abc
import types
import typing
from typing import TYPE_CHECKING, Any

import torch

from framejit.guards.plain_text import module_of
from framejit.guards.sources import static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value, is_user_object
from framejit.values.inspection import is_a
from framejit.values.sym_number import SymNumberValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Frame

# Classes of these modules answer __subclasshook__ by the class that is asked about alone.
_STANDARD_HOOKS = frozenset("""
    _collections_abc collections.abc abc numbers os contextlib io importlib typing builtins
""".split())
_Alias: Any = type(typing.Sequence)
_Union: Any = type(typing.Union[int, str])  # noqa: UP007
"""The classes of `typing.Sequence` and its like, which stand for a class, and of unions; the latter is, from CPython
3.14 on, that of `int | str`."""


def of_typing(obj: Any) -> bool:
    """Whether an object is an alias or a union of `typing`."""
    return isinstance(obj, (_Alias, _Union))


def is_instance(frame: Frame, value: Value, target: Any) -> bool:
    """`isinstance(value, target)`. Raises TypeError as isinstance does."""
    if isinstance(target, (tuple, types.UnionType, _Union)):
        return any(is_instance(frame, value, t) for t in (target if isinstance(target, tuple) else target.__args__))
    if isinstance(target, _Alias):
        return is_subclass(frame, value.python_type(), target.__origin__)
    if value.python_type() is target:
        return True
    frame.capture.guard_bases(value.python_type())
    if value.is_constant() and not _has_own_check(target):
        _refuse_user_checks(target)
        # of a number that is not assumed only the type is known
        known = type(value.value)() if isinstance(value, SymNumberValue) else value.constant()
        return _noted(frame, type(known), target, isinstance(known, target))
    check = static_lookup(type(target), "__instancecheck__", None)
    if not is_a(target, type) and check is not None and module_of(type(target)) == "typing":
        return _has_protocol(frame, value, target)  # an alias such as typing.List, which looks at the class
    if check is type.__instancecheck__ or not is_a(target, type):
        return by_type(value, target)
    if check is abc.ABCMeta.__instancecheck__:
        _refuse_other_class(value)
        return is_subclass(frame, value.python_type(), target)
    if module_of(type(target)) in ("typing", "typing_extensions"):
        return _has_protocol(frame, value, target)
    if is_a(check, types.FunctionType):
        return _ask(frame, target, "__instancecheck__", value)
    return _by_example(value, target)


def _has_own_check(target: Any) -> bool:
    """Whether the metaclass of a class has an `__instancecheck__` of the program's own."""
    meta = type(target)
    return is_a(static_lookup(meta, "__instancecheck__", None), types.FunctionType) and module_of(meta) not in (
        "abc", "typing", "typing_extensions",
    )


def is_subclass(frame: Frame, cls: Any, target: Any) -> bool:
    """`issubclass(cls, target)`."""
    if isinstance(target, (tuple, types.UnionType, _Union)):
        return any(is_subclass(frame, cls, t) for t in (target if isinstance(target, tuple) else target.__args__))
    if isinstance(target, _Alias) and is_a(cls, type):
        target = target.__origin__
    if is_a(cls, type) and cls is not target:
        frame.capture.guard_bases(cls)
    check = static_lookup(type(target), "__subclasscheck__", None)
    if check is abc.ABCMeta.__subclasscheck__:
        _refuse_user_checks(target)
    elif is_a(check, types.FunctionType) and module_of(type(target)) not in ("typing", "typing_extensions"):
        return _ask(frame, target, "__subclasscheck__", from_python(cls))
    return _noted(frame, cls, target, issubclass(cls, target))


def _noted(frame: Frame, cls: type, target: Any, answer: bool) -> bool:
    """What abstract classes and protocols say of other classes changes with what is registered for them."""
    if static_lookup(type(target), "__subclasscheck__", None) is type.__subclasscheck__:
        return answer  # which the bases give
    if is_a(target, type):
        frame.capture.guard_relation(cls, target, answer)
    else:
        frame.capture.assumed.holds_only_here(f"isinstance() with {target}")
    return answer


def _ask(frame: Frame, target: type, name: str, argument: Value) -> bool:
    return frame.truth(frame.call(frame.class_attribute(from_python(target), type(target), name), [argument], {}))


def by_type(value: Value, target: Any) -> bool:
    """Whether the value's class derives from the target, as `type.__instancecheck__` finds, the
    metaclass aside."""
    if is_a(target, type):
        if target in value.python_type().__mro__:
            return True
        _refuse_other_class(value)
        return False
    return isinstance(None, target)  # raises for what is no class; True for those special forms that take anything


def _refuse_other_class(value: Value) -> None:
    if is_user_object(value) and (value.claims_another_class() or value.asks_program()):
        raise Unsupported(f"isinstance() of {value.describe()}, which may claim to be of another class")


def _refuse_user_checks(target: Any) -> None:
    """The program's own hooks below an abstract class are nothing to be called while capturing."""
    if isinstance(target, abc.ABCMeta):
        if static_lookup(target, "__subclasses__", None) is not None:
            raise Unsupported(f"isinstance() with {target.__qualname__}, whose __subclasses__ is the program's own")
        hook = static_lookup(target, "__subclasshook__")
        owner = getattr(getattr(hook, "__func__", None), "__module__", "builtins")
        if owner not in _STANDARD_HOOKS and not owner.startswith("torch"):
            raise Unsupported(f"isinstance() with {target.__qualname__}, whose __subclasshook__ is the program's own")


def _has_protocol(frame: Frame, value: Value, target: Any) -> bool:
    """Protocols look at the attributes of the very object, too: only what its class has is known without it."""
    is_protocol = getattr(target, "_is_protocol", False)
    if not is_protocol:
        isinstance(None, target)  # what refuses to be asked, such as a typed dict, raises in the words of isinstance
    try:
        if _noted(frame, value.python_type(), target, issubclass(value.python_type(), target)):
            return True
    except TypeError:
        if (
            not is_protocol
            or not getattr(target, "_is_runtime_protocol", True)
            or typing.get_origin(target) is not None
        ):
            isinstance(None, target)  # protocols, too
            raise
    if not is_protocol:
        _refuse_other_class(value)
        return False
    raise Unsupported(f"isinstance() with {target.__qualname__}, which looks at the attributes of {value.describe()}")


def _by_example(value: Value, target: Any) -> bool:
    """A check written in C: torch's classes of tensors by dtype and device."""
    tensor = value.identity()
    if isinstance(tensor, torch.Tensor) and module_of(type(target)) == "torch":
        return isinstance(tensor, target)
    if module_of(type(target)) == "torch":
        return False
    raise Unsupported(f"isinstance() with {target.__qualname__}, whose metaclass has its own check")
