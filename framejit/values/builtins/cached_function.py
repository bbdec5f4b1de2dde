"""Functions behind functools.lru_cache: their cache is looked into while capturing, and used when the captured code runs.

A result that is in the cache is read from there, under guards like any other object. Without one the function is inlined, if that has no effects and
gives a constant; the guard then is that the cache has this result or none. Either way the replacement code calls the cached function for real before
it replays anything else, so that counters, order and entries of the cache become what plain Python makes of them. What fits neither case is a graph
break, guarded by the absence of the result: the call that follows finds it.
"""

from __future__ import annotations

import enum
import functools
import types
import weakref
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import CallSource, Source, static_lookup
from framejit.signals import Raised, Restart, Unsupported
from framejit.values.base import Value
from framejit.values.constant import is_constant_object
from framejit.values.lazy import LazyValue, deep_realize

if TYPE_CHECKING:
    from framejit.values.context import Frame

_NO_RESULT = object()


class CachedFunctionValue(Value):
    """A function behind functools.lru_cache."""

    source: Source

    def __init__(self, real: Any, function: Value, source: Source) -> None:
        self.real, self.function, self.source = real, function, source
        self._made: dict[Any, Value] = {}  # results this capture adds to the cache, by the cache's own keys
        self._missing = 0  # how many results the replacement code may add to the cache

    def python_type(self) -> type:
        return type(self.real)

    def describe(self) -> str:
        return f"cached {self.function.describe()}"

    def constant(self) -> Any:
        return self.real

    def getattr(self, tx: Frame, name: str) -> Value:
        from framejit.values.wrap import wrap_attribute

        if name.startswith("cache_"):
            raise Unsupported(f"{name} of {self.describe()}")
        if name == "__wrapped__":
            return self.function
        own = vars(self.real)
        return wrap_attribute(tx.capture, own[name], self.source, name) if name in own else super().getattr(tx, name)

    def call(self, tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        effects, mark = tx.capture.effects, len(tx.capture.effects.cached_calls)
        objects = [self._object(tx, value) for value in deep_realize(tx, [*args, *kwargs.values()])]
        key = self._key(tuple(objects[: len(args)]), dict(zip(kwargs, objects[len(args) :])))
        result = self._made.get(key)
        if result is None:
            try:
                found = native.lru_cache_result(key, self.real)
            except KeyError:
                self._made[key] = result = self._make(tx, key, args, kwargs)
                del effects.cached_calls[mark:]  # those inside are made by the real call of this one
            else:
                result = LazyValue(found, CallSource(self.source, _reader("cached result", native.lru_cache_result, key))).realize(tx)
        effects.call_cached(self, args, kwargs)
        return result

    def _object(self, tx: Frame, value: Value) -> Any:
        """The real argument: a constant, or an object compared by identity."""
        if value.is_constant():
            return value.constant()
        obj = getattr(value, "obj", None)
        if obj is None or value.source is None or not _is_identity(type(obj)):
            raise Unsupported(f"{self.describe()} is called with {value.describe()}, which is not known before the program runs", "FJ121")
        tx.capture.add_guard(value.source, native.C_ID, obj)
        return obj

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The key functools gives a result."""
        if not all(map(_runs_no_code_as_key, (*args, *kwargs.values()))):
            raise Unsupported(f"{self.describe()} is called with objects whose comparison is their own", "FJ122")
        try:
            _, typed, mark, _, _ = native.lru_cache_settings(self.real)
        except TypeError as e:
            raise Unsupported(str(e)) from None
        if not typed and not kwargs and len(args) == 1 and type(args[0]) in (int, str):
            return args[0]
        key = args
        if kwargs:
            key += (mark, *(part for item in kwargs.items() for part in item))
        if typed:
            key += (*map(type, args), *map(type, kwargs.values()))
        try:
            hash(key)
        except TypeError as e:
            raise Unsupported(str(e), "FJ161") from None
        return key

    # ---- a result that is not there yet ----------------------------------------------------------

    def _make(self, tx: Frame, key: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """The result of inlining the function; the graph breaks where the real call, which is made later, could give something else or do more."""
        capture = tx.capture
        try:
            self._check_capturable(tx)
            before = capture.graph.n_ops
            result = tx.call(self.function, args, kwargs)
            if not result.is_constant() or not is_constant_object(made := result.constant()):
                raise Unsupported(f"{self.describe()} makes an object that stays in its cache", "FJ110")
            if capture.effects.outside or capture.state_changed or capture.graph.n_ops != before:
                raise Unsupported(f"{self.describe()} has effects, which happen only when the cache has no result")
        except Raised as e:
            raise self._assuming_absence(Unsupported(f"raises {e.value.cls.__name__}", "FJ161"), key) from None
        except Unsupported as e:
            raise self._assuming_absence(e, key) from None
        except Restart as e:
            self._assuming_absence(e.reason, key)
            raise
        self._missing += 1
        capture.add_guard(self.source, native.C_PY, _reader("the cache admits the result", native.lru_cache_admits, key, made, self._missing))
        return result

    def _assuming_absence(self, reason: Unsupported, key: Any) -> Unsupported:
        reason.assumes.append((self.source, native.C_PY, _reader("the cache has no result", native.lru_cache_admits, key, _NO_RESULT, 0)))
        reason.hint = "once it has run with these arguments, its result is read from the cache and the graph goes on"
        return reason

    def _check_capturable(self, tx: Frame) -> None:
        """The real call is made before anything else is replayed: it must find what it would have found in its own place, and drive no other result out."""
        function, _, _, maxsize, size = native.lru_cache_settings(self.real)
        if function is not self.real.__wrapped__:
            raise Unsupported(f"{self.describe()} does not call its __wrapped__")
        if maxsize >= 0 and size + self._missing >= maxsize:
            raise Unsupported(f"the cache of {self.describe()} is full")
        if tx.capture.effects.outside or tx.capture.state_changed:
            raise Unsupported(f"{self.describe()} runs for the first time, after changes it may depend on")


def _is_identity(cls: type) -> bool:
    return static_lookup(cls, "__hash__") is object.__hash__ and static_lookup(cls, "__eq__") is object.__eq__


def _runs_no_code_as_key(obj: Any) -> bool:
    cls = type(obj)
    if isinstance(obj, (tuple, frozenset)) and not all(map(_runs_no_code_as_key, obj)):
        return False
    methods = static_lookup(cls, "__hash__"), static_lookup(cls, "__eq__")
    return not any(isinstance(m, types.FunctionType) and m is not enum.Enum.__hash__ for m in methods)


# ---- guards and sources: they hold objects in a key weakly --------------------------------------


class _Reader(functools.partial[Any]):
    """A function of the cached function alone, whose `__name__` goes into the words of a guard."""

    __name__: str


def _reader(name: str, function: Any, key: Any, *rest: Any) -> _Reader:
    """`function(key, *rest, cached)` as a function of `cached`."""
    parts = key if type(key) is tuple else (key,)
    if all(map(is_constant_object, parts)):
        reader = _Reader(function, key, *rest)
    else:
        reader = _Reader(_with_weak_key, tuple(map(_weakly, parts)), function, *rest)
    reader.__name__ = name
    return reader


def _weakly(part: Any) -> Any:
    if is_constant_object(part):
        return functools.partial(_same, part)
    try:
        return functools.partial(_alive, weakref.ref(part))
    except TypeError:
        if type(part) is object:  # the mark before keyword arguments
            return functools.partial(_same, part)
        raise Unsupported(f"a cached function is called with a {type(part).__name__}, which can't be referred to weakly") from None


def _same(part: Any) -> Any:
    return part


def _alive(ref: weakref.ref[Any]) -> Any:
    part = ref()
    if part is None:
        raise KeyError("an object in the key is gone")
    return part


def _with_weak_key(parts: tuple[Any, ...], function: Any, *rest: Any) -> Any:
    return function(tuple(part() for part in parts), *rest)
