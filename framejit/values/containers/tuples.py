"""Tuples of values; named tuples, torch.Size and torch.return_types are tuples with another class."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.guards.plain_text import module_of
from framejit.guards.sources import static_lookup
from framejit.values.base import Value
from framejit.values.constant import ConstantValue, is_constant_object
from framejit.values.containers.sequence import SequenceValue
from framejit.values.containers.unread_items import existing_items
from framejit.values.folding import plain
from framejit.values.inspection import instance_dict
from framejit.values.shown_objects import stand_in, writes_own_text
from framejit.values.wrap import from_python, makes, wraps

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.builtins.reflection import IdValue
    from framejit.values.context import Capture, Codegen, Frame


def is_namedtuple_class(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make")


# what namedtuple() itself writes into a class
_NAMED_ANEW = frozenset(("__new__", "__repr__", "__getnewargs__", "__doc__"))


def adds_only_names(cls: type) -> bool:
    """Whether a namedtuple class works like a tuple: no class among its bases has a method of tuple's, or a field's
    name, anew."""
    fields = getattr(cls, "_fields", ())
    return (
        is_namedtuple_class(cls)
        and type(fields) is tuple
        and all(static_lookup(cls, n) is static for n, static in tuple.__dict__.items() if n not in _NAMED_ANEW)
        and all(
            static_lookup(cls, n) is object.__dict__[n]
            for n in ("__setattr__", "__delattr__", "__reduce__", "__reduce_ex__", "__init__")
        )
        and static_lookup(cls, "__getattr__", None) is None
        and all(type(static_lookup(cls, f, None)).__name__ == "_tuplegetter" for f in fields)
        and all(getattr(static_lookup(cls, n), "__module__", None) == "collections" for n in ("_replace", "_asdict"))
    )


def is_return_type(cls: type) -> bool:
    """torch.return_types: structseq classes such as that of torch.max(x, dim)."""
    return module_of(cls) == "torch.return_types"


class TupleValue(SequenceValue):
    """A tuple, or an instance of a tuple class that adds nothing but names (`cls`)."""

    def __init__(self, items: list[Value], cls: type = tuple, source: Source | None = None) -> None:
        self.items, self.cls, self.source = list(items), cls, source
        self.is_part = False  # of an instance of a subclass, which is another object than a tuple of the same items
        self.existing: Any = None  # the very tuple, of constants, that this is

    def python_type(self) -> type:
        return self.cls

    def make(self, items: list[Value]) -> TupleValue:
        if (
            self.cls is tuple
            and not self.is_part
            and len(items) == len(self.items)
            and all(a is b for a, b in zip(items, self.items))
        ):
            return self  # as CPython does for the whole of a tuple
        return TupleValue(items, torch.Size if self.cls is torch.Size else tuple)

    def _joined(self, first: SequenceValue, second: SequenceValue) -> SequenceValue:
        if (
            not first.items
            and second.python_type() is tuple
            and self.cls is tuple
            and not getattr(second, "is_part", False)
        ):
            return second
        return super()._joined(first, second)

    def ids(self) -> Iterator[IdValue]:
        return itertools.chain.from_iterable(item.ids() for item in self.items)

    def constant(self) -> Any:
        return self.real([i.constant() for i in self.items]) if self.existing is None else self.existing

    @property
    def symbolic(self) -> bool:
        return any(item.symbolic for item in self.items)

    def real(self, items: list[Any]) -> Any:
        """The Python tuple of this class that holds `items`."""
        return tuple.__new__(self.cls, items) if is_namedtuple_class(self.cls) else self.cls(items)

    def plain_copy(self, frame: Frame) -> Any:
        shown = stand_in(self) if writes_own_text(self.cls) else None
        return self.real([plain(frame, i) for i in self.items]) if shown is None else shown

    def proxy(self) -> Any:
        parts = [i.proxy() for i in self.items]
        if is_namedtuple_class(self.cls):
            return tuple.__new__(self.cls, parts)
        return tuple(parts)

    def getattr(self, frame: Frame, name: str) -> Value:
        if is_namedtuple_class(self.cls) and name in self.cls._fields:  # type: ignore[attr-defined]
            return self.items[self.cls._fields.index(name)]  # type: ignore[attr-defined]
        if is_return_type(self.cls):
            member = getattr(self.cls, name, None)
            fields = [f for f in dir(self.cls) if type(getattr(self.cls, f)).__name__ == "member_descriptor"]
            if name in fields:
                probe = self.cls(range(len(self.items)))
                return self.items[getattr(probe, name)]
            if member is None:
                raise frame.raised(AttributeError, f"{native.type_name(self.cls)!r} object has no attribute {name!r}")
        if is_namedtuple_class(self.cls) and not hasattr(tuple, name):
            return frame.class_attribute(self, self.cls, name)
        return super().getattr(frame, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.cls is torch.Size and name == "numel":
            numel: Value = ConstantValue(1)
            for item in self.items:
                numel = frame.binary("*", numel, item)
            return numel
        if name == "_replace" and not args:
            fields = self.cls._fields  # type: ignore[attr-defined]
            return TupleValue([kwargs.get(f, i) for f, i in zip(fields, self.items)], self.cls)
        if name == "_asdict":
            return frame.call(from_python(dict), [], dict(zip(self.cls._fields, self.items)))  # type: ignore[attr-defined]
        return super().call_method(frame, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        if self.existing is not None:
            cg.em.load_object(self.existing)
        elif is_namedtuple_class(self.cls):
            cg.em.call_object(tuple.__new__, lambda: (cg.em.load_object(self.cls), self._build(cg)), 2)
        elif self.cls is tuple:
            self._build(cg)
        else:
            cg.em.call_object(self.cls, lambda: self._build(cg))

    def _build(self, cg: Codegen) -> None:
        for item in self.items:
            cg.load(item)
        cg.em.build("TUPLE", len(self.items))


@wraps(tuple, subclasses=True)
def _existing_tuple(capture: Capture, obj: tuple[Any, ...], source: Source) -> Value | None:
    cls = type(obj)
    if (
        cls not in (tuple, torch.Size)
        and not is_return_type(cls)
        and not (adds_only_names(cls) and instance_dict(obj) is None)
    ):
        return None
    capture.add_guard(source, native.C_TYPE, cls)
    capture.add_guard(source, native.C_LEN, tuple.__len__(obj))
    return TupleValue(existing_items(tuple.__iter__(obj), source), cls, source)


@makes(tuple, subclasses=True)
def _made_tuple(obj: tuple[Any, ...]) -> Value | None:
    cls = type(obj)
    if cls not in (tuple, torch.Size) and not adds_only_names(cls):
        return None
    made = TupleValue([from_python(x) for x in obj], cls)
    made.existing = obj if is_constant_object(obj) else None
    return made
