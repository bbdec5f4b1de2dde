"""Functions behind functools.lru_cache: their cache is looked into while capturing, and used when the captured code
runs.

A result that is in the cache is read from there, under guards like any other object. Without one the function is
inlined. If that has no effects and gives a constant, the guard is that the cache has this result or none; else it is
that there is none. Either way the replacement code calls the cached function before it replays anything else, so that
counters, order and entries of the cache become what plain Python makes of them. A call whose result the captured code
has made only puts it in (`native.lru_cache_exchange`); the others run. A function that can't be inlined is a graph
break, guarded by the absence of the result: the call that follows finds it.

A tensor as an argument is a key by its identity. One that stands for a result in the cache is guarded to be that very
tensor; of one that does not, all that is assumed is that the cache knows it not, so that each call may bring another.
"""

from __future__ import annotations

import enum
import functools
import operator
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.guards.sources import AttrSource, CallSource, DictSource, Source, static_lookup
from framejit.signals import Raised, Restart, Unsupported
from framejit.values.base import Value, deep_realize
from framejit.values.constant import is_constant_object
from framejit.values.containers.tuples import TupleValue
from framejit.values.inspection import is_a
from framejit.values.lazy import LazyValue, wrap_attribute
from framejit.values.objects.user_object import ObjectValue
from framejit.values.sym_int import SymIntValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import wrap, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Frame

_NO_RESULT, _HOLE = object(), object()


class CachedFunctionValue(Value):
    """A function behind functools.lru_cache."""

    source: Source

    def __init__(self, real: Any, function: Value, source: Source) -> None:
        self.real, self.function, self.source = real, function, source
        self._made: dict[Any, Value] = {}  # results this capture adds to the cache, by the cache's own keys
        # keys this capture has asked for, with what is assumed of those without a result
        self._used: dict[Any, _Assumption | None] = {}
        self._tensors: list[Value] = []  # those in keys

    def python_type(self) -> type:
        return type(self.real)

    def describe(self) -> str:
        return f"cached {self.function.describe()}"

    def constant(self) -> Any:
        return self.real

    def getattr(self, frame: Frame, name: str) -> Value:
        if name.startswith("cache_"):
            raise Unsupported(f"{name} of {self.describe()}")
        if name == "__wrapped__":
            return self.function
        own = vars(self.real)
        if name in own:
            return wrap_attribute(own[name], self.source, name)
        if static_lookup(type(self.real), name, None) is None:
            frame.capture.add_guard(DictSource(self.source), native.C_NO_KEY, name)
        return super().getattr(frame, name)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        effects = frame.capture.effects
        objects = [self._object(frame, value) for value in deep_realize(frame, [*args, *kwargs.values()])]
        key = self._key(tuple(objects[: len(args)]), dict(zip(kwargs, objects[len(args) :])))
        result = self._made.get(key)
        if result is not None:
            effects.call_behind(self, args, kwargs)
            return result
        parts = key if type(key) is tuple else (key,)
        made_here = any(isinstance(part, Value) and part.source is None for part in parts)
        try:
            if made_here:
                raise KeyError
            found = native.lru_cache_result(_real_key(frame, key), self.real)
        except KeyError:
            return self._make(frame, key, args, kwargs)
        for part in parts:
            if isinstance(part, TensorValue):
                _assume_same(frame, part)
        self._use(frame, key, None)
        result = LazyValue(
            found, CallSource(self.source, _reader("cached result", native.lru_cache_result, _real_key(frame, key)))
        ).realize(frame)
        effects.call_behind(self, args, kwargs)
        return result

    def _object(self, frame: Frame, value: Value) -> Any:
        """The real argument: a constant, or an object compared by identity; the value itself where it is a tensor, or
        an object made here."""
        if value.is_constant() or isinstance(value, (SymIntValue, SymNumberValue)):
            return value.constant()
        if isinstance(value, TupleValue) and value.cls in (tuple, torch.Size):
            parts = [self._object(frame, part) for part in deep_realize(frame, value.items)]
            if not any(isinstance(part, Value) for part in parts):
                return value.real(parts)
        if isinstance(value, TensorValue) and value.cls in (torch.Tensor, torch.nn.Parameter):
            for known in self._tensors:
                if known is not value:
                    frame.capture.distinct.tell_apart(known, value)
            self._tensors.append(value)
            return value
        obj = getattr(value, "obj", None)
        if obj is None and value.source is None and isinstance(value, ObjectValue) and _is_identity(value.cls):
            return value
        if obj is None or value.source is None or not _is_identity(type(obj)):
            raise Unsupported(
                f"{self.describe()} is called with {value.describe()}, which is not known before the program runs",
                "FJ121",
            )
        frame.capture.add_guard(value.source, native.C_ID, obj)
        return obj

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The key functools gives a result, with values for tensors and objects made here."""
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
            key += (*map(_type_in_key, args), *map(_type_in_key, kwargs.values()))
        try:
            hash(key)
        except TypeError as e:
            raise Unsupported(str(e), "FJ161") from None
        return key

    def _use(self, frame: Frame, key: Any, assumption: _Assumption | None) -> None:
        """Assume what a use of the cache wants of it: of several keys, none drives out what belongs to another."""
        self._used[key] = assumption
        missing = [a for a in self._used.values() if a is not None]
        if assumption is not None and len(self._used) == 1:
            frame.capture.add_guard(*assumption.guard(0))
        elif missing and len(self._used) > 1:
            _, _, _, maxsize, size = native.lru_cache_settings(self.real)
            if 0 <= maxsize < size + len(missing):
                raise Unsupported(f"the cache of {self.describe()} is full")
            for a in missing:
                frame.capture.add_guard(*a.guard(len(missing)))

    # ---- a result that is not there yet ----------------------------------------------------------

    def _make(self, frame: Frame, key: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """The result of inlining the function. It is made by the real call, which comes later, if that can't give
        anything else nor do more."""
        capture, effects = frame.capture, frame.capture.effects
        mark, untouched = len(effects.cached_calls), not (effects.outside or capture.state_changed)
        absent = _Assumption(frame, self, key, _NO_RESULT)
        try:
            self._check_capturable()
            before = capture.graph.n_ops
            result = frame.call(self.function, args, kwargs)
            pure = untouched and not (effects.outside or capture.state_changed) and capture.graph.n_ops == before
            constant = result.constant() if pure and result.is_constant() else _NO_RESULT
            if is_constant_object(constant):
                self._use(frame, key, _Assumption(frame, self, key, constant))
                del effects.cached_calls[mark:]  # those inside are made by the real call of this one
                effects.call_behind(self, args, kwargs)
            else:
                self._use(frame, key, absent)
                effects.call_behind(self, args, kwargs, result)
        except Raised as e:
            raise _assuming(Unsupported(f"raises {e.value.cls.__name__}", "FJ161"), absent) from None
        except Unsupported as e:
            raise _assuming(e, absent) from None
        except Restart as e:
            _assuming(e.reason, absent)
            raise
        self._made[key] = result
        return result

    def _check_capturable(self) -> None:
        function, _, _, maxsize, _ = native.lru_cache_settings(self.real)
        if function is not self.real.__wrapped__:
            raise Unsupported(f"{self.describe()} does not call its __wrapped__")
        if maxsize == 0:
            raise Unsupported(f"{self.describe()} keeps no results")


class _Assumption:
    """The assumption that the cache has `result` for a key or none, of which there is at most one to say, without
    regard to what a tensor in the key holds."""

    def __init__(self, frame: Frame, function: CachedFunctionValue, key: Any, result: Any) -> None:
        self._function, self._result = function, result
        parts = key if type(key) is tuple else (key,)
        # what is made here is in no cache
        self._surely = any(isinstance(part, Value) and part.source is None for part in parts)
        self._open: TensorValue | None = None
        self._key = key
        tensors = [part for part in parts if isinstance(part, TensorValue)]
        if self._surely or not tensors:
            return
        self._open = tensors[0]
        for part in tensors[1:]:
            if part is not self._open:
                _assume_same(frame, part)
        self._key = tuple(_HOLE if part is self._open else _real_part(frame, part) for part in parts)

    def guard(self, more: int) -> tuple[Source, int, _Reader]:
        """The assumption as a guard, with that of room for `more` results."""
        source = self._function.source
        if self._surely:
            return source, native.C_PY, _named("the cache has room", functools.partial(_has_room, more))
        name = "the cache has no result" if self._result is _NO_RESULT else "the cache admits the result"
        if self._open is None or self._open.source is None:
            return source, native.C_PY, _reader(name, native.lru_cache_admits, self._key, self._result, more)
        reader = functools.partial(
            _admits_tensor, tuple(map(_weakly, self._key)), self._result, more, weakref.ref(self._function.real)
        )
        return self._open.source, native.C_PY, _named(name, reader)


def _assuming(reason: Unsupported, absent: _Assumption) -> Unsupported:
    reason.assumes.append(absent.guard(0))
    reason.hint = "once it has run with these arguments, its result is read from the cache and the graph goes on"
    return reason


def put_result(cached: Any, result: Any, /, *args: Any, **kwargs: Any) -> None:
    """Call a function behind lru_cache so that it gets `result` in the place of running. Other threads may call it
    meanwhile."""
    given = (*args, *kwargs.values())

    def known(*args: Any, **kwargs: Any) -> Any:
        now = (*args, *kwargs.values())
        return result if len(now) == len(given) and all(map(operator.is_, now, given)) else function(*args, **kwargs)

    with _PUTTING:
        function = native.lru_cache_exchange(cached, known)
        try:
            cached(*args, **kwargs)
        finally:
            native.lru_cache_exchange(cached, function)


_PUTTING = threading.RLock()


def _is_identity(cls: type) -> bool:
    return static_lookup(cls, "__hash__") is object.__hash__ and static_lookup(cls, "__eq__") is object.__eq__


def _runs_no_code_as_key(obj: Any) -> bool:
    if isinstance(obj, Value):
        return True
    cls = type(obj)
    if isinstance(obj, (tuple, frozenset)) and not all(map(_runs_no_code_as_key, obj)):
        return False
    methods = static_lookup(cls, "__hash__"), static_lookup(cls, "__eq__")
    return not any(is_a(m, types.FunctionType) and m is not enum.Enum.__hash__ for m in methods)


def _assume_same(frame: Frame, tensor: TensorValue) -> None:
    assert tensor.source is not None
    frame.capture.add_guard(tensor.source, native.C_ID, frame.capture.real_object(tensor))


def _type_in_key(obj: Any) -> type:
    return obj.python_type() if isinstance(obj, Value) else type(obj)


def _real_part(frame: Frame, part: Any) -> Any:
    return frame.capture.real_object(part) if isinstance(part, TensorValue) else part


def _real_key(frame: Frame, key: Any) -> Any:
    return tuple(_real_part(frame, part) for part in key) if type(key) is tuple else key


# ---- guards and sources: they hold objects in a key weakly --------------------------------------


class _Reader(functools.partial[Any]):
    """A function of the cached function alone, whose `__name__` goes into the words of a guard."""

    __name__: str


def _reader(name: str, function: Any, key: Any, *rest: Any) -> _Reader:
    """`function(key, *rest, cached)` as a function of `cached`."""
    parts = key if type(key) is tuple else (key,)
    if all(map(is_constant_object, parts)):
        return _named(name, functools.partial(function, key, *rest))
    return _named(name, functools.partial(_with_weak_key, tuple(map(_weakly, parts)), function, *rest))


def _named(name: str, function: Any) -> _Reader:
    reader = _Reader(function)
    reader.__name__ = name
    return reader


def _weakly(part: Any) -> Any:
    if is_constant_object(part) or part is _HOLE:
        return functools.partial(_same, part)
    if type(part) is tuple:
        return functools.partial(_tuple_of, tuple(map(_weakly, part)))
    try:
        return functools.partial(_alive, weakref.ref(part))
    except TypeError:
        if type(part) is object:  # the mark before keyword arguments
            return functools.partial(_same, part)
        raise Unsupported(
            f"a cached function is called with a {type(part).__name__}, which can't be referred to weakly"
        ) from None


def _same(part: Any) -> Any:
    return part


def _tuple_of(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(part() for part in parts)


def _alive(ref: weakref.ref[Any]) -> Any:
    part = ref()
    if part is None:
        raise KeyError("an object in the key is gone")
    return part


def _with_weak_key(parts: tuple[Any, ...], function: Any, *rest: Any) -> Any:
    return function(tuple(part() for part in parts), *rest)


def _admits_tensor(parts: tuple[Any, ...], result: Any, more: int, cached: weakref.ref[Any], tensor: Any) -> bool:
    """Whether the cache admits `result` for a key in which `tensor` fills the holes."""
    key = tuple(tensor if (known := part()) is _HOLE else known for part in parts)
    found = cached()
    return found is not None and native.lru_cache_admits(key, result, more, found)


def _has_room(more: int, cached: Any) -> bool:
    _, _, _, maxsize, size = native.lru_cache_settings(cached)
    return maxsize < 0 or size + more <= maxsize


@wraps(functools._lru_cache_wrapper)
def _existing_cached_function(capture: Capture, obj: Any, source: Source) -> Value | None:
    if "__wrapped__" not in vars(obj):  # one that was just made
        return None
    capture.add_guard(source, native.C_ID, obj)
    return CachedFunctionValue(obj, wrap(capture, obj.__wrapped__, AttrSource(source, "__wrapped__")), source)
