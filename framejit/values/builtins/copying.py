"""copy.copy and copy.deepcopy."""
from __future__ import annotations

import collections
import copy
import copyreg
import types
from typing import TYPE_CHECKING

from framejit.guards.sources import static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, is_none
from framejit.values.containers.lists import ListValue
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.sets import SetValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import handles
from framejit.values.inspection import is_a
from framejit.values.objects.new_instances import native_class
from framejit.values.objects.user_object import InstanceDictValue, ObjectValue, class_attribute
from framejit.values.tensors.copied_tensors import CopiedTensors
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


@handles(copy.copy)
def _copy(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = args[0]
    if isinstance(value, (ListValue, DictValue, SetValue, InstanceDictValue)):
        made = value.call_method(frame, "copy", [], {})
        if isinstance(value, DictValue) and value.cls is collections.OrderedDict:  # copied as it is reduced
            for name, held in value.attributes(frame).items.items():
                made.setattr(frame, name, held)
        return made
    if isinstance(value, TupleValue):
        # other classes go through __reduce_ex__
        return value if value.cls is tuple else TupleValue(value.items, value.cls)
    if value.is_constant() or value.python_type() in (int, float):
        return value
    if isinstance(value, ObjectValue):
        own = static_lookup(value.cls, "__copy__", None)
        if own is not None:
            return frame.call(class_attribute(frame, value, value.cls, "__copy__"), [], {})
        if _is_plain_instance(value):
            made = ObjectValue(value.cls)
            made.attrs = dict(_attributes(frame, value))
            return made
        if _tells_its_state(value):
            made = ObjectValue(value.cls)
            _take_state(frame, made, _state_of(frame, value))
            return made
    raise Unsupported(f"copy.copy() of {value.describe()}")


@handles(copy.deepcopy)
def _deepcopy(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) > 1 or kwargs:
        raise Unsupported("copy.deepcopy() with a memo")
    tensors = CopiedTensors()
    made = _deep_copy(frame, args[0], {}, tensors)
    tensors.tell_apart(frame)
    return made


def _deep_copy(frame: Frame, value: Value, memo: dict[Value, Value], tensors: CopiedTensors) -> Value:
    """A copy in the captured program: plain containers and plain instances, whose parts are copied in turn."""
    value = realize(frame, value)
    if value in memo:
        return memo[value]
    made: Value
    if value.symbolic or value.python_type() in (int, float):  # a number that is not assumed
        return value
    if isinstance(value, TupleValue):
        copies = [_deep_copy(frame, i, memo, tensors) for i in value.items]
        if value in memo:
            return memo[value]  # it holds itself
        changed = value.cls is not tuple or any(new is not realize(frame, old) for new, old in zip(copies, value.items))
        memo[value] = made = TupleValue(copies, value.cls) if changed else value
        return made
    if value.is_constant():
        return value
    if isinstance(value, ListValue) and value.cls is list:
        memo[value] = made = ListValue([])
        made.items = [_deep_copy(frame, i, memo, tensors) for i in value.items]
        return made
    if isinstance(value, InstanceDictValue):
        value = value.snapshot(frame)
    if isinstance(value, DictValue):
        memo[value] = made = DictValue({}, None, value.cls, value.default_factory)
        if any(isinstance(k, Value) for k in value.items):
            raise Unsupported("copy.deepcopy() of a dictionary with objects as keys")
        if value.cls is collections.OrderedDict:
            for name, held in value.attributes(frame).items.items():
                made.setattr(frame, name, _deep_copy(frame, held, memo, tensors))
        made.change(frame, {k: _deep_copy(frame, v, memo, tensors) for k, v in value.items.items()})
        return made
    if isinstance(value, SetValue):
        if any(isinstance(k, Value) for k in value.items):
            raise Unsupported("copy.deepcopy() of a set of objects")
        return SetValue(value.cls(value.in_order(frame)))  # as reduced and built again
    if isinstance(value, TensorValue):
        copied = tensors.copy(frame, value)
        if copied is not None:
            memo[value] = copied
            return copied
    if isinstance(value, ObjectValue) and _is_plain_instance(value):
        memo[value] = made = ObjectValue(value.cls)
        made.attrs = {k: _deep_copy(frame, v, memo, tensors) for k, v in _attributes(frame, value).items()}
        return made
    if isinstance(value, ObjectValue) and _tells_its_state(value):
        memo[value] = made = ObjectValue(value.cls)
        _take_state(frame, made, _deep_copy(frame, _state_of(frame, value), memo, tensors))
        return made
    raise Unsupported(f"copy.deepcopy() of {value.describe()}")


_CUSTOM = (
    "__deepcopy__", "__copy__", "__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__", "__slots__",
)


def _is_plain_instance(value: ObjectValue) -> bool:
    """Whether all of an instance is in its dictionary, and it is copied as `object` says."""
    return _is_made_anew(value) and all(_is_of_object(value.cls, name) for name in ("__getstate__", "__setstate__"))


def _tells_its_state(value: ObjectValue) -> bool:
    """Whether an instance is copied as `object` says, but for a `__getstate__` of the program's or a `__setstate__`, of
    which modules have one."""
    methods = (static_lookup(value.cls, name, None) for name in ("__getstate__", "__setstate__"))
    return _is_made_anew(value) and any(is_a(method, types.FunctionType) for method in methods)


def _is_made_anew(value: ObjectValue) -> bool:
    """Whether a copy is a new instance that no code of the program has made."""
    if (
        native_class(value.cls) is not object
        or static_lookup(value.cls, "__new__") is not object.__new__
        or value.cls in copyreg.dispatch_table
    ):
        return False
    return all(_is_of_object(value.cls, name) for name in _CUSTOM)


def _state_of(frame: Frame, value: ObjectValue) -> Value:
    if _is_of_object(value.cls, "__getstate__"):
        return DictValue(_attributes(frame, value)) if _attributes(frame, value) else NONE
    return realize(frame, frame.call(class_attribute(frame, value, value.cls, "__getstate__"), [], {}))


def _take_state(frame: Frame, made: ObjectValue, state: Value) -> None:
    """What `copy` does with the state that an instance has told."""
    if is_none(state):
        return
    if static_lookup(made.cls, "__setstate__", None) is not None:
        frame.call(class_attribute(frame, made, made.cls, "__setstate__"), [state], {})
        return
    if isinstance(state, InstanceDictValue):
        state = state.snapshot(frame)
    if not isinstance(state, DictValue) or not all(type(key) is str for key in state.items):
        raise Unsupported(f"a copy of {made.describe()}, whose state is {state.describe()}")
    made.attrs = dict(state.items)


def _attributes(frame: Frame, value: ObjectValue) -> dict[str, Value]:
    items = realize(frame, value.getattr(frame, "__dict__"))
    assert isinstance(items, InstanceDictValue)
    return items.snapshot(frame).items


def _is_of_object(cls: type, name: str) -> bool:
    method = static_lookup(cls, name, None)
    return method is None or method is getattr(object, name, None)
