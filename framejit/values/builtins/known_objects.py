"""Methods of existing C objects that only read immutable state: what they give is a constant for a known object, and
guarded for any other."""

from __future__ import annotations

import functools
import operator
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.torch_version import TorchVersion

from framejit import _native as native
from framejit.guards.sources import AttrSource, CallSource, ConstSource, const_source, static_lookup
from framejit.models import replaced_matches
from framejit.signals import Exhausted, Unsupported
from framejit.values.base import Value
from framejit.values.builtins.iterator_tools import ToolIterator
from framejit.values.constant import RE_DEFAULTS, ConstantValue
from framejit.values.containers.iterator_values import advanced
from framejit.values.folding import fold
from framejit.values.handlers import handles
from framejit.values.objects.functions.model_values import ModelFunctionValue
from framejit.values.objects.functions.signatures import checked
from framejit.values.objects.inherited_methods import KNOWN_METHODS, written_in_c
from framejit.values.objects.user_object import ObjectValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_MATCHING = ("match", "prefixmatch", "search", "fullmatch")  # the second is what CPython 3.15 calls the first
_PURE: dict[type, frozenset[str]] = {
    re.Pattern: frozenset((*_MATCHING, "findall", "sub", "subn", "split")),
    re.Match: frozenset(("group", "groups", "start", "end", "span", "groupdict", "expand", "__getitem__")),
}
_TEMPLATES = getattr(re, "_compile_template" if hasattr(re, "_compile_template") else "_compile_repl")
# what captured code has compiled: guards hold patterns weakly, and re forgets its own
_HELD: dict[int, re.Pattern[Any]] = {}
_TEXT = (str, TorchVersion, bytes, int, type(None), *RE_DEFAULTS)


def _call_on_pattern(frame: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if name not in _PURE[re.Pattern] and name != "finditer":
        raise written_in_c(owner, name)
    return _of_pattern(frame, owner, name, args, kwargs)


def _call_on_match(frame: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if name not in _PURE[re.Match]:
        raise written_in_c(owner, name)
    return _of_match(frame, owner, name, args, kwargs)


KNOWN_METHODS.update({re.Pattern: _call_on_pattern, re.Match: _call_on_match})


@handles(re._compile)  # type: ignore[attr-defined]
def _compiled(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The pattern of a known text, made now and put into re's cache: nothing else tells when it was made. None leaves
    the call to be inlined."""
    if kwargs or len(args) != 2 or not all(isinstance(arg, ConstantValue) for arg in args):
        return None
    pattern, flags = frame.constants(args)
    if type(pattern) not in (str, bytes) or not isinstance(flags, int) or flags & re.DEBUG:
        return None
    found = re._cache.get((type(pattern), pattern, int(flags)))  # type: ignore[attr-defined]
    if found is None:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                re._compiler.compile(pattern, int(flags))  # type: ignore[attr-defined]
            except Exception as e:
                raise Unsupported(f"re.compile() raises {type(e).__name__}", "FJ161") from None
        if told:
            raise Unsupported(f"re.compile() warns of {pattern!r}", "FJ126")
        found = re.compile(pattern, flags)
    value = frame.capture.known(found)
    if value is None:
        value = _known(found)
        frame.capture.remember(found, value)
        _HELD[id(found)] = found
        if len(_HELD) > 4096:
            del _HELD[next(iter(_HELD))]
    return value


def _texts(frame: Frame, values: list[Value], what: str) -> list[Any]:
    """Arguments that are text or numbers; a function among them would have to be called by the program, not now."""
    found = frame.constants(values)
    if not all(type(v) in _TEXT for v in found):
        raise Unsupported(f"{what} with arguments that are no text", "FJ111")
    return found


def _folded(frame: Frame, method: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The result of a method on constants; where it warns, as of a template, the call is left to the program, at whose
    line that is told."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = fold(frame, method, args, kwargs)
    if told:
        _TEMPLATES.cache_clear()  # else the call would find the template there, and not warn
        raise Unsupported(f"{method.__qualname__}() warns", "FJ126")
    return found


def _of_pattern(frame: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Patterns are alike if text and flags are."""
    if name in ("sub", "subn") and args and _is_callable(args[0]):
        given, named = checked(frame, getattr(re.Pattern, name), [owner, *args], kwargs)
        return ModelFunctionValue(getattr(replaced_matches, name)).call(frame, given, named)
    texts = _texts(frame, args, f"re.Pattern.{name}()")
    names = dict(zip(kwargs, _texts(frame, list(kwargs.values()), f"re.Pattern.{name}()")))
    if owner.source is not None and not isinstance(owner.source, ConstSource):
        for part in ("pattern", "flags"):
            frame.capture.add_guard(AttrSource(owner.source, part), native.C_EQUALS, getattr(owner.obj, part))
    if name not in (*_MATCHING, "finditer"):
        return _folded(frame, getattr(owner.obj, name), args, kwargs)
    try:
        found = getattr(owner.obj, name)(*texts, **names)
    except (TypeError, RecursionError) as e:
        raise frame.raised_from(e) from None
    if name == "finditer":
        return MatchesIterator(owner, found, texts, names)
    return ConstantValue(None) if found is None else _known(found)


def _is_callable(value: Value) -> bool:
    """Whether a replacement is called for each match."""
    cls = value.python_type()
    return cls not in _TEXT and static_lookup(cls, "__call__", None) is not None


def _known(made: re.Match[Any] | re.Pattern[Any]) -> Value:
    """A match object or pattern that was made while capturing; nothing can change it."""
    return ObjectValue(type(made), made, const_source(made))


class MatchesIterator(ToolIterator):
    """The iterator that `finditer` of a known pattern over known text gives."""

    def __init__(self, pattern: ObjectValue, found: Iterator[Any], texts: list[Any], names: dict[str, Any]) -> None:
        self.pattern, self.found, self.texts, self.names = pattern, found, texts, names
        self.kind = type(found)
        self.steps = 0

    def next(self, frame: Frame) -> Value:
        match = next(self.found, None)
        if match is None:
            raise Exhausted
        self.steps += 1
        return _known(match)

    def rebuilt(self) -> tuple[Any, list[Value]]:
        return functools.partial(_found_after, tuple(self.texts), self.names), [self.pattern, ConstantValue(self.steps)]


def _found_after(texts: tuple[Any, ...], names: dict[str, Any], pattern: re.Pattern[Any], steps: int) -> Iterator[Any]:
    return advanced(pattern.finditer(*texts, **names), steps)


def _of_match(frame: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What a match says; of one from outside the very answer is guarded, for each match is another object."""
    texts = _texts(frame, args, f"re.Match.{name}()")
    names = dict(zip(kwargs, _texts(frame, list(kwargs.values()), f"re.Match.{name}()")))
    if owner.source is None or isinstance(owner.source, ConstSource):
        return _folded(frame, getattr(owner.obj, name), args, kwargs)
    try:
        found = getattr(owner.obj, name)(*texts, **names)
    except (IndexError, TypeError):
        raise Unsupported(f"re.Match.{name}() of a group that may not exist", "FJ161") from None
    return frame.wrap(
        found,
        CallSource(
            owner.source,
            _Reader(operator.methodcaller(name, *texts, **names), f"{name}({', '.join(map(repr, texts))})"),
        ),
    )


class _Reader:
    """A method call as a function of the object; compared by what it calls, so that one guard stands for equal
    calls."""

    def __init__(self, call: Any, name: str) -> None:
        self._call, self.__name__ = call, name

    def __call__(self, obj: Any) -> Any:
        return self._call(obj)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reader) and self._call.__reduce__() == other._call.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__name__)
