"""copy.copy and copy.deepcopy."""
from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from framejit.guards.sources import static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.sequence import ListValue, TupleValue
from framejit.values.containers.sets import SetValue
from framejit.values.handlers import handles
from framejit.values.objects.user_object import InstanceDictValue, ObjectValue, native_class

if TYPE_CHECKING:
    from framejit.values.context import Frame


@handles(copy.copy)
def _copy(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = args[0]
    if isinstance(value, (ListValue, DictValue, SetValue, InstanceDictValue)):
        return value.call_method(tx, "copy", [], {})
    if isinstance(value, TupleValue):
        return value if value.cls is tuple else TupleValue(value.items, value.cls)  # other classes go through __reduce_ex__
    if value.is_constant():
        return value
    raise Unsupported(f"copy.copy() of {value.describe()}")


@handles(copy.deepcopy)
def _deepcopy(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) > 1 or kwargs:
        raise Unsupported("copy.deepcopy() with a memo")
    return _deep_copy(tx, args[0], {})


def _deep_copy(tx: Frame, value: Value, memo: dict[int, Value]) -> Value:
    """A copy in the captured program: plain containers and plain instances, whose parts are copied in turn."""
    value = realize(tx, value)
    if id(value) in memo:
        return memo[id(value)]
    made: Value
    if isinstance(value, TupleValue):
        copies = [_deep_copy(tx, i, memo) for i in value.items]
        if id(value) in memo:
            return memo[id(value)]  # it holds itself
        changed = value.cls is not tuple or any(new is not realize(tx, old) for new, old in zip(copies, value.items))
        memo[id(value)] = made = TupleValue(copies, value.cls) if changed else value
        return made
    if value.is_constant():
        return value
    if isinstance(value, ListValue) and value.cls is list:
        memo[id(value)] = made = ListValue([])
        made.items = [_deep_copy(tx, i, memo) for i in value.items]
        return made
    if isinstance(value, InstanceDictValue):
        value = value.snapshot(tx)
    if isinstance(value, DictValue):
        memo[id(value)] = made = DictValue({}, None, value.cls, value.default_factory)
        if any(isinstance(k, Value) for k in value.items):
            raise Unsupported("copy.deepcopy() of a dictionary with objects as keys")
        made.change(tx, {k: _deep_copy(tx, v, memo) for k, v in value.items.items()})
        return made
    if isinstance(value, SetValue):
        if any(isinstance(k, Value) for k in value.items):
            raise Unsupported("copy.deepcopy() of a set of objects")
        return SetValue(value.cls(value.in_order(tx)))  # as reduced and built again
    custom = ("__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__slots__")
    plain = isinstance(value, ObjectValue) and native_class(value.cls) is object and not issubclass(value.cls, torch.nn.Module)
    if plain and all(static_lookup(value.python_type(), n, None) in (None, getattr(object, n, None)) for n in custom):
        assert isinstance(value, ObjectValue)
        memo[id(value)] = made = ObjectValue(value.cls)
        items = realize(tx, value.getattr(tx, "__dict__"))
        assert isinstance(items, InstanceDictValue)
        made.attrs = {k: _deep_copy(tx, v, memo) for k, v in items.snapshot(tx).items.items()}
        return made
    raise Unsupported(f"copy.deepcopy() of {value.describe()}")
