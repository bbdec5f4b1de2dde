"""What built-in functions and constructors do on values: the registry that maps the real callable to its handler."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framejit.values.base import Value

if TYPE_CHECKING:
    from framejit.values.context import Frame

Handler = Callable[["Frame", list[Value], dict[str, Value]], Value]
HANDLERS: dict[Any, Handler] = {}


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    """Register a handler; it gets its arguments looked at."""

    def register(handler: Handler) -> Handler:
        for f in functions:
            HANDLERS[f] = handler
        return handler

    return register
