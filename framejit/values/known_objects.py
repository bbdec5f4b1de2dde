"""Methods of existing C objects that are safe to run while capturing, because they only read immutable state."""
from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Any

from framejit.guards.sources import CallSource
from framejit.values.base import Value
from framejit.values.folding import fold
from framejit.values.signals import Unsupported

if TYPE_CHECKING:
    from framejit.interpreter.frame import Frame
    from framejit.values.user_object import ObjectValue

_PURE: dict[type, frozenset[str]] = {
    re.Pattern: frozenset(("match", "search", "fullmatch", "findall", "sub", "split")),
    re.Match: frozenset(("group", "groups", "start", "end", "span", "groupdict")),
}


def referent(ref: Any) -> Any:
    return ref()


def call_known_method(tx: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if owner.cls is weakref.ref and name == "__call__" and owner.source is not None:
        return tx.wrap(owner.obj(), CallSource(owner.source, referent))
    if name in _PURE.get(owner.cls, ()):
        return fold(tx, getattr(owner.obj, name), args, kwargs)
    if owner.cls.__module__.partition(".")[0] == "numpy":
        what = f"{owner.obj.__name__}()" if name == "__call__" and hasattr(owner.obj, "__name__") else f"{name!r} of {owner.describe()}"
        raise Unsupported(f"numpy's {what} works on arrays in memory, which are no part of a graph", "FJ105", "use torch operations in place of numpy's")
    raise Unsupported(f"method {name!r} of {owner.describe()} is written in C", "FJ111", "call it before the function, and pass in what it gives")
