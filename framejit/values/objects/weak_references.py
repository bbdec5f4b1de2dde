"""Weak references: existing ones, and those that captured code makes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import AttrSource, CallSource, Source
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.hashing import ObjectKey, referent_key
from framejit.values.handlers import handles
from framejit.values.lazy import LazyValue
from framejit.values.objects.classes import ClassValue
from framejit.values.wrap import wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame


def referent(ref: Any) -> Any:
    return ref()


class WeakReferenceValue(Value):
    """A `weakref.ref`. It holds nothing: what it leads to is none of its children."""

    def __init__(self, target: Value, callback: Value = NONE, made_at: int = 0, source: Source | None = None) -> None:
        self.target, self.callback, self.made_at, self.source = target, callback, made_at, source

    def table_key(self, capture: Capture) -> ObjectKey:
        target = self.target.realize_in(capture) if isinstance(self.target, LazyValue) else self.target
        if is_none(target):  # it keeps the hash that it was asked for before, if it was
            raise Unsupported("the hash of a weak reference to what is gone", "FJ122")
        return referent_key(capture, self, target)

    def python_type(self) -> type:
        return weakref.ref

    def children(self) -> Iterator[Value]:
        return iter((self.callback,))

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args or kwargs:
            raise Unsupported("a weak reference is called with arguments", "FJ112")
        return self.followed(frame)

    def followed(self, frame: Frame) -> Value:
        """The object that the reference leads to. Breaks the graph where that may be gone by now in plain Python."""
        target = realize(frame, self.target)
        if target.is_constant() or target.never_missed or _is_held(frame, target):
            return target
        if target.source is None:
            frame.capture.break_at(
                self.made_at, Unsupported("a weak reference to what captured code has made and may have let go of")
            )
        if frame.capture.may_have_dropped(target.source):
            raise Unsupported("a weak reference, after the captured code let go of objects")
        return target

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in ("__eq__", "__ne__") and len(args) == 1:
            other = args[0]
            if not isinstance(other, WeakReferenceValue):
                return ConstantValue(NotImplemented)
            mine, theirs = self.followed(frame), other.followed(frame)
            if is_none(mine) or is_none(theirs):
                return ConstantValue((self is other) == (name == "__eq__"))
            return frame.compare(name.strip("_"), mine, theirs)
        return super().call_method(frame, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(weakref.ref, lambda: (cg.load(self.target), cg.load(self.callback)), 2)


@wraps(weakref.ref)
def _existing_reference(capture: Capture, obj: weakref.ref[Any], source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, weakref.ref)
    return WeakReferenceValue(LazyValue(obj(), CallSource(source, referent)), source=source)


class KeyedReferenceValue(WeakReferenceValue):
    """A reference of a `WeakValueDictionary`, which knows its key."""

    def __init__(self, obj: weakref.KeyedRef[Any, Any], source: Source) -> None:
        super().__init__(LazyValue(obj(), CallSource(source, referent)), source=source)
        self._key = LazyValue(obj.key, AttrSource(source, "key"))

    def python_type(self) -> type:
        return weakref.KeyedRef

    def getattr(self, frame: Frame, name: str) -> Value:
        return realize(frame, self._key) if name == "key" else super().getattr(frame, name)


@wraps(weakref.KeyedRef)
def _existing_keyed_reference(capture: Capture, obj: weakref.KeyedRef[Any, Any], source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, weakref.KeyedRef)
    return KeyedReferenceValue(obj, source)


@handles(weakref.ref)
def _ref(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    target, callback = args[0], args[1] if len(args) > 1 else NONE
    cls = target.python_type()
    if not cls.__weakrefoffset__:
        raise frame.raised(TypeError, f"cannot create weak reference to {native.type_name(cls)!r} object")
    if target.is_constant() and target.source is None and not isinstance(target, ClassValue):
        raise Unsupported(f"a weak reference to {target.describe()}")
    if target.source is None and not target.is_constant() and not is_none(callback):
        raise Unsupported(
            "a weak reference with a callback to what captured code has made, which is called when that goes", "FJ113"
        )
    if not is_none(callback):
        frame.capture.called_back.append(target)
        return WeakReferenceValue(target, callback, frame.seq)
    return frame.capture.weak_references.setdefault(id(target), WeakReferenceValue(target, made_at=frame.seq))


def _is_held(frame: Frame, target: Value) -> bool:
    """Whether a variable or stack of the captured code holds an object, itself or by way of others."""
    seen: set[int] = set()
    todo = [value for each in frame.chain() for value in each.held()]
    while todo:
        value = todo.pop()
        while isinstance(value, LazyValue) and value.realized is not None:
            value = value.realized
        if value is target:
            return True
        if id(value) not in seen:
            seen.add(id(value))
            todo += value.children()
    return False
