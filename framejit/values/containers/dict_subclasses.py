"""Methods that subclasses of dict, OrderedDict and defaultdict inherit from them: those that see the subclass, and call
its own methods."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING

from framejit.guards.sources import static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.mapping import DictValue, dict_part
from framejit.values.inspection import is_a
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Frame
    from framejit.values.objects.user_object import ObjectValue

_ITEM_METHODS = ("__getitem__", "__setitem__", "__delitem__", "__contains__")


def dict_method(frame: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A method of `dict` and its kin, called on an instance of a subclass written in Python."""
    base = owner.base
    assert isinstance(base, DictValue)
    if name == "__getitem__":
        return base.getitem(frame, args[0], owner)
    if name == "__init__":
        return _init(frame, owner, base, args, kwargs)
    if base.cls is OrderedDict:
        special = _ordered(frame, owner, base, name, args, kwargs)
    else:
        special = _default(frame, owner, base, name, args) if base.cls is defaultdict else None
    if special is not None:
        return special
    found = base.call_method(frame, name, args, kwargs)
    return owner if found is base else found


def _init(frame: Frame, owner: ObjectValue, base: DictValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if base.cls is defaultdict:
        base.set_factory(frame, args[0] if args else NONE)
        args = args[1:]
    if base.cls is OrderedDict:
        if len(args) > 1:
            raise frame.raised(TypeError, f"expected at most 1 arguments, got {len(args)}")
        update_ordered(frame, owner, args, kwargs)
    else:
        base.update(frame, args, kwargs)
    return NONE


def has_own_items(owner: ObjectValue) -> bool:
    """Whether the subclass has its own way of reading or writing an item."""
    return any(is_a(static_lookup(owner.cls, name, None), types.FunctionType) for name in _ITEM_METHODS)


def update_ordered(frame: Frame, owner: Value, args: list[Value], kwargs: dict[str, Value]) -> None:
    """OrderedDict.update, which sets items by the `__setitem__` of the class."""
    table = dict_part(owner)
    assert table is not None
    if table is owner or not has_own_items(owner):  # type: ignore[arg-type]
        table.update(frame, args, kwargs)
        return
    pairs = DictValue({}, cls=OrderedDict)
    pairs.update(frame, args, kwargs)
    if any(isinstance(k, Value) for k in pairs.items):
        raise Unsupported("an OrderedDict of objects, updated through a __setitem__ of its own")
    for key, value in pairs.keys_and_values():
        frame.call_special(owner, "__setitem__", [key, value], "does not support item assignment")


def _same_kind(frame: Frame, owner: ObjectValue, args: list[Value]) -> Value:
    return frame.call(from_python(owner.cls), args, {})


def _ordered(
    frame: Frame, owner: ObjectValue, base: DictValue, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    if name == "update":
        update_ordered(frame, owner, args, kwargs)
        return NONE
    if name == "__ior__":
        update_ordered(frame, owner, args, {})
        return owner
    if name in ("__or__", "__ror__"):
        if base.other_dict(args[0]) is None:
            return ConstantValue(NotImplemented)
        first, second = (owner, args[0]) if name == "__or__" else (args[0], owner)
        made = _same_kind(frame, owner, [first])
        update_ordered(frame, made, [second], {})
        return made
    if name == "copy" or (has_own_items(owner) and name in ("setdefault", "pop", "popitem", "__reversed__")):
        if name != "copy" or has_own_items(owner):
            raise Unsupported(f"{name}() of a subclass of OrderedDict that reads or writes items in its own way")
        made = _same_kind(frame, owner, [])
        update_ordered(frame, made, [base], {})
        return made
    return None


def _default(frame: Frame, owner: ObjectValue, base: DictValue, name: str, args: list[Value]) -> Value | None:
    if name in ("copy", "__copy__"):
        return _same_kind(frame, owner, [base.default_factory, owner])
    if name in ("__or__", "__ror__"):
        if base.other_dict(args[0]) is None:
            return ConstantValue(NotImplemented)
        first, second = (owner, args[0]) if name == "__or__" else (args[0], owner)
        if first is owner:
            made = frame.call(owner.getattr(frame, "copy"), [], {})
        else:
            made = _same_kind(frame, owner, [base.default_factory, first])
        part = dict_part(made)
        if part is None:
            raise Unsupported("copy() of a subclass of defaultdict that gives something else")
        part.update(frame, [second], {})
        return made
    if name == "__missing__":
        return base.missing(frame, args[0], owner)
    return None
