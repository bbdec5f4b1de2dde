"""A value nobody has looked at yet: no guard, no graph input, until `realize`."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import AttrSource
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.wrap import from_python, wrap

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Frame


class LazyValue(Value):
    """An existing object that nobody has looked at yet, so that nothing is assumed about it. Whoever looks gets the
    value it turns out to be (`realize`), which brings its guards with it."""

    is_key = False  # of an existing table, so that it has a hash, whatever it is

    def __init__(self, obj: Any, source: Source) -> None:
        self.obj, self.source = obj, source
        self._value: Value | None = None

    def realize(self, frame: Frame) -> Value:
        return self.realize_in(frame.capture)

    def realize_in(self, capture: Capture) -> Value:
        if self._value is None:
            assert self.source is not None
            try:
                self._value = wrap(capture, self.obj, self.source)
            except Unsupported as e:
                if type(self.obj) is int or type(self.obj) is bool:  # which has to be known (`check_item`)
                    raise
                self._value = self._opaque(capture, self.source, e)
        return self._value

    def _opaque(self, capture: Capture, source: Source, why: Unsupported) -> Value:
        """The value of an object that has no model; it is one value, too, whichever path leads to it."""
        known = capture.known(self.obj)
        if known is None:
            known = OpaqueValue(type(self.obj), source, why.again())
            capture.add_guard(source, native.C_TYPE, type(self.obj))
            capture.remember(self.obj, known)
        elif known.source is not None and known.source != source:
            capture.guard_same(source, known.source)
        return known

    @property
    def realized(self) -> Value | None:
        return self._value

    def children(self) -> Iterator[Value]:
        return iter(()) if self._value is None else iter((self._value,))

    def python_type(self) -> type:
        return type(self.obj)

    @property
    def symbolic(self) -> bool:
        return self._value is not None and self._value.symbolic

    def constant(self) -> Any:
        return super().constant() if self._value is None else self._value.constant()

    def proxy(self) -> Any:
        return super().proxy() if self._value is None else self._value.proxy()


class OpaqueValue(Value):
    """An object framejit has no model of: it can be passed on, and anything else breaks the graph."""

    def __init__(self, cls: type, source: Source, why: Unsupported) -> None:
        self.cls, self.source, self.why = cls, source, why

    def python_type(self) -> type:
        return self.cls

    def proxy(self) -> Any:
        raise self.why.again()

    def getattr(self, frame: Frame, name: str) -> Value:
        raise self.why.again()

    def truth(self, frame: Frame) -> bool:
        raise self.why.again()

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise self.why.again()


def wrap_attribute(obj: Any, source: Source | None, name: str) -> Value:
    """Attribute `name` (with value `obj`) of what stands at `source`."""
    return LazyValue(obj, AttrSource(source, name)) if source is not None else from_python(obj)
