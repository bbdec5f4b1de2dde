"""Methods of existing C objects that only read immutable state: what they give is a constant for a known object, and guarded for any other."""

from __future__ import annotations

import functools
import operator
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import AttrSource, CallSource, ConstSource, const_source
from framejit.signals import Exhausted, Unsupported
from framejit.values.base import Value
from framejit.values.constant import RE_DEFAULTS, ConstantValue
from framejit.values.containers.iterator_tools import ToolIterator
from framejit.values.containers.iterators import advanced
from framejit.values.folding import fold
from framejit.values.handlers import handles
from framejit.values.inspection import module_of

if TYPE_CHECKING:
    from framejit.values.context import Frame
    from framejit.values.objects.user_object import ObjectValue

_MATCHING = ("match", "prefixmatch", "search", "fullmatch")  # the second is what CPython 3.15 calls the first
_PURE: dict[type, frozenset[str]] = {
    re.Pattern: frozenset((*_MATCHING, "findall", "sub", "subn", "split")),
    re.Match: frozenset(("group", "groups", "start", "end", "span", "groupdict", "expand", "__getitem__")),
}
_TEMPLATES = getattr(re, "_compile_template" if hasattr(re, "_compile_template") else "_compile_repl")
_HELD: dict[int, re.Pattern[Any]] = {}  # what captured code has compiled: guards hold patterns weakly, and re forgets its own
_TEXT = (str, bytes, int, type(None), *RE_DEFAULTS)


def call_known_method(tx: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if owner.cls is re.Pattern and (name in _PURE[re.Pattern] or name == "finditer"):
        return _of_pattern(tx, owner, name, args, kwargs)
    if owner.cls is re.Match and name in _PURE[re.Match]:
        return _of_match(tx, owner, name, args, kwargs)
    if module_of(owner.cls).partition(".")[0] == "numpy":
        what = f"{owner.obj.__name__}()" if name == "__call__" and hasattr(owner.obj, "__name__") else f"{name!r} of {owner.describe()}"
        raise Unsupported(f"numpy's {what} works on arrays in memory, which are no part of a graph", "FJ105", "use torch operations in place of numpy's")
    raise Unsupported(f"method {name!r} of {owner.describe()} is written in C", "FJ111", "call it before the function, and pass in what it gives")


@handles(re._compile)  # type: ignore[attr-defined, arg-type]
def _compiled(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The pattern of a known text, made now and put into re's cache: nothing else tells when it was made. None leaves the call to be inlined."""
    if kwargs or len(args) != 2 or not all(isinstance(arg, ConstantValue) for arg in args):
        return None
    pattern, flags = tx.constants(args)
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
    value = tx.capture.known(found)
    if value is None:
        value = _known(found)
        tx.capture.remember(found, value)
        _HELD[id(found)] = found
        if len(_HELD) > 4096:
            del _HELD[next(iter(_HELD))]
    return value


def _texts(tx: Frame, values: list[Value], what: str) -> list[Any]:
    """Arguments that are text or numbers; a function among them would have to be called by the program, not now."""
    found = tx.constants(values)
    if not all(type(v) in _TEXT for v in found):
        raise Unsupported(f"{what} with arguments that are no text", "FJ111")
    return found


def _folded(tx: Frame, method: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The result of a method on constants; where it warns, as of a template, the call is left to the program, at whose line that is told."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = fold(tx, method, args, kwargs)
    if told:
        _TEMPLATES.cache_clear()  # else the call would find the template there, and not warn
        raise Unsupported(f"{method.__qualname__}() warns", "FJ126")
    return found


def _of_pattern(tx: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Patterns are alike if text and flags are."""
    texts = _texts(tx, args, f"re.Pattern.{name}()")
    names = dict(zip(kwargs, _texts(tx, list(kwargs.values()), f"re.Pattern.{name}()")))
    if owner.source is not None and not isinstance(owner.source, ConstSource):
        for part in ("pattern", "flags"):
            tx.capture.add_guard(AttrSource(owner.source, part), native.C_EQUALS, getattr(owner.obj, part))
    if name not in (*_MATCHING, "finditer"):
        return _folded(tx, getattr(owner.obj, name), args, kwargs)
    try:
        found = getattr(owner.obj, name)(*texts, **names)
    except (TypeError, RecursionError) as e:
        raise tx.raised_from(e) from None
    if name == "finditer":
        return _matches(owner, found, texts, names)
    return ConstantValue(None) if found is None else _known(found)


def _known(made: re.Match[Any] | re.Pattern[Any]) -> Value:
    """A match object or pattern that was made while capturing; nothing can change it."""
    from framejit.values.objects.user_object import ObjectValue

    return ObjectValue(type(made), made, const_source(made))


def _matches(owner: ObjectValue, found: Iterator[Any], texts: list[Any], names: dict[str, Any]) -> Value:
    steps = [0]

    def step(tx: Frame) -> Value:
        match = next(found, None)
        if match is None:
            raise Exhausted
        steps[0] += 1
        return _known(match)

    def rebuild() -> tuple[Any, list[Value]]:
        return functools.partial(_found_after, tuple(texts), names), [owner, ConstantValue(steps[0])]

    return ToolIterator(type(found), step, rebuild)


def _found_after(texts: tuple[Any, ...], names: dict[str, Any], pattern: re.Pattern[Any], steps: int) -> Iterator[Any]:
    return advanced(pattern.finditer(*texts, **names), steps)


def _of_match(tx: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What a match says; of one from outside the very answer is guarded, for each match is another object."""
    texts = _texts(tx, args, f"re.Match.{name}()")
    names = dict(zip(kwargs, _texts(tx, list(kwargs.values()), f"re.Match.{name}()")))
    if owner.source is None or isinstance(owner.source, ConstSource):
        return _folded(tx, getattr(owner.obj, name), args, kwargs)
    try:
        found = getattr(owner.obj, name)(*texts, **names)
    except (IndexError, TypeError):
        raise Unsupported(f"re.Match.{name}() of a group that may not exist", "FJ161") from None
    return tx.wrap(found, CallSource(owner.source, _Reader(operator.methodcaller(name, *texts, **names), f"{name}({', '.join(map(repr, texts))})")))


class _Reader:
    """A method call as a function of the object; compared by what it calls, so that one guard stands for equal calls."""

    def __init__(self, call: Any, name: str) -> None:
        self._call, self.__name__ = call, name

    def __call__(self, obj: Any) -> Any:
        return self._call(obj)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reader) and self._call.__reduce__() == other._call.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__name__)
