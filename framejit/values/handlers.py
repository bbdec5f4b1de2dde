"""What calls of functions and classes do that framejit models: the registry that maps the real callable to its
handler."""
from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from framejit.values.base import Value

if TYPE_CHECKING:
    from framejit.values.context import Frame

Handler = Callable[["Frame", list[Value], dict[str, Value]], Value | None]
"""What a call gives; None where it is one like any other: a function of Python is inlined, one of torch's becomes a
node of the graph."""
HANDLERS: dict[Any, Handler] = {}


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    """Register a handler, which gets its arguments looked at; a None among the functions stands for one that this
    version of a library does not have."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update({f: handler for f in functions if f is not None})
        return handler

    return register


HandlerLookup = Callable[[FunctionType], "Handler | None"]
_LOOKUPS: list[HandlerLookup] = []


def looks_up_handler(lookup: HandlerLookup) -> HandlerLookup:
    """Register what tells the handler of a Python function by what the function says of itself."""
    _LOOKUPS.append(lookup)
    return lookup


def looked_up_handler(function: FunctionType) -> Handler | None:
    """The handler for a call of a Python function that is not registered itself, found by asking the registered
    lookups; None if the function is to be inlined."""
    return next(filter(None, (lookup(function) for lookup in _LOOKUPS)), None)


class NativeMethodValue(Value):
    """A method framejit itself implements for a value."""

    def __init__(self, function: Callable[[Frame, list[Value], dict[str, Value]], Value], name: str) -> None:
        self.function, self.name = function, name

    def describe(self) -> str:
        return f"method {self.name!r}"

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.function(frame, args, kwargs)
