"""Instances of classes that have no kind of value of their own: what they hold as a list, tuple, dict or set, and what
is left to Python."""

from __future__ import annotations

import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.guards.sources import CallSource, Source, const_source, static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import is_constant_object
from framejit.values.containers.existing_tables import existing_dict_part, existing_members
from framejit.values.containers.iterator_values import OpaqueIterator
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.containers.unread_items import Unread, existing_items
from framejit.values.inspection import is_a
from framejit.values.objects.user_object import ObjectValue
from framejit.values.wrap import makes, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture


@wraps(*weakref.ProxyTypes)
def _proxy(capture: Capture, obj: Any, source: Source) -> Value:
    # whatever is asked of it is asked of the object behind, which may be gone
    raise Unsupported("a weak proxy", "FJ111")


@wraps(types.CodeType)
def _code(capture: Capture, obj: types.CodeType, source: Source) -> Value:
    capture.add_guard(source, native.C_ID, obj)
    return ObjectValue(types.CodeType, obj, source)


@wraps(tuple, list, dict, set, frozenset, subclasses=True)
def _instance_with_items(capture: Capture, obj: Any, source: Source) -> Value | None:
    if is_a(obj, torch.nn.Module):
        return None
    cls = type(obj)
    capture.add_guard(source, native.C_TYPE, cls)
    return ObjectValue(cls, obj, source, _part(capture, obj, cls, source))


def _part(capture: Capture, obj: Any, cls: Any, source: Source) -> Value:
    """The built-in part of an instance; a view, so that what is written to it is not captured."""
    if is_a(obj, tuple):
        capture.add_guard(source, native.C_LEN, tuple.__len__(obj))
        where = source if cls.__getitem__ is tuple.__getitem__ else CallSource(source, tuple_part)
        return TupleValue(existing_items(tuple.__iter__(obj), where), tuple, source)
    if is_a(obj, dict):
        return existing_dict_part(capture, obj, source)
    if is_a(obj, list):
        if cls.__getitem__ is not list.__getitem__ or cls.__len__ is not list.__len__:
            raise Unsupported(f"an existing {cls.__qualname__}, whose indexing is its own")
        return ListValue([], source, Unread(capture, obj, source))
    return existing_members(capture, obj, source)


def tuple_part(obj: tuple[Any, ...]) -> tuple[Any, ...]:
    """The items of an instance of a subclass of tuple, as a plain tuple, whatever its own methods say."""
    return tuple.__getitem__(obj, slice(None))


class NumberObjectValue(ObjectValue):
    """An existing instance of a program's subclass of int or float; torch looks at the number alone."""

    def __init__(self, capture: Capture, obj: Any, source: Source) -> None:
        super().__init__(type(obj), obj, source)
        self._capture = capture

    def proxy(self) -> Any:
        assert self.source is not None
        read = int.__int__ if is_a(self.obj, int) else float.__float__
        number = read(self.obj)
        self._capture.add_guard(CallSource(self.source, read), native.C_EQUALS, number)
        return number


@wraps(int, float, subclasses=True)
def _number(capture: Capture, obj: Any, source: Source) -> Value | None:
    cls = type(obj)
    if is_constant_object(obj) or static_lookup(cls, "__torch_function__", None) is not None:
        return None
    capture.add_guard(source, native.C_TYPE, cls)
    return NumberObjectValue(capture, obj, source)


@wraps(object, subclasses=True)
def _instance(capture: Capture, obj: Any, source: Source) -> Value:
    cls = type(obj)
    capture.add_guard(source, native.C_TYPE, cls)
    if is_a(static_lookup(cls, "__next__", None), types.WrapperDescriptorType) and all(
        n.startswith("_") for n in vars(cls)
    ):
        return OpaqueIterator(obj, source)
    return ObjectValue(cls, obj, source)


@makes(object, subclasses=True)
def _made_instance(obj: Any) -> Value:
    return ObjectValue(type(obj), obj, const_source(obj))
