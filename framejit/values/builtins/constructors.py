"""Constructors of built-in containers and plain objects."""

from __future__ import annotations

import _collections
import collections
import functools
import types
from typing import TYPE_CHECKING

import torch

from framejit.guards.sources import static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.builtins.partial import make_partial
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.deque import DequeValue
from framejit.values.containers.length_hints import gathered, gathered_in_tuple
from framejit.values.containers.lists import ListValue
from framejit.values.containers.mapping import DictValue, MappingProxyValue, dict_part
from framejit.values.containers.sets import SetValue, frozen
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import HANDLERS, handles
from framejit.values.objects.user_object import ObjectValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


@handles(list)
def _list(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    copied = args[0].copied(frame) if args and isinstance(args[0], ListValue) else None
    return copied or ListValue(list(gathered(frame, args[0])) if args else [])


@handles(tuple, torch.Size)
def _tuple(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return TupleValue(list(gathered_in_tuple(frame, args[0])) if args else [])


HANDLERS[torch.Size] = lambda frame, args, kwargs: TupleValue(list(frame.iterate(args[0])) if args else [], torch.Size)


def _filled(frame: Frame, made: DictValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made.update(frame, args, kwargs)
    return made


HANDLERS[dict] = lambda frame, args, kwargs: _filled(frame, DictValue({}), args, kwargs)
HANDLERS[collections.OrderedDict] = lambda frame, args, kwargs: _filled(
    frame, DictValue({}, cls=collections.OrderedDict), args, kwargs
)


@handles(collections.defaultdict)
def _defaultdict(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made = DictValue({}, cls=collections.defaultdict)
    made.set_factory(frame, args[0] if args else NONE)
    return _filled(frame, made, args[1:], kwargs)


@handles(types.MappingProxyType)
def _mappingproxy(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not isinstance(args[0], DictValue) or args[0].cls is not dict:
        raise Unsupported("a mappingproxy of what is no plain dict")
    return MappingProxyValue(args[0])


@handles(_collections._count_elements)
def _count_elements(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    counts, iterable = args
    table, cls = dict_part(counts), counts.python_type()
    plain = table is not None and all(
        static_lookup(cls, name) is dict.__dict__[name] for name in ("get", "__setitem__")
    )
    for item in frame.drain(frame.get_iter(iterable)):
        if plain:
            assert table is not None
            table.count(frame, item)
        else:
            before = frame.call(counts.getattr(frame, "get"), [item, ConstantValue(0)], {})
            frame.call_special(
                counts, "__setitem__", [item, frame.binary("+", before, ConstantValue(1))],
                "does not support item assignment",
            )
    return NONE


@handles(set)
def _set(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made = SetValue(set())
    if args:
        made.call_method(frame, "update", args, {})
    return made


@handles(frozenset)
def _frozenset(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return frozen(frame, args[0]) if args else SetValue(frozenset())


@handles(collections.deque)
def _deque(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    maxlen = (args[1] if len(args) > 1 else kwargs.get("maxlen", NONE)).constant()
    try:
        collections.deque((), maxlen)
    except (TypeError, ValueError, OverflowError) as e:
        raise frame.raised_from(e) from None
    made = DequeValue([], maxlen)
    if args:
        made.push_all(frame, args[0])
    return made


@handles(object)
def _object(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ObjectValue(object)


@handles(functools.partial)
def _partial(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return make_partial(frame, args[0], args[1:], kwargs)
