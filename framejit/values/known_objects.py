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
    raise Unsupported(f"method {name!r} of {owner.describe()} is written in C", "FJ111")
