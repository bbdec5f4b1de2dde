"""`variable.get()` of a `contextvars.ContextVar`: what the variable has in the context that runs is guarded like any
object. Setting one breaks the graph."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any, Final

from framejit import _native as native
from framejit.guards.sources import CallSource
from framejit.values.base import Value
from framejit.values.objects.inherited_methods import KNOWN_METHODS, written_in_c

if TYPE_CHECKING:
    from framejit.values.context import Frame
    from framejit.values.objects.user_object import ObjectValue


class _Unset:
    """What stands for a variable without a value."""


_UNSET: Final = _Unset()


def value_of(variable: contextvars.ContextVar[Any]) -> Any:
    """What a variable is set to, whatever default it has."""
    return variable.get(_UNSET)


def _call(frame: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    variable, source = owner.obj, owner.source
    if name != "get" or len(args) > 1 or kwargs or source is None:
        raise written_in_c(owner, name)
    frame.capture.add_guard(source, native.C_ID, variable)
    found, own = value_of(variable), CallSource(source, value_of)
    if found is not _UNSET:
        return frame.wrap(found, own)
    frame.capture.add_guard(own, native.C_ID, _UNSET)
    if args:
        return args[0]
    try:
        default = variable.get()
    except LookupError as e:
        raise frame.raised(LookupError, *e.args) from None
    return frame.wrap(default, CallSource(source, contextvars.ContextVar.get))


KNOWN_METHODS[contextvars.ContextVar] = _call
