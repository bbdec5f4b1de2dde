"""Immutable Python objects known by value: numbers, strings, None, dtypes, devices, enum members, ranges, slices."""

from __future__ import annotations

import enum
import re
import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from framejit.guards.sources import static_lookup
from framejit.values.base import Value
from framejit.values.inspection import is_a

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Codegen, Frame

EQUAL_TYPES = (int, float, complex, bool, str, bytes, torch.device, range)
ANNOTATION_TYPES = (types.UnionType, types.GenericAlias)
RE_DEFAULTS = tuple(filter(None, [getattr(re, "_ZeroSentinel", None)]))  # the 0 that functions of re have for a default, since CPython 3.13
SINGLETON_TYPES = (*RE_DEFAULTS, type(None), type(Ellipsis), type(NotImplemented), torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
CONSTANT_TYPES: frozenset[type] = frozenset((*EQUAL_TYPES, *SINGLETON_TYPES))


_PLAIN = (int, float, complex, bool, str, bytes, type(None))
_ARITHMETIC = "add sub mul truediv floordiv mod pow matmul lshift rshift and or xor".split()
_OPERATORS = frozenset(f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r")) | frozenset("__lt__ __le__ __eq__ __ne__ __gt__ __ge__".split())


def is_constant_object(obj: Any) -> bool:
    """True for objects whose value can't change, so that knowing them once is knowing them for ever."""
    cls = type(obj)
    if cls in CONSTANT_TYPES or cls in ANNOTATION_TYPES or is_a(obj, enum.Enum):
        return True
    if cls in (tuple, frozenset, torch.Size):
        return all(map(is_constant_object, obj))
    if cls is slice:
        return is_constant_object(obj.start) and is_constant_object(obj.stop) and is_constant_object(obj.step)
    return is_a(obj, (torch.finfo, torch.iinfo)) or is_a(obj, np.dtype) and obj.isbuiltin == 1


def _counted(tx: Frame, items: Iterable[Any]) -> Iterator[Value]:
    for item in items:  # a range may be far longer than what can be captured
        tx.capture.spend(1)
        yield ConstantValue(item)


class ConstantValue(Value):
    built_once = False

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value, self.source = value, source
        if type(value) is slice:
            self.built_once = True

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        # a member of an enum that is being made has no name yet
        text = f"{type(self.value).__qualname__}.{vars(self.value).get('_name_')}" if is_a(self.value, enum.Enum) else repr(self.value)
        return f"{type(self.value).__name__} {text if len(text) < 60 else text[:57] + '...'}"

    def constant(self) -> Any:
        return self.value

    def truth(self, tx: Frame) -> bool:
        return bool(self.value)

    def iterate(self, tx: Frame) -> Iterator[Value]:
        if isinstance(self.value, (str, bytes, range, frozenset)):
            return _counted(tx, self.value)
        raise tx.raised(TypeError, f"{type(self.value).__name__!r} object is not iterable")

    def iterator(self, tx: Frame) -> Value:
        from framejit.values.containers.iterators import RangeIterator, TextIterator

        if isinstance(self.value, (str, bytes)):
            return TextIterator(self.value)
        return RangeIterator(self.value) if isinstance(self.value, range) else super().iterator(tx)

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        from framejit.values.containers.sequence import as_index
        from framejit.values.folding import fold, fold_plain

        if self.value is None:
            raise tx.raised(AttributeError, f"'NoneType' object has no attribute {name!r}")
        if name in _OPERATORS and type(self.value) in _PLAIN and args and not args[0].is_constant():
            text, other = isinstance(self.value, (str, bytes)), args[0].python_type()
            if text and name in ("__mul__", "__rmul__") and static_lookup(other, "__index__", None) is not None:
                args = [ConstantValue(as_index(tx, args[0]))]
            elif not issubclass(other, _PLAIN) and not (text and name == "__mod__"):
                return ConstantValue(NotImplemented)  # numbers and text only work with their own kind
        if name == "join" and isinstance(self.value, (str, bytes)) and len(args) == 1:
            args = [ConstantValue(tuple(tx.constants(tx.iterate(args[0]))))]
        if name == "format" and isinstance(self.value, str):
            return fold_plain(tx, self.value.format, args, kwargs)
        return fold(tx, getattr(self.value, name), args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
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

    @property
    def symbolic(self) -> bool:
        return any(part.symbolic for part in self.parts)

    def proxy(self) -> Any:
        return slice(*(p.proxy() for p in self.parts))

    def constant(self) -> Any:
        return slice(*(p.constant() for p in self.parts))

    def children(self) -> Iterator[Value]:
        return iter(self.parts)

    def getattr(self, tx: Frame, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        return super().getattr(tx, name)

    def reconstruct(self, cg: Codegen) -> None:
        for part in self.parts:
            cg.load(part)
        cg.em.build("SLICE", 3)


NONE = ConstantValue(None)


def is_none(value: Value) -> bool:
    return isinstance(value, ConstantValue) and value.value is None
