"""Constructors of built-in containers and plain objects."""

from __future__ import annotations

import _collections
import collections
import functools
import types
from typing import TYPE_CHECKING, Any

import torch

from framejit.guards.sources import static_lookup
from framejit.models.registry import REALS
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.builtins.models import call_model, is_modelled
from framejit.values.builtins.partial import make_partial
from framejit.values.builtins.signatures import checked
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.deque import DequeValue
from framejit.values.containers.iterator_tools import make_tool
from framejit.values.containers.length_hints import gathered, gathered_in_tuple
from framejit.values.containers.mapping import DictValue, MappingProxyValue, dict_part
from framejit.values.containers.sequence import ListValue, TupleValue
from framejit.values.containers.sets import SetValue, frozen
from framejit.values.handlers import HANDLERS, handles
from framejit.values.objects.classes import ITERATOR_CLASSES
from framejit.values.objects.user_object import ObjectValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


def construct_builtin(tx: Frame, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Call a built-in class; None if `cls` is none of those known here."""
    if cls in HANDLERS:
        return HANDLERS[cls](tx, *checked(tx, cls, args, kwargs))
    if is_modelled(cls):
        return call_model(tx, cls, args, kwargs) if cls in REALS else call_model(tx, cls, *checked(tx, cls, args, kwargs))
    if cls in ITERATOR_CLASSES:
        return make_tool(tx, cls, *checked(tx, cls, args, kwargs))
    return None


@handles(list)
def _list(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ListValue(list(gathered(tx, args[0])) if args else [])


@handles(tuple, torch.Size)
def _tuple(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return TupleValue(list(gathered_in_tuple(tx, args[0])) if args else [])


HANDLERS[torch.Size] = lambda tx, args, kwargs: TupleValue(list(tx.iterate(args[0])) if args else [], torch.Size)


def _filled(tx: Frame, made: DictValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made.update(tx, args, kwargs)
    return made


HANDLERS[dict] = lambda tx, args, kwargs: _filled(tx, DictValue({}), args, kwargs)
HANDLERS[collections.OrderedDict] = lambda tx, args, kwargs: _filled(tx, DictValue({}, cls=collections.OrderedDict), args, kwargs)


@handles(collections.defaultdict)
def _defaultdict(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made = DictValue({}, cls=collections.defaultdict)
    made.set_factory(tx, args[0] if args else NONE)
    return _filled(tx, made, args[1:], kwargs)


@handles(types.MappingProxyType)
def _mappingproxy(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if type(args[0]) is not DictValue or args[0].cls is not dict:
        raise Unsupported("a mappingproxy of what is no plain dict")
    return MappingProxyValue(args[0])


@handles(_collections._count_elements)
def _count_elements(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    counts, iterable = args
    table, cls = dict_part(counts), counts.python_type()
    plain = table is not None and all(static_lookup(cls, name) is dict.__dict__[name] for name in ("get", "__setitem__"))
    for item in tx.drain(tx.get_iter(iterable)):
        if plain:
            assert table is not None
            table.count(tx, item)
        else:
            before = tx.call(counts.getattr(tx, "get"), [item, ConstantValue(0)], {})
            tx.call_special(counts, "__setitem__", [item, tx.binary("+", before, ConstantValue(1))], "does not support item assignment")
    return NONE


@handles(set)
def _set(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made = SetValue(set())
    if args:
        made.call_method(tx, "update", args, {})
    return made


@handles(frozenset)
def _frozenset(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return frozen(tx, args[0]) if args else SetValue(frozenset())


@handles(collections.deque)
def _deque(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    maxlen = (args[1] if len(args) > 1 else NONE).constant()
    try:
        collections.deque((), maxlen)
    except (TypeError, ValueError, OverflowError) as e:
        raise tx.raised_from(e) from None
    made = DequeValue([], maxlen)
    if args:
        made.push_all(tx, args[0])
    return made


@handles(object)
def _object(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ObjectValue(object)


@handles(functools.partial)
def _partial(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return make_partial(tx, args[0], args[1:], kwargs)
