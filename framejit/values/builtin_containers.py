"""Constructors of built-in containers and plain objects."""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING, Any

import torch

from framejit.values.base import Value
from framejit.values.classes import ITERATOR_CLASSES
from framejit.values.constant import NONE, ConstantValue
from framejit.values.functions import PartialValue
from framejit.values.handlers import HANDLERS, handles
from framejit.values.iterator_tools import make_tool
from framejit.values.mapping import DictValue, SetValue, as_key, pairs
from framejit.values.sequence import ListValue, TupleValue
from framejit.values.user_object import ObjectValue

if TYPE_CHECKING:
    from framejit.interpreter.frame import Frame


def construct_builtin(tx: Frame, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Call a built-in class; None if `cls` is none of those known here."""
    if cls in HANDLERS:
        return HANDLERS[cls](tx, args, kwargs)
    if cls in ITERATOR_CLASSES:
        return make_tool(tx, cls, args, kwargs)
    return None


@handles(list)
def _list(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ListValue(list(tx.iterate(args[0])) if args else [])


@handles(tuple, torch.Size)
def _tuple(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return TupleValue(list(tx.iterate(args[0])) if args else [])


HANDLERS[torch.Size] = lambda tx, args, kwargs: TupleValue(list(tx.iterate(args[0])) if args else [], torch.Size)


@handles(dict, collections.OrderedDict)
def _dict(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return DictValue({**(pairs(tx, args[0]) if args else {}), **kwargs})


HANDLERS[collections.OrderedDict] = lambda tx, args, kwargs: DictValue({**(pairs(tx, args[0]) if args else {}), **kwargs}, cls=collections.OrderedDict)
HANDLERS[collections.defaultdict] = lambda tx, args, kwargs: DictValue(
    {**(pairs(tx, args[1]) if len(args) > 1 else {}), **kwargs}, cls=collections.defaultdict, default_factory=args[0] if args else NONE
)


@handles(collections.Counter)
def _counter(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    counts: dict[Any, Value] = {}
    if args and isinstance(args[0], DictValue):
        counts = dict(args[0].items)
    elif args:
        for item in tx.iterate(args[0]):
            key = as_key(tx, item)
            counts[key] = ConstantValue(counts.get(key, ConstantValue(0)).constant() + 1)
    return DictValue({**counts, **kwargs}, cls=collections.Counter)


@handles(set, frozenset)
def _set(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return SetValue(dict.fromkeys(as_key(tx, v) for v in tx.iterate(args[0])) if args else {})


HANDLERS[frozenset] = lambda tx, args, kwargs: SetValue(dict.fromkeys(as_key(tx, v) for v in tx.iterate(args[0])) if args else {}, cls=frozenset)


@handles(collections.deque)
def _deque(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    maxlen = (args[1] if len(args) > 1 else kwargs.get("maxlen", NONE)).constant()
    items = list(tx.iterate(args[0])) if args else []
    return ListValue(items[len(items) - maxlen :] if maxlen is not None and len(items) > maxlen else items, cls=collections.deque, maxlen=maxlen)


@handles(object)
def _object(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ObjectValue(object)


@handles(functools.partial)
def _partial(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return PartialValue(args[0], args[1:], dict(kwargs))
