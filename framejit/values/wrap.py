"""From real Python objects to symbolic values: `wrap` for what has a source, `from_python` for what needs none.

What becomes of an object goes by its class: each kind of value registers, in its own file, how objects of its classes
are wrapped (`wraps`) and made (`makes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from framejit import _native as native
from framejit.guards.sources import Source
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue, guarded_constant, is_constant_object
from framejit.values.inspection import compares_itself, is_a

if TYPE_CHECKING:
    from framejit.values.context import Capture

Wrapper = Callable[["Capture", Any, Source], Value | None]
Maker = Callable[[Any], Value | None]
Function = TypeVar("Function", Wrapper, Maker)

_HOLDERS = (tuple, torch.Size, frozenset)
"""Classes of constants that are values of their parts."""


class _ByClass(Generic[Function]):
    """Functions for objects of some classes; an object is given to one after the other until one has an answer.

    Those that were registered to come first do; then that of the very class comes before those for instances of its
    bases, the nearest first.
    """

    def __init__(self) -> None:
        self._exact: tuple[dict[type, list[Function]], ...] = ({}, {})
        self._inherited: tuple[dict[type, list[Function]], ...] = ({}, {})

    def register(self, *classes: type, subclasses: bool = False, first: bool = False) -> Callable[[Function], Function]:
        table = (self._inherited if subclasses else self._exact)[not first]

        def put(function: Function) -> Function:
            for cls in classes:
                table.setdefault(cls, []).append(function)
            return function

        return put

    def of_class(self, cls: type) -> list[Function]:
        """The functions for objects of the very class."""
        return self._exact[1].get(cls, [])

    def of_instance(self, cls: type) -> Iterator[Function]:
        for exact, inherited in zip(self._exact, self._inherited):
            yield from exact.get(cls, ())
            for base in cls.__mro__:
                yield from inherited.get(base, ())


_WRAPPERS: _ByClass[Wrapper] = _ByClass()
_MAKERS: _ByClass[Maker] = _ByClass()
wraps = _WRAPPERS.register
"""Register how objects of these classes are wrapped, and what is guarded of them; None leaves an object to what else is
registered for it."""
makes = _MAKERS.register
"""Register the values of objects of these classes that nothing guards; None leaves an object to what else is registered
for it."""


def wrap(capture: Capture, obj: Any, source: Source) -> Value:
    """The symbolic value of `obj`, which the running frame reads at `source`; guards what is assumed of it."""
    meta = type(obj) if is_a(obj, type) else type(type(obj))
    if compares_itself(meta):
        raise Unsupported("a class that code of its metaclass compares or hashes")
    if is_constant_object(obj) and type(obj) not in _HOLDERS:
        for symbolic_number in _WRAPPERS.of_class(type(obj)):
            value = symbolic_number(capture, obj, source)
            if value is not None:
                return value
        return guarded_constant(capture, obj, source)
    known = capture.known(obj)
    if known is not None:
        if known.source is not None and known.source != source:
            if known.is_constant() and not known.is_one_of_many:
                capture.add_guard(source, native.C_ID, obj)
            else:
                capture.guard_same(source, known.source)
        return known
    for wrapper in _WRAPPERS.of_instance(type(obj)):
        value = wrapper(capture, obj, source)
        if value is not None:
            capture.remember(obj, value)
            return value
    raise AssertionError(f"no kind of value has registered for {type(obj)}")


def from_python(obj: Any) -> Value:
    """A value that needs no guard: a constant made here, or an object reached from one that is guarded."""
    if is_constant_object(obj) and type(obj) not in _HOLDERS:
        return ConstantValue(obj)
    for maker in _MAKERS.of_instance(type(obj)):
        value = maker(obj)
        if value is not None:
            return value
    raise AssertionError(f"no kind of value has registered for {type(obj)}")
