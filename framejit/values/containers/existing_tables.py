"""Dicts and sets that the program made: what is guarded of them, and what stands for their keys."""

from __future__ import annotations

import enum
import functools
import inspect
import operator
import types
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.guards.sources import (
    AttrSource,
    CallSource,
    ConstSource,
    DictKeySource,
    GetItemSource,
    IndexSource,
    Source,
    TypedKey,
    key_source,
    static_lookup,
)
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue, is_constant_object
from framejit.values.containers.hashing import existing_key, has_own_hash
from framejit.values.containers.hook_tables import HookTableValue, is_hook_table
from framejit.values.containers.mapping import DictValue, MappingProxyValue
from framejit.values.containers.sets import Layout, SetValue
from framejit.values.inspection import dict_behind, is_a
from framejit.values.lazy import LazyValue
from framejit.values.wrap import from_python, makes, wrap, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture


@wraps(dict, OrderedDict, defaultdict, types.MappingProxyType)
def _existing_dict(capture: Capture, obj: Any, source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, type(obj))
    if capture.effects.globals_of(obj):
        raise Unsupported("a namespace the captured code has written global variables of", "FJ115")
    kind = next(k for k in (OrderedDict, defaultdict, types.MappingProxyType, dict) if is_a(obj, k))
    if is_hook_table(obj, source):
        return HookTableValue(capture, obj, source)
    if kind is types.MappingProxyType:
        behind = dict_behind(obj)
        capture.effects.show_namespace(behind)
        if type(behind) is dict:
            value = wrap(capture, behind, CallSource(source, dict_behind))
            if isinstance(value, DictValue):
                return MappingProxyValue(value, source)
        if type(behind) is not OrderedDict:  # that of an inspect.Signature
            raise Unsupported("a mappingproxy of what is no plain dict", "FJ122")
    factory = (
        wrap(capture, obj.default_factory, AttrSource(source, "default_factory"))
        if kind is defaultdict
        else ConstantValue(None)
    )
    return DictValue(dict_items(capture, obj, source), source, kind, factory)


def dict_items(capture: Capture, obj: Any, source: Source) -> dict[Any, Value]:
    _look_into(obj)
    exact = type(obj) is dict
    # a guard that asked a defaultdict for an item would add the key
    item = key_source if is_a(obj, dict) else (lambda s, k: GetItemSource(s, TypedKey(k)))
    if not all(map(_is_plain_key, obj)):
        return _items_by_object(capture, obj, source)
    if exact:
        capture.add_guard(source, native.C_KEYS, tuple(obj))
    elif not _belongs_to_signature(source):
        constant = all(map(is_constant_object, obj))
        capture.add_guard(
            _keys_source(source), native.C_EQUALS if constant else native.C_LEN, tuple(obj) if constant else len(obj)
        )
    return {k: LazyValue(v, item(source, k)) for k, v in obj.items()}


def _look_into(obj: Any) -> None:
    """Unsupported for an OrderedDict whose keys are asked for their hashes when it is read, or that methods of dict
    changed behind its own back."""
    if not is_a(obj, OrderedDict):
        return
    if any(has_own_hash_method(type(k)) and not is_a(k, (torch.Tensor, enum.Enum)) for k in dict.keys(obj)):
        raise Unsupported("an OrderedDict of objects that have their own hash, which reading it asks for", "FJ122")
    try:
        known = len(list(OrderedDict.items(obj)))
    except (KeyError, RuntimeError):
        known = -1
    if known != dict.__len__(obj):
        raise Unsupported("an OrderedDict whose order does not match its items")


def _is_plain_key(key: Any) -> bool:
    """Whether a key is known by value, or is a class or function that is compared by identity."""
    if is_a(key, type):
        return not has_own_hash_method(type(key))
    return is_constant_object(key) or type(key) in (types.FunctionType, types.BuiltinFunctionType)


def has_own_hash_method(cls: type) -> bool:
    return is_a(static_lookup(cls, "__hash__", None), types.FunctionType)


def _items_by_object(capture: Capture, obj: Any, source: Source) -> dict[Any, Value]:
    """The items of a dict some of whose keys are objects: by position, and with the hashes that the dict keeps."""
    objects = list(_table_class(obj).keys(obj))
    capture.add_guard(source, native.C_LEN, len(objects))
    where = _keys_source(source)
    places: list[Source] = [
        DictKeySource(source, i) if type(obj) is dict else IndexSource(where, i) for i in range(len(objects))
    ]
    keys = _existing_keys(capture, obj, source, objects, places)
    values = _values_source(source)
    return {key: LazyValue(v, IndexSource(values, i)) for i, (key, v) in enumerate(zip(keys, values_of(obj)))}


def _existing_keys(capture: Capture, table: Any, source: Source, objects: list[Any], places: list[Source]) -> list[Any]:
    """What stands for the objects that a table from outside holds."""
    if not is_a(table, (dict, set, frozenset)):  # a mappingproxy
        raise Unsupported(f"a {type(table).__name__} of objects", "FJ122")
    stored = _stored_hashes(table)
    found = [existing_key(capture, wrap(capture, k, place), stored[id(k)]) for k, place in zip(objects, places)]
    if any(map(has_own_hash, found)):
        capture.add_guard(CallSource(source, own_hashes), native.C_EQUALS, own_hashes(table))
    return found


def own_hashes(table: Any) -> tuple[int | None, ...]:
    """The hashes that a table keeps of objects whose classes define it; they may have another one by now."""
    stored = _stored_hashes(table)
    keys = _table_class(table).keys(table) if is_a(table, dict) else members_of(table)
    return tuple(stored[id(k)] if has_own_hash_method(type(k)) and not is_a(k, torch.Tensor) else None for k in keys)


def _stored_hashes(table: Any) -> dict[int, int]:
    """By the ids of the keys: an OrderedDict has another order than its table."""
    return dict(zip(map(id, dict.keys(table) if is_a(table, dict) else members_of(table)), native.stored_hashes(table)))


def _belongs_to_signature(source: Source) -> bool:
    """Whether the mapping is that of an inspect.Signature made while capturing, which nothing changes."""
    base = source.base
    return isinstance(base, ConstSource) and isinstance(base.ref.value, inspect.Signature)


def _keys_source(source: Source) -> Source:
    return CallSource(source, tuple)


def _values_source(source: Source) -> Source:
    return CallSource(source, values_of)


def _table_class(table: Any) -> Any:
    """The C class whose methods read a dict or one of a subclass, in the order the program sees."""
    return next((cls for cls in (OrderedDict, dict) if is_a(table, cls)), type(table))


def values_of(mapping: Any) -> tuple[Any, ...]:
    return tuple(_table_class(mapping).values(mapping))


def members_of(table: Any) -> tuple[Any, ...]:
    """What a set holds, or an instance of a subclass, whatever its own methods say."""
    return tuple((set if is_a(table, set) else frozenset).__iter__(table))


def existing_dict_part(capture: Capture, obj: Any, source: Source) -> DictValue:
    """The dict inside of an existing instance of a subclass of dict, as a value."""
    cls = type(obj)
    kind = next(k for k in (OrderedDict, defaultdict, dict) if is_a(obj, k))
    factory = (
        wrap(capture, obj.default_factory, AttrSource(source, "default_factory"))
        if kind is defaultdict
        else ConstantValue(None)
    )
    if cls.__iter__ not in (dict.__iter__, OrderedDict.__iter__) or cls.items not in (dict.items, OrderedDict.items):
        raise Unsupported(f"an existing {cls.__qualname__}, whose iteration is its own")
    return DictValue(_items_of_subclass(capture, obj, source), source, kind, factory)


def _items_of_subclass(capture: Capture, obj: Any, source: Source) -> dict[Any, Value]:
    _look_into(obj)
    if not all(map(is_constant_object, dict.keys(obj))):
        return _items_by_object(capture, obj, source)
    cls = type(obj)
    # its keys and values are where those of a dict are
    if cls.__iter__ is dict.__iter__ and cls.__getitem__ is dict.__getitem__:
        capture.add_guard(source, native.C_KEYS, tuple(obj))
        return {k: LazyValue(v, key_source(source, k)) for k, v in dict.items(obj)}
    capture.add_guard(_keys_source(source), native.C_EQUALS, tuple(obj))
    values = _values_source(source)
    return {k: LazyValue(dict.__getitem__(obj, k), IndexSource(values, i)) for i, k in enumerate(obj)}


@wraps(set, frozenset)
def _existing_set(capture: Capture, obj: Any, source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, type(obj))
    return existing_members(capture, obj, source)


def existing_members(capture: Capture, obj: Any, source: Source) -> SetValue:
    """The members of an existing set, or of an instance of a subclass, as a value."""
    members = members_of(obj)
    if not all(is_constant_object(k) or is_a(k, type) and not has_own_hash_method(type(k)) for k in members):
        capture.add_guard(source, native.C_LEN, len(members))
        where = CallSource(source, tuple if type(obj) in (set, frozenset) else members_of)
        keys = _existing_keys(capture, obj, source, [*members], [IndexSource(where, i) for i in range(len(members))])
        return SetValue(set(keys) if is_a(obj, set) else frozenset(keys), source, order=keys)
    classes = any(is_a(k, type) for k in members)
    capture.add_guard(
        CallSource(source, frozenset),
        native.C_PY if classes else native.C_EQUALS,
        functools.partial(operator.eq, frozenset(obj)) if classes else frozenset(obj),
    )
    layout = native.set_layout(obj)
    slots, taken, left, finger, ordered = layout
    items = native.set_of_layout(
        set if is_a(obj, set) else frozenset, slots, taken, left, finger, ordered, (None,) * len(ordered)
    )
    return SetValue(items, source, (Layout(source, layout),))


@makes(dict)
def _made_dict(obj: dict[Any, Any]) -> Value:
    if not all(map(_is_plain_key, obj)):
        raise Unsupported("a dictionary with objects as keys, which nothing guards", "FJ122")
    return DictValue({k: from_python(v) for k, v in obj.items()})


@makes(set, frozenset)
def _made_set(obj: set[Any] | frozenset[Any]) -> Value:
    if not all(map(_is_plain_key, obj)):
        raise Unsupported("a set of objects, which nothing guards", "FJ123")
    return SetValue(obj.copy())
