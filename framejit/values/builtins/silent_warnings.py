"""`warnings.warn` where nobody is shown anything: a filter ignores the warning, or it was shown before.

That is guarded, as far as filters and the registry of the place say it. The call is made behind the graph all the same:
Python counts what it was told, and shows again what it has forgotten it had shown. A warning that is shown breaks the
graph, at its place among what the program writes.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

from framejit import _native as native
from framejit.guards.shown_warnings import REGISTRY, is_silent, module_in, still_silent
from framejit.values.base import Value, deep_realize
from framejit.values.builtins.caught_warnings import Forgets
from framejit.values.constant import NONE, ConstantValue
from framejit.values.handlers import handles
from framejit.values.objects.classes import ClassValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_NAMES: Final = ("message", "category", "stacklevel", "source")
_OF_IMPORT: Final = ("importlib", "_bootstrap")


@handles(warnings.warn)
def _warn(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    given = dict(zip(_NAMES, deep_realize(frame, args)))
    given |= zip(kwargs, deep_realize(frame, [*kwargs.values()]))
    text, level = _constant(given.get("message")), _constant(given.get("stacklevel", ConstantValue(1)))
    category = given.get("category", NONE)
    cls = UserWarning if category is NONE else category.cls if isinstance(category, ClassValue) else None
    if (
        len(args) + len(kwargs) != len(given)
        or not given.keys() <= {*_NAMES}
        or _constant(given.get("source", NONE)) is not None
        or type(text) is not str
        or type(level) is not int
        or cls is None
        or type(cls) is not type
        or not issubclass(cls, Warning)
    ):
        return None
    told = _frame_at(frame, level)
    if told is None or not _are_as_they_were(frame, told.globals):
        return None
    line = told.place.line
    silent = is_silent(text, line, cls, told.globals)
    frame.capture.add_guard(told.globals_source(), native.C_PY, still_silent(text, line, silent, cls))
    if not silent:
        return None
    place = [_Globals(told.globals), *map(ConstantValue, (text, told.code.co_filename, line)), from_python(cls)]
    frame.capture.effects.call_behind(_Warns(), place, {})
    return NONE


def _constant(value: Value | None) -> Any:
    """What an argument is known to be; else something that is none of what is asked for."""
    return value.constant() if isinstance(value, ConstantValue) else object()


def _frame_at(frame: Frame, level: int) -> Frame | None:
    """The frame that a warning is put down to; None for one outside of the capture."""
    frames = [other for other in frame.chain() if not other.hidden]
    if level > 1 and not _imports(frames[0]):
        frames[1:] = [other for other in frames[1:] if not _imports(other)]
    place = max(level, 1) - 1
    return frames[place] if place < len(frames) else None


def _imports(frame: Frame) -> bool:
    return all(part in frame.code.co_filename for part in _OF_IMPORT)


def _are_as_they_were(frame: Frame, namespace: dict[str, Any]) -> bool:
    """Whether captured code has changed nothing that says whether a warning is shown."""
    capture = frame.capture
    registry = namespace.get(REGISTRY)
    return not (
        capture.caught_warnings
        or capture.effects.globals_of(vars(warnings))
        or {"__name__", REGISTRY} & capture.effects.globals_of(namespace).keys()
        or any(capture.known(known) is not None for known in (warnings.filters, registry) if known is not None)
        or any(isinstance(call[0], Forgets) for call in capture.effects.cached_calls)
    )


def warn_at(namespace: dict[str, Any], text: str, file: str, line: int, category: type[Warning]) -> None:
    """`warnings.warn` at a line of the module with this namespace."""
    registry = namespace.setdefault(REGISTRY, {})
    warnings.warn_explicit(text, category, file, line, module_in(namespace), registry)


class _Warns(Value):
    def python_type(self) -> type:
        return type(warn_at)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.load_object(warn_at)


class _Globals(Value):
    """The namespace of a module, of which nothing is assumed."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace

    def python_type(self) -> type:
        return dict

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_globals(self._namespace)
