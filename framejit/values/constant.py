"""Immutable Python objects known by value: numbers, strings, None, dtypes, devices, enum members, ranges, slices."""
from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Iterator

import torch

from framejit.values.base import Value
from framejit.values.signals import Unsupported

if TYPE_CHECKING:
    from framejit.capture.codegen import Codegen
    from framejit.guards.sources import Source
    from framejit.interpreter.frame import Frame

EQUAL_TYPES = (int, float, complex, bool, str, bytes, torch.device, range)
SINGLETON_TYPES = (type(None), type(Ellipsis), type(NotImplemented), torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
CONSTANT_TYPES: frozenset[type] = frozenset((*EQUAL_TYPES, *SINGLETON_TYPES))


def is_constant_object(obj: Any) -> bool:
    """True for objects whose value can't change, so that knowing them once is knowing them for ever."""
    cls = type(obj)
    if cls in CONSTANT_TYPES or isinstance(obj, enum.Enum):
        return True
    if cls in (tuple, frozenset, torch.Size):
        return all(map(is_constant_object, obj))
    if cls is slice:
        return is_constant_object(obj.start) and is_constant_object(obj.stop) and is_constant_object(obj.step)
    return isinstance(obj, (torch.finfo, torch.iinfo))


class ConstantValue(Value):
    def __init__(self, value: Any, source: "Source | None" = None) -> None:
        self.value, self.source = value, source

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        text = repr(self.value)
        return f"{type(self.value).__name__} {text if len(text) < 60 else text[:57] + '...'}"

    def constant(self) -> Any:
        return self.value

    def truth(self, tx: "Frame") -> bool:
        return bool(self.value)

    def iterate(self, tx: "Frame") -> Iterator[Value]:
        if isinstance(self.value, (str, bytes, range, frozenset)):
            return iter([ConstantValue(x) for x in self.value])
        raise tx.raised(TypeError, f"{type(self.value).__name__!r} object is not iterable")

    def call_method(self, tx: "Frame", name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        from framejit.values.folding import fold

        if self.value is None:
            raise tx.raised(AttributeError, f"'NoneType' object has no attribute {name!r}")
        if name == "join" and isinstance(self.value, (str, bytes)) and len(args) == 1:
            args = [ConstantValue(tuple(tx.constants(tx.iterate(args[0]))))]
        return fold(tx, getattr(self.value, name), args, kwargs)

    def reconstruct(self, cg: "Codegen") -> None:
        if isinstance(self.value, enum.Enum) or not isinstance(self.value, slice):
            cg.em.load_object(self.value)
            return
        for part in (self.value.start, self.value.stop, self.value.step):
            cg.em.load_object(part)
        cg.em.build("SLICE", 3)


class SliceValue(Value):
    """A slice whose bounds are not all constants."""

    def __init__(self, parts: list[Value]) -> None:
        self.parts = parts

    def python_type(self) -> type:
        return slice

    def proxy(self) -> Any:
        return slice(*(p.proxy() for p in self.parts))

    def constant(self) -> Any:
        return slice(*(p.constant() for p in self.parts))

    def children(self) -> Iterator[Value]:
        return iter(self.parts)

    def getattr(self, tx: "Frame", name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        raise Unsupported(f"attribute {name!r} of a slice")

    def reconstruct(self, cg: "Codegen") -> None:
        for part in self.parts:
            cg.load(part)
        cg.em.build("SLICE", 3)


NONE = ConstantValue(None)
