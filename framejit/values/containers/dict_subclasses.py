"""Methods that subclasses of dict, OrderedDict and defaultdict inherit from them: those that see the subclass, and call its own methods."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING

from framejit.guards.sources import static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.mapping import DictValue, dict_part

if TYPE_CHECKING:
    from framejit.values.context import Frame
    from framejit.values.objects.user_object import ObjectValue

_ITEM_METHODS = ("__getitem__", "__setitem__", "__delitem__", "__contains__")


def dict_method(tx: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A method of `dict` and its kin, called on an instance of a subclass written in Python."""
    base = owner.base
    assert isinstance(base, DictValue)
    if name == "__getitem__":
        return base.getitem(tx, args[0], owner)
    if name == "__init__":
        return _init(tx, owner, base, args, kwargs)
    if base.cls is OrderedDict:
        special = _ordered(tx, owner, base, name, args, kwargs)
    else:
        special = _default(tx, owner, base, name, args) if base.cls is defaultdict else None
    if special is not None:
        return special
    found = base.call_method(tx, name, args, kwargs)
    return owner if found is base else found


def _init(tx: Frame, owner: ObjectValue, base: DictValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if base.cls is defaultdict:
        base.set_factory(tx, args[0] if args else NONE)
        args = args[1:]
    if base.cls is OrderedDict:
        if len(args) > 1:
            raise tx.raised(TypeError, f"expected at most 1 arguments, got {len(args)}")
        update_ordered(tx, owner, args, kwargs)
    else:
        base.update(tx, args, kwargs)
    return NONE


def has_own_items(owner: ObjectValue) -> bool:
    """Whether the subclass has its own way of reading or writing an item."""
    return any(isinstance(static_lookup(owner.cls, name, None), types.FunctionType) for name in _ITEM_METHODS)


def update_ordered(tx: Frame, owner: Value, args: list[Value], kwargs: dict[str, Value]) -> None:
    """OrderedDict.update, which sets items by the `__setitem__` of the class."""
    table = dict_part(owner)
    assert table is not None
    if table is owner or not has_own_items(owner):  # type: ignore[arg-type]
        table.update(tx, args, kwargs)
        return
    pairs = DictValue({}, cls=OrderedDict)
    pairs.update(tx, args, kwargs)
    if any(isinstance(k, Value) for k in pairs.items):
        raise Unsupported("an OrderedDict of objects, updated through a __setitem__ of its own")
    for key, value in pairs.keys_and_values():
        tx.call_special(owner, "__setitem__", [key, value], "does not support item assignment")


def _same_kind(tx: Frame, owner: ObjectValue, args: list[Value]) -> Value:
    from framejit.values.objects.classes import ClassValue

    return tx.call(ClassValue(owner.cls), args, {})


def _ordered(tx: Frame, owner: ObjectValue, base: DictValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if name == "update":
        update_ordered(tx, owner, args, kwargs)
        return NONE
    if name == "__ior__":
        update_ordered(tx, owner, args, {})
        return owner
    if name in ("__or__", "__ror__"):
        if dict_part(args[0]) is None:
            return ConstantValue(NotImplemented)
        first, second = (owner, args[0]) if name == "__or__" else (args[0], owner)
        made = _same_kind(tx, owner, [first])
        update_ordered(tx, made, [second], {})
        return made
    if name == "copy" or (has_own_items(owner) and name in ("setdefault", "pop", "popitem", "__reversed__")):
        if name != "copy" or has_own_items(owner):
            raise Unsupported(f"{name}() of a subclass of OrderedDict that reads or writes items in its own way")
        made = _same_kind(tx, owner, [])
        update_ordered(tx, made, [base], {})
        return made
    return None


def _default(tx: Frame, owner: ObjectValue, base: DictValue, name: str, args: list[Value]) -> Value | None:
    if name in ("copy", "__copy__"):
        return _same_kind(tx, owner, [base.default_factory, owner])
    if name in ("__or__", "__ror__"):
        if dict_part(args[0]) is None:
            return ConstantValue(NotImplemented)
        first, second = (owner, args[0]) if name == "__or__" else (args[0], owner)
        if first is owner:
            made = tx.call(owner.getattr(tx, "copy"), [], {})
        else:
            made = _same_kind(tx, owner, [base.default_factory, first])
        part = dict_part(made)
        if part is None:
            raise Unsupported("copy() of a subclass of defaultdict that gives something else")
        part.update(tx, [second], {})
        return made
    if name == "__missing__":
        return base.missing(tx, args[0], owner)
    return None
