"""`threading.local`: the attributes are those that the thread has which runs the code, and are guarded and written as
items of the dict that such an object shows this thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import CallSource, Source, static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.mapping import DictValue
from framejit.values.objects.user_object import ObjectValue, is_data_descriptor
from framejit.values.wrap import wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Frame


class ThreadLocalValue(ObjectValue):
    """An existing object of a class that has no `__init__` of its own, which each thread would run."""

    def getattr(self, frame: Frame, name: str) -> Value:
        return self._with_fallback(frame, name, lambda: self.generic_getattr(frame, name))

    def generic_getattr(self, frame: Frame, name: str) -> Value:
        return self._attributes(frame) if name == "__dict__" else super().generic_getattr(frame, name)

    def instance_attribute(self, frame: Frame, name: str, shadowing: bool = False) -> Value | None:
        attributes, key = self._attributes(frame), ConstantValue(name)
        there = attributes.call_method(frame, "__contains__", [key], {}).constant()
        return realize(frame, attributes.getitem(frame, key)) if there else None

    def setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        if is_data_descriptor(static_lookup(self.cls, name, None)) or name == "__dict__":
            raise Unsupported(f"setting attribute {name!r} of {self.describe()}, which its class says how to do")
        attributes, key = self._attributes(frame), ConstantValue(name)
        if value is not None:
            attributes.call_method(frame, "__setitem__", [key, value], {})
        elif self.instance_attribute(frame, name) is None:
            said = f"{native.type_name(self.cls)!r} object has no attribute {name!r}"
            raise frame.raised(AttributeError, said)
        else:
            attributes.call_method(frame, "__delitem__", [key], {})

    def _attributes(self, frame: Frame) -> DictValue:
        assert self.source is not None
        found = realize(frame, frame.wrap(attributes_here(self.obj), CallSource(self.source, attributes_here)))
        assert isinstance(found, DictValue)
        return found


def attributes_here(local: threading.local) -> dict[str, Any]:
    """The attributes that an object has in this thread."""
    found: dict[str, Any] = threading.local.__getattribute__(local, "__dict__")
    return found


@wraps(threading.local, subclasses=True, first=True)
def _thread_local(capture: Capture, obj: Any, source: Source) -> Value:
    cls = type(obj)
    if static_lookup(cls, "__init__", None) is not object.__init__:
        raise Unsupported(f"a {cls.__qualname__} (threading.local), whose __init__ runs in each thread")
    if any(
        static_lookup(cls, name) is not static_lookup(threading.local, name)
        for name in ("__getattribute__", "__setattr__", "__delattr__", "__new__")
    ) or any(isinstance(vars(base).get("__slots__"), (tuple, list)) for base in cls.__mro__[:-2]):
        raise Unsupported(f"a {cls.__qualname__} (threading.local), whose class says how attributes are found")
    capture.add_guard(source, native.C_TYPE, cls)
    return ThreadLocalValue(cls, obj, source)
