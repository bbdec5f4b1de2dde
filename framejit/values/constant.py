"""Immutable Python objects known by value: numbers, strings, None, dtypes, devices, enum members, ranges, slices."""

from __future__ import annotations

import enum
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.torch_version import TorchVersion

from framejit import _native as native
from framejit.guards.plain_text import module_of
from framejit.guards.sources import static_lookup
from framejit.signals import Raised, Unsupported
from framejit.values.base import Value, deep_realize
from framejit.values.indices import as_index
from framejit.values.inspection import ANNOTATION_TYPES, annotation_parts, instance_dict, is_a, member_has_code

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Codegen, Frame

EQUAL_TYPES = (int, float, complex, bool, str, bytes, torch.device, range)
# the 0 that functions of re have for a default, since CPython 3.13
RE_DEFAULTS = tuple(filter(None, [getattr(re, "_ZeroSentinel", None)]))
SINGLETON_TYPES = (
    *RE_DEFAULTS, type(None), type(Ellipsis), type(NotImplemented), torch.dtype, torch.layout, torch.memory_format,
    torch.qscheme, TorchVersion,
)
"""Guarded by identity. The last is the class of `torch.__version__`, text with comparisons in Python that only read."""
_BOUND = [
    found for found in vars(torch._C).values() if isinstance(found, type) and type(found) is type(torch._C._SDPBackend)
]
TORCH_ENUMS = tuple(found for found in _BOUND if "__members__" in vars(found))
"""Enumerations of torch that pybind11 has made: their members never change, and are compared by their numbers."""
CONSTANT_TYPES: frozenset[type] = frozenset((*EQUAL_TYPES, *SINGLETON_TYPES, *TORCH_ENUMS))


_PLAIN = (int, float, complex, bool, str, bytes, type(None))
_ARITHMETIC = "add sub mul truediv floordiv mod pow matmul lshift rshift and or xor".split()
_OPERATORS = frozenset(f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r")) | frozenset("""
    __lt__ __le__ __eq__ __ne__ __gt__ __ge__
""".split())


def is_constant_object(obj: Any) -> bool:
    """True for objects whose value can't change, so that knowing them once is knowing them for ever."""
    cls = type(obj)
    if cls in CONSTANT_TYPES:
        return True
    if cls in ANNOTATION_TYPES:
        return all(map(_stays_in_an_annotation, annotation_parts(obj)))
    if is_a(obj, enum.Enum):
        return not member_has_code(obj)
    if cls in (tuple, frozenset, torch.Size):
        return all(map(is_constant_object, obj))
    if cls is slice:
        return is_constant_object(obj.start) and is_constant_object(obj.stop) and is_constant_object(obj.step)
    return is_a(obj, (torch.finfo, torch.iinfo)) or is_a(obj, np.dtype) and obj.isbuiltin == 1


def _is_equal_by_identity(obj: Any) -> bool:
    """Whether nothing but an object itself is equal to it, unless the other one says so: members of most enums."""
    return all(static_lookup(type(obj), name) is getattr(object, name) for name in ("__eq__", "__ne__"))


def _is_equal_as_plain(obj: Any, name: str) -> bool:
    """Whether an object of a class derived from a number's or text's is compared as these, as members of an IntEnum."""
    return any(static_lookup(type(obj), name) is static_lookup(plain, name) for plain in _PLAIN)


def _stays_in_an_annotation(part: Any) -> bool:
    """Whether what stands in the brackets of an annotation, or before them, can't change. Any object may stand there,
    also a list, whose items the text and comparisons of the annotation read."""
    if is_a(part, type) or is_constant_object(part):
        return True
    if module_of(type(part)) not in ("typing", "typing_extensions"):
        return False
    own = instance_dict(part) or {}
    return all(map(_stays_in_an_annotation, (*own.get("__args__", ()), *own.get("__metadata__", ()))))


def _counted(frame: Frame, items: Iterable[Any]) -> Iterator[Value]:
    for item in items:  # a range may be far longer than what can be captured
        frame.capture.spend(1)
        yield ConstantValue(item)


ITERATORS: dict[type, Callable[[Any], Value]] = {}
"""How constants are iterated, by their class, where that is not over a copy of the items: registered by the
iterators."""


class ConstantValue(Value):
    """An immutable object that is known by its value: a number, text, None, a dtype, a member of an enum, a tuple of
    such."""

    built_once = False

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value, self.source = value, source
        if type(value) is slice:
            self.built_once = True

    @property
    def enters_natively(self) -> bool:  # type: ignore[override]
        return type(self.value) is torch.device

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        # a member of an enum that is being made has no name yet
        text = (
            f"{type(self.value).__qualname__}.{vars(self.value).get('_name_')}"
            if is_a(self.value, enum.Enum)
            else repr(self.value)
        )
        return f"{type(self.value).__name__} {text if len(text) < 60 else text[:57] + '...'}"

    def constant(self) -> Any:
        return self.value

    def truth(self, frame: Frame) -> bool:
        if self.value is NotImplemented:  # CPython warns at the program's line, and from 3.14 on raises
            if sys.version_info < (3, 14):
                raise Unsupported("NotImplemented in a boolean context, which warns")
            raise frame.raised(TypeError, "NotImplemented should not be used in a boolean context")
        return bool(self.value)

    def iterate(self, frame: Frame) -> Iterator[Value]:
        if isinstance(self.value, (str, bytes, range, frozenset)):
            return _counted(frame, self.value)
        raise frame.raised(TypeError, f"{native.type_name(type(self.value))!r} object is not iterable")

    def iterator(self, frame: Frame) -> Value:
        for cls, make in ITERATORS.items():
            if isinstance(self.value, cls):
                return make(self.value)
        return super().iterator(frame)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if type(self.value) is not types.GenericAlias:
            return super().call(frame, args, kwargs)
        made = frame.call(self.getattr(frame, "__origin__"), args, kwargs)  # `list[int]()`
        if static_lookup(made.python_type(), "__dict__", None) is not None:
            try:
                with frame.catching():
                    made.setattr(frame, "__orig_class__", self)
            except Raised as e:
                if not issubclass(e.value.cls, (AttributeError, TypeError)):
                    raise
        return made

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.value is None and static_lookup(type(None), name, None) is None:
            raise frame.raised(AttributeError, f"'NoneType' object has no attribute {name!r}")
        if name in _OPERATORS and type(self.value) in _PLAIN and args and not args[0].is_constant():
            text, other = isinstance(self.value, (str, bytes)), args[0].python_type()
            if text and name in ("__mul__", "__rmul__") and static_lookup(other, "__index__", None) is not None:
                args = [ConstantValue(as_index(frame, args[0]))]
            elif not issubclass(other, _PLAIN) and not (text and name == "__mod__"):
                return ConstantValue(NotImplemented)  # numbers and text only work with their own kind
        if name in ("__eq__", "__ne__") and args and not args[0].is_constant():
            if _is_equal_by_identity(self.value):
                same = frame.same(self, args[0])
                return ConstantValue((name == "__eq__") if same else NotImplemented)
            if _is_equal_as_plain(self.value, name) and not issubclass(args[0].python_type(), _PLAIN):
                return ConstantValue(NotImplemented)
        if name == "__iter__" and not args and static_lookup(type(self.value), name, None) is not None:
            return frame.get_iter(self)
        if name == "join" and isinstance(self.value, (str, bytes)) and len(args) == 1:
            args = [ConstantValue(tuple(frame.constants(frame.iterate(args[0]))))]
        if name == "translate" and isinstance(self.value, str) and len(args) == 1 and args[0].python_type() is dict:
            args = [ConstantValue(deep_realize(frame, args)[0].plain_copy(frame))]
        if name == "format" and isinstance(self.value, str):
            return frame.filled_in(self.value, args, kwargs)
        return frame.fold(getattr(self.value, name), args, kwargs)

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

    def realize_parts(self, frame: Frame) -> None:
        self.parts[:] = deep_realize(frame, self.parts)

    def proxy(self) -> Any:
        return slice(*(p.proxy() for p in self.parts))

    def constant(self) -> Any:
        return slice(*(p.constant() for p in self.parts))

    def children(self) -> Iterator[Value]:
        return iter(self.parts)

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        return super().getattr(frame, name)

    def reconstruct(self, cg: Codegen) -> None:
        for part in self.parts:
            cg.load(part)
        cg.em.build("SLICE", 3)


NONE = ConstantValue(None)


def is_none(value: Value) -> bool:
    return isinstance(value, ConstantValue) and value.value is None


def guarded_constant(capture: Capture, obj: Any, source: Source) -> Value:
    """A constant that is read at `source`, guarded to be what it is now."""
    if type(obj) is int or type(obj) is bool:
        capture.check_item(source, obj)
    by_value = (
        type(obj) not in SINGLETON_TYPES
        and not is_a(obj, (bool, enum.Enum))
        and (type(obj) in EQUAL_TYPES or type(obj) is slice)
    )
    if type(obj) is int and capture.journal.is_kept and not capture.made_classes:
        return capture.follow_number(obj, source)
    capture.add_guard(source, native.C_EQUALS if by_value else native.C_ID, obj)
    return ConstantValue(obj, source)


def is_not_implemented(value: Value) -> bool:
    return isinstance(value, ConstantValue) and value.value is NotImplemented
